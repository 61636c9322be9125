package testserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"testing"
	"time"
)

// RedisOptions say what a Redis must be like. The zero value is any Redis.
type RedisOptions struct {
	// Own is set by a test that stops, pauses or floods the server, or looks at
	// all of its keys: one from the environment, which others use too, will not
	// do. Every other option implies it.
	Own bool

	// Args are added to the command line and win over those given here. Each
	// word is an argument of its own: "--appendonly", "yes".
	Args []string

	// Dir is the server's folder, kept when it stops. Without it, it is one that
	// Stop removes. In the container way the server's files stay in the container.
	Dir string

	FakeClock bool   // makes Jump work; in the process way only
	ReplicaOf *Redis // starts as a replica of that one, given in the same way
	Cluster   bool   // in cluster mode, with no slots; see StartRedisCluster
	TLS       bool   // speaks TLS only, with the certificates of Certs

	sentinel string // in sentinel mode, with this configuration
	near     *Redis // in the container way: whose network to join
	room     int    // in the container way: how many servers will join this one's
}

// plain tells whether a server that others use too will do.
func (o RedisOptions) plain() bool {
	return !o.Own && len(o.Args) == 0 && o.Dir == "" && !o.FakeClock && o.ReplicaOf == nil && !o.Cluster && !o.TLS && o.sentinel == "" && o.room == 0
}

// host is what a Redis runs in: a child process, a container, or neither.
type host interface {
	pause() error
	resume() error
	kill() error
	start(ctx context.Context) error
	stop() error    // no error if it does not run
	dispose() error // after stop: removes what is left
	ended() <-chan struct{}
	tail() string // the end of what the server printed
}

// Redis is a server. Its methods may be called from many goroutines.
type Redis struct {
	o     RedisOptions
	addr  string
	port  int
	dir   string
	certs *Certs // nil: no TLS
	host  host
}

// StartRedis starts a Redis and returns when it answers. The caller ends it with
// Stop. The error matches [ErrNone] if no way can give one here.
func StartRedis(ctx context.Context, o RedisOptions) (*Redis, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
	}
	try, err := ways()
	if err != nil {
		return nil, err
	}
	start := map[way]func(context.Context, RedisOptions) (*Redis, error){
		wayEnv:       redisFromEnv,
		wayProcess:   startRedisProcess,
		wayContainer: startRedisContainer,
	}
	var reasons []error
	for _, w := range try {
		r, err := start[w](ctx, o)
		switch {
		case err == nil:
			return r, nil
		case !errors.Is(err, ErrNone):
			return nil, fmt.Errorf("start a redis (%s): %w", w, err)
		}
		reasons = append(reasons, err)
	}
	return nil, noneOf(reasons)
}

const redisCure = "set INTERLOCK_REDIS_ADDR, install redis-server, or start Docker"

// NeedRedis is StartRedis for a test, and ends the server with it. Without a
// server the test is skipped, loudly, or fails if INTERLOCK_REQUIRE says so.
func NeedRedis(t testing.TB, o RedisOptions) *Redis {
	t.Helper()
	r, err := StartRedis(t.Context(), o)
	switch {
	case err == nil:
	case o.FakeClock:
		// Of its own name, since no container can give it: where Docker gives
		// the servers, INTERLOCK_REQUIRE=redis demands all but this.
		skipOrFail(t, "redis-clock", "install redis-server and faketime", err)
	default:
		skipOrFail(t, "redis", redisCure, err)
	}
	endWith(t, r.Stop)
	return r
}

// endWith stops a server after the test, and fails it if that does not work.
func endWith(t testing.TB, stop func() error) {
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("stop the server: %v", err)
		}
	})
}

// redisFromEnv is the server whose address stands in the environment.
func redisFromEnv(ctx context.Context, o RedisOptions) (*Redis, error) {
	addr := os.Getenv("INTERLOCK_REDIS_ADDR")
	if addr == "" {
		return nil, unavailable("INTERLOCK_REDIS_ADDR is not set")
	}
	if !o.plain() {
		return nil, unavailable("INTERLOCK_REDIS_ADDR is set, but the test needs a server of its own")
	}
	_, p, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("INTERLOCK_REDIS_ADDR=%q is not host:port: %w", addr, err)
	}
	port, err := strconv.Atoi(p)
	if err != nil {
		return nil, fmt.Errorf("INTERLOCK_REDIS_ADDR=%q: the port is not a number", addr)
	}
	r := &Redis{o: o, addr: addr, port: port, host: foreign{addr}}
	if err := r.probe(ctx); err != nil {
		return nil, fmt.Errorf("INTERLOCK_REDIS_ADDR=%s does not answer: %w", addr, err)
	}
	return r, nil
}

// Addr is host:port, for a client to dial.
func (r *Redis) Addr() string { return r.addr }

// Host is the host of Addr.
func (r *Redis) Host() string {
	h, _, _ := net.SplitHostPort(r.addr)
	return h
}

// Port is the port of Addr. It stays the same over Restart.
func (r *Redis) Port() int { return r.port }

// URL is redis://host:port, or rediss://host:port with TLS, and has neither
// password nor parameters.
func (r *Redis) URL() string {
	if r.certs != nil {
		return "rediss://" + r.addr
	}
	return "redis://" + r.addr
}

// Dir is the folder in which the server runs; empty where it has none on this
// host.
func (r *Redis) Dir() string { return r.dir }

// Certs are the files for a client of a server with TLS; nil without.
func (r *Redis) Certs() *Certs { return r.certs }

// Pause stops the server in its tracks: connections stay open, nothing answers.
func (r *Redis) Pause() error { return r.host.pause() }

// Resume undoes Pause.
func (r *Redis) Resume() error { return r.host.resume() }

// Kill ends the server as a crash does. Start it again with Restart.
func (r *Redis) Kill() error { return r.host.kill() }

// Restart starts the server again with the same port, folder and arguments,
// after a clean stop if it runs. It returns when the server answers.
func (r *Redis) Restart() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := r.host.stop(); err != nil {
		return err
	}
	if err := r.host.start(ctx); err != nil {
		return err
	}
	return r.awaitUp(ctx)
}

// Stop ends the server, for good, and removes its files unless RedisOptions.Dir
// named the folder. Stopping twice is no error; a server from the environment is
// left alone.
func (r *Redis) Stop() error {
	return errors.Join(r.host.stop(), r.host.dispose())
}

// Jump sets the server's wall clock d away from the true time, forward or back
// (0 sets it right). Expiry follows within 0.3 s. It needs FakeClock.
func (r *Redis) Jump(d time.Duration) error {
	if !r.o.FakeClock {
		return errors.New("this redis runs on the true clock: start it with RedisOptions.FakeClock")
	}
	return setClock(r.dir, d)
}

// foreign stands for a server that this process did not start.
type foreign struct{ addr string }

func (f foreign) cannot(verb string) error {
	return fmt.Errorf("cannot %s the server at %s: its address came from the environment, and others may use it (set RedisOptions.Own)", verb, f.addr)
}

func (f foreign) pause() error                { return f.cannot("pause") }
func (f foreign) resume() error               { return f.cannot("resume") }
func (f foreign) kill() error                 { return f.cannot("kill") }
func (f foreign) start(context.Context) error { return f.cannot("restart") }
func (f foreign) stop() error                 { return nil }
func (f foreign) dispose() error              { return nil }
func (f foreign) ended() <-chan struct{}      { return nil }
func (f foreign) tail() string                { return "" }
