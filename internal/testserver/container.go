package testserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// engineTimeout bounds one request to the container engine.
const engineTimeout = 30 * time.Second

// contained is a server in a container.
type contained struct {
	docker *testcontainers.DockerClient
	ctr    testcontainers.Container

	mu   sync.Mutex
	done chan struct{} // closed when the container that start ran has ended; nil: does not run
}

// runContained creates a container, and starts it.
func runContained(ctx context.Context, docker *testcontainers.DockerClient, req testcontainers.ContainerRequest) (*contained, error) {
	ctr, err := testcontainers.GenericContainer(ctx, testcontainers.GenericContainerRequest{ContainerRequest: req, Started: true})
	if err != nil {
		if ctr != nil {
			err = errors.Join(err, testcontainers.TerminateContainer(ctr))
		}
		return nil, err
	}
	c := &contained{docker: docker, ctr: ctr}
	c.watch()
	return c, nil
}

// watch notes when the container that was started ends.
func (c *contained) watch() {
	done := make(chan struct{})
	c.mu.Lock()
	c.done = done
	c.mu.Unlock()
	wait := c.docker.ContainerWait(context.Background(), c.ctr.GetContainerID(), client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	go func() {
		select {
		case <-wait.Result:
		case <-wait.Error: //nolint:errcheck // it was removed, or the engine is gone: it has ended
		}
		close(done)
	}()
}

// order sends one request about the container to the engine.
func (c *contained) order(send func(ctx context.Context, id string) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), engineTimeout)
	defer cancel()
	c.mu.Lock()
	runs := c.done != nil
	c.mu.Unlock()
	if !runs {
		return errStopped
	}
	return send(ctx, c.ctr.GetContainerID())
}

func (c *contained) pause() error {
	return c.order(func(ctx context.Context, id string) error {
		_, err := c.docker.ContainerPause(ctx, id, client.ContainerPauseOptions{})
		return err
	})
}

func (c *contained) resume() error {
	return c.order(func(ctx context.Context, id string) error {
		_, err := c.docker.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{})
		return err
	})
}

func (c *contained) kill() error {
	err := c.order(func(ctx context.Context, id string) error {
		_, err := c.docker.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "KILL"})
		return err
	})
	if err != nil {
		return err
	}
	return c.reap()
}

func (c *contained) start(ctx context.Context) error {
	if _, err := c.docker.ContainerStart(ctx, c.ctr.GetContainerID(), client.ContainerStartOptions{}); err != nil {
		return err
	}
	c.watch()
	return nil
}

// stop asks the server to end, and the engine kills it if it has not after 3 s.
func (c *contained) stop() error {
	err := c.order(func(ctx context.Context, id string) error {
		state, err := c.ctr.State(ctx)
		if err != nil {
			return err
		}
		if state.Paused {
			if _, err := c.docker.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{}); err != nil {
				return err
			}
		}
		patience := 3
		_, err = c.docker.ContainerStop(ctx, id, client.ContainerStopOptions{Timeout: &patience})
		return err
	})
	if errors.Is(err, errStopped) {
		return nil
	}
	if err != nil {
		return err
	}
	return c.reap()
}

// reap waits for the end of a container that was told to end.
func (c *contained) reap() error {
	select {
	case <-c.ended():
	case <-time.After(engineTimeout):
		return fmt.Errorf("container %s was told to end and still runs after %v", c.ctr.GetContainerID(), engineTimeout)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done = nil
	return nil
}

func (c *contained) ended() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.done
}

func (c *contained) tail() string {
	ctx, cancel := context.WithTimeout(context.Background(), engineTimeout)
	defer cancel()
	logs, err := c.ctr.Logs(ctx)
	if err != nil {
		return err.Error()
	}
	defer logs.Close()
	text, err := io.ReadAll(logs)
	if err != nil {
		return err.Error()
	}
	return lastLines(string(text))
}

// pod is the network of one or several containers: they reach each other on
// 127.0.0.1, and a port there is the same port of this host's 127.0.0.1. A
// container of its own, which no test stops, holds it, so that ports stay when a
// server restarts: the engine would give others.
type pod struct {
	holder *contained

	mu    sync.Mutex
	ports []int // not in use yet
	users int
}

// newPod starts a network with room for that many servers. The image's program
// must be one that idle keeps running.
func newPod(ctx context.Context, docker *testcontainers.DockerClient, image string, idle []string, room int) (*pod, error) {
	p := &pod{}
	var inside []string
	published := network.PortMap{}
	for len(p.ports) < room {
		port, err := freePort(ctx, false)
		if err != nil {
			return nil, err
		}
		if slices.Contains(p.ports, port) {
			continue
		}
		p.ports = append(p.ports, port)
		name := fmt.Sprintf("%d/tcp", port)
		inside = append(inside, name)
		published[network.MustParsePort(name)] = []network.PortBinding{{
			HostIP:   netip.AddrFrom4([4]byte{127, 0, 0, 1}),
			HostPort: strconv.Itoa(port),
		}}
	}
	var err error
	p.holder, err = runContained(ctx, docker, testcontainers.ContainerRequest{
		Image:              image,
		Entrypoint:         idle[:1],
		Cmd:                idle[1:],
		ExposedPorts:       inside,
		HostConfigModifier: func(h *container.HostConfig) { h.PortBindings = published },
	})
	if err != nil && (strings.Contains(err.Error(), "already in use") || strings.Contains(err.Error(), "already allocated")) {
		return nil, fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return p, err
}

// join gives the next port to a server.
func (p *pod) join() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ports) == 0 {
		return 0, errors.New("no port is left in this network of containers: a master has room for two replicas")
	}
	port := p.ports[0]
	p.ports = p.ports[1:]
	p.users++
	return port, nil
}

// leave removes the network with its last server.
func (p *pod) leave() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users--; p.users > 0 {
		return nil
	}
	return p.holder.remove()
}

// remove kills the container if it runs, and removes it with its files.
func (c *contained) remove() error {
	return testcontainers.TerminateContainer(c.ctr, testcontainers.StopTimeout(0))
}
