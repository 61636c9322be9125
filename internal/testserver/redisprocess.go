package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// ownedChild is a server as a child process, with a folder of its own.
type ownedChild struct {
	child
	removeDir bool
	disposed  sync.Once
}

func (p *ownedChild) start(context.Context) error { return p.child.start() }

func (p *ownedChild) dispose() (err error) {
	if p.removeDir {
		p.disposed.Do(func() { err = os.RemoveAll(p.dir) })
	}
	return err
}

// errPortTaken is a server's end because somebody else has its port.
var errPortTaken = errors.New("the port was taken meanwhile")

func startRedisProcess(ctx context.Context, o RedisOptions) (*Redis, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, unavailable("redis-server is not on PATH")
	}
	var env []string
	if o.FakeClock {
		if env, err = fakeClockEnv(); err != nil {
			return nil, err
		}
	}
	for range 5 {
		r, err := startRedisOnce(ctx, path, env, o)
		if err == nil || !errors.Is(err, errPortTaken) {
			return r, err
		}
	}
	return nil, fmt.Errorf("5 free ports, and each %w", errPortTaken)
}

func startRedisOnce(ctx context.Context, path string, env []string, o RedisOptions) (_ *Redis, err error) {
	port, err := freePort(ctx, o.Cluster)
	if err != nil {
		return nil, err
	}
	dir, made := o.Dir, o.Dir == ""
	if made {
		if dir, err = os.MkdirTemp("", "interlock-redis-"); err != nil {
			return nil, err
		}
	}
	p := &ownedChild{removeDir: made, child: child{
		path:    path,
		dir:     dir,
		logFile: filepath.Join(dir, "redis.log"),
	}}
	r := &Redis{o: o, addr: loopback(port), port: port, dir: dir, host: p}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Stop())
		}
	}()
	if o.TLS {
		if r.certs, err = makeCerts(dir); err != nil {
			return nil, err
		}
	}
	if o.FakeClock {
		p.env = slices.Concat(env, []string{clockFileEnv(dir)})
		if err := setClock(dir, 0); err != nil {
			return nil, err
		}
	}
	if p.args, err = redisArgs(o, port, "127.0.0.1", dir, r.certs); err != nil {
		return nil, err
	}
	if o.sentinel != "" {
		if err := os.WriteFile(filepath.Join(dir, sentinelFile), []byte(o.sentinel), 0o600); err != nil {
			return nil, err
		}
	}
	if err := p.child.start(); err != nil {
		return nil, err
	}
	return r, r.awaitUp(ctx)
}

// redisArgs is the command line of a Redis that listens on bind:port.
func redisArgs(o RedisOptions, port int, bind, dir string, certs *Certs) ([]string, error) {
	var args []string
	if o.sentinel != "" {
		args = append(args, sentinelFile, "--sentinel")
	} else {
		args = append(args, "--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0")
	}
	// To a Redis in a container, its clients come from the engine's network, and
	// in protected mode it would take them for strangers.
	args = append(args, "--bind", bind, "--dir", dir, "--protected-mode", "no")
	if certs == nil {
		args = append(args, "--port", strconv.Itoa(port))
	} else {
		args = append(args, "--port", "0", "--tls-port", strconv.Itoa(port),
			"--tls-ca-cert-file", certs.CA, "--tls-cert-file", certs.serverCert, "--tls-key-file", certs.serverKey,
			"--tls-auth-clients", "optional", "--tls-replication", "yes", "--tls-cluster", "yes")
	}
	if o.Cluster {
		args = append(args, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
			"--cluster-node-timeout", "2000", "--cluster-announce-ip", "127.0.0.1")
	}
	if m := o.ReplicaOf; m != nil {
		if (m.certs != nil) != o.TLS {
			return nil, errors.New("a replica and its master must both have TLS, or neither")
		}
		args = append(args, "--replicaof", m.Host(), strconv.Itoa(m.Port()), "--replica-announce-ip", "127.0.0.1")
	}
	return append(args, o.Args...), nil
}

// portTaken tells from a Redis's last words whether another has its port.
func portTaken(words string) bool {
	return strings.Contains(words, "Address already in use") || strings.Contains(words, "Failed listening on port")
}
