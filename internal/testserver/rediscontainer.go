package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"sync"

	"github.com/moby/moby/api/types/container"
	"github.com/testcontainers/testcontainers-go"
)

// Folders inside of a Redis's container.
const (
	dataInContainer  = "/data"
	certsInContainer = "/certs"
)

// redisContainer is a Redis in a container.
type redisContainer struct {
	*contained
	pod      *pod
	certsDir string // on this host; empty: none
	disposed sync.Once
}

func (c *redisContainer) dispose() (err error) {
	c.disposed.Do(func() {
		err = errors.Join(c.remove(), c.pod.leave())
		if c.certsDir != "" {
			err = errors.Join(err, os.RemoveAll(c.certsDir))
		}
	})
	return err
}

func redisImage() string {
	if image := os.Getenv("INTERLOCK_REDIS_IMAGE"); image != "" {
		return image
	}
	return "redis:7"
}

func startRedisContainer(ctx context.Context, o RedisOptions) (*Redis, error) {
	if o.FakeClock {
		return nil, unavailable("a container cannot have a clock of its own")
	}
	docker, err := engine()
	if err != nil {
		return nil, err
	}
	image := redisImage()
	if err := needImage(ctx, docker, image); err != nil {
		return nil, err
	}
	in, err := o.network(ctx, docker, image)
	if err != nil {
		return nil, err
	}
	return startContained(ctx, docker, image, in, o)
}

// network is the one that the server is to run in: another server's, or a new
// one.
func (o RedisOptions) network(ctx context.Context, docker *testcontainers.DockerClient, image string) (*pod, error) {
	near := o.near
	if near == nil {
		near = o.ReplicaOf
	}
	if near != nil {
		c, ok := near.host.(*redisContainer)
		if !ok {
			return nil, fmt.Errorf("the redis at %s is in no container, and one in a container cannot reach it", near.addr)
		}
		return c.pod, nil
	}
	for range 5 {
		p, err := newPod(ctx, docker, image, []string{"redis-server", "--bind", "127.0.0.1"}, max(o.room, 3))
		if err == nil || !errors.Is(err, errPortTaken) {
			return p, err
		}
	}
	return nil, fmt.Errorf("5 sets of free ports, and of each %w", errPortTaken)
}

func startContained(ctx context.Context, docker *testcontainers.DockerClient, image string, in *pod, o RedisOptions) (_ *Redis, err error) {
	port, err := in.join()
	if err != nil {
		return nil, err
	}
	r := &Redis{o: o, addr: loopback(port), port: port}
	c := &redisContainer{pod: in}
	defer func() {
		switch {
		case err == nil:
		case r.host != nil:
			err = errors.Join(err, r.Stop())
		default:
			err = errors.Join(err, in.leave(), os.RemoveAll(c.certsDir))
		}
	}()

	var files []testcontainers.ContainerFile
	var inside *Certs
	if o.TLS {
		if c.certsDir, err = os.MkdirTemp("", "interlock-certs-"); err != nil {
			return nil, err
		}
		if r.certs, err = makeCerts(c.certsDir); err != nil {
			return nil, err
		}
		inside = &Certs{CA: path.Join(certsInContainer, "ca.crt"), serverCert: path.Join(certsInContainer, "server.crt"), serverKey: path.Join(certsInContainer, "server.key")}
		for from, to := range map[string]string{r.certs.CA: inside.CA, r.certs.serverCert: inside.serverCert, r.certs.serverKey: inside.serverKey} {
			files = append(files, testcontainers.ContainerFile{HostFilePath: from, ContainerFilePath: to, FileMode: 0o644})
		}
	}
	if o.sentinel != "" {
		files = append(files, testcontainers.ContainerFile{
			Reader: strings.NewReader(o.sentinel), ContainerFilePath: path.Join(dataInContainer, sentinelFile), FileMode: 0o644,
		})
	}
	args, err := redisArgs(o, port, "0.0.0.0", dataInContainer, inside)
	if err != nil {
		return nil, err
	}
	c.contained, err = runContained(ctx, docker, testcontainers.ContainerRequest{
		Image:      image,
		Entrypoint: []string{"redis-server"},
		Cmd:        args,
		WorkingDir: dataInContainer,
		Files:      files,
		HostConfigModifier: func(h *container.HostConfig) {
			h.NetworkMode = container.NetworkMode("container:" + in.holder.ctr.GetContainerID())
		},
	})
	if err != nil {
		return nil, err
	}
	r.host = c
	return r, r.awaitUp(ctx)
}
