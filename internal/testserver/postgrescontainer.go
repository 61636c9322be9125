package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/moby/moby/api/types/container"
	"github.com/testcontainers/testcontainers-go"
)

// postgresContainer is a Postgres in a container.
type postgresContainer struct {
	*contained
	pod      *pod
	disposed sync.Once
}

func (c *postgresContainer) dispose() (err error) {
	c.disposed.Do(func() { err = errors.Join(c.remove(), c.pod.leave()) })
	return err
}

func postgresImage() string {
	if image := os.Getenv("INTERLOCK_POSTGRES_IMAGE"); image != "" {
		return image
	}
	return "postgres:17"
}

func startPostgresContainer(ctx context.Context, o PostgresOptions) (_ *Postgres, err error) {
	if o.StandbyOf != nil {
		return nil, unavailable("a standby is given in the process way only")
	}
	docker, err := engine()
	if err != nil {
		return nil, err
	}
	image := postgresImage()
	if err := needImage(ctx, docker, image); err != nil {
		return nil, err
	}
	var in *pod
	for range 5 {
		in, err = newPod(ctx, docker, image, []string{"sleep", "infinity"}, 1)
		if err == nil || !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	port, err := in.join()
	if err != nil {
		return nil, err
	}
	p := &Postgres{o: o, addr: loopback(port), port: port, url: postgresURL(port)}
	c := &postgresContainer{pod: in}
	c.contained, err = runContained(ctx, docker, testcontainers.ContainerRequest{
		Image: image,
		Env:   map[string]string{"POSTGRES_HOST_AUTH_METHOD": "trust"},
		Cmd:   append([]string{"postgres"}, postgresArgs(port, "0.0.0.0", "", o)...),
		HostConfigModifier: func(h *container.HostConfig) {
			h.NetworkMode = container.NetworkMode("container:" + in.holder.ctr.GetContainerID())
		},
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("image %s: %w", image, err), in.leave())
	}
	p.host = c
	if err := p.awaitUp(ctx); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}
