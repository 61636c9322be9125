package testserver

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"
)

// dockerEnv is the file by which testcontainers takes itself to be inside a
// container.
const dockerEnv = "/.dockerenv"

// engine is the client of the container engine, made once for a process. Its
// error is remembered too: a test that finds no engine should not cost seconds
// each time.
var engine = sync.OnceValues(func() (*testcontainers.DockerClient, error) {
	if err := onlyLoopback(dockerEnv); err != nil {
		return nil, err
	}
	// The reaper is one more image, which need not be on this machine. Every
	// container is removed by the Stop of its server instead.
	if _, set := os.LookupEnv("TESTCONTAINERS_RYUK_DISABLED"); !set {
		if err := os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true"); err != nil {
			return nil, err
		}
	}
	tclog.SetDefault(tclog.NewNoopLogger())

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	docker, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return nil, unavailable("no container engine: %w", err)
	}
	if _, err := docker.Ping(ctx, client.PingOptions{}); err != nil {
		return nil, unavailable("the container engine does not answer: %w", err)
	}
	if at, err := url.Parse(docker.DaemonHost()); err != nil || (at.Scheme != "unix" && at.Scheme != "npipe" && !isLoopback(at.Hostname())) {
		return nil, unavailable("the container engine is at %s, and servers for tests listen on 127.0.0.1 of this host only", docker.DaemonHost())
	}
	return docker, nil
})

// onlyLoopback refuses containers where testcontainers would dial an address
// that is not ours: inside a container it takes the default gateway for the host
// of the engine, unless it is told another.
func onlyLoopback(envFile string) error {
	_, err := os.Stat(envFile)
	inside := !errors.Is(err, fs.ErrNotExist)
	override := os.Getenv("TESTCONTAINERS_HOST_OVERRIDE")
	if !inside || isLoopback(override) {
		return nil
	}
	return unavailable("no containers are started here: %s exists and TESTCONTAINERS_HOST_OVERRIDE=%q is no loopback address (set it to 127.0.0.1)", envFile, override)
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// needImage tells whether the engine has the image. It is never pulled here: a
// test should not wait for a registry, nor fail because of one.
func needImage(ctx context.Context, docker *testcontainers.DockerClient, image string) error {
	if _, err := docker.ImageInspect(ctx, image); err != nil {
		return unavailable("the container engine has no image %s (docker pull %s): %w", image, image, err)
	}
	return nil
}
