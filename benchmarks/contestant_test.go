package benchmarks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/redis"
)

// contestant is one way to take locks on Redis, as its own documents show it.
type contestant struct {
	name string // in the tables
	open func(ctx context.Context, addr string, o options) (client, error)

	endless bool // the Contexts that it is given cannot end
}

// options are what a benchmark asks of a client.
type options struct {
	ttl   time.Duration
	renew bool                                            // held locks are renewed
	dial  func(context.Context, string) (net.Conn, error) // nil: the client's own way
}

// client is one user of the store, with connections of its own.
type client interface {
	acquire(ctx context.Context, name string) (hold, error) // waits
	close() error
}

// hold is a lock that is held.
type hold interface {
	Release(ctx context.Context) error
}

const (
	defaultTTL = 30 * time.Second
	pollEvery  = 5 * time.Millisecond // of the contestants that poll
)

var (
	interlock = contestant{name: "interlock", open: openInterlock}
	// interlockEndless is given a Context that cannot end: then the engine needs
	// no goroutine from which it could return while a request is under way.
	interlockEndless = contestant{name: "interlock, a ctx that cannot end", open: openInterlock, endless: true}
	redislockPeer    = contestant{name: "bsm/redislock, 5 ms poll", open: func(_ context.Context, addr string, o options) (client, error) {
		c := newGoRedis(addr, o)
		return redislockClient{redislock.New(c), c, o}, nil
	}}
	redsyncPeer = contestant{name: "redsync, 5 ms poll", open: func(_ context.Context, addr string, o options) (client, error) {
		c := newGoRedis(addr, o)
		return redsyncClient{redsync.New(redsyncgoredis.NewPool(c)), c, o}, nil
	}}
	rueidislockPeer = contestant{name: "rueidislock, one key", open: func(_ context.Context, addr string, o options) (client, error) {
		co := rueidis.ClientOption{InitAddress: []string{addr}}
		if o.dial != nil {
			co.DialCtxFn = func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
				return o.dial(ctx, addr)
			}
		}
		l, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption: co, KeyMajority: 1, KeyValidity: o.ttl, ExtendInterval: o.ttl / 3, NoLoopTracking: true,
			TryNextAfter: time.Second, // a busy machine is no reason to give an answer up
		})
		return rueidislockClient{l}, err
	}}
)

func newGoRedis(addr string, o options) *goredis.Client {
	opts := &goredis.Options{Addr: addr}
	if o.dial != nil {
		opts.Dialer = func(ctx context.Context, _, addr string) (net.Conn, error) { return o.dial(ctx, addr) }
	}
	return goredis.NewClient(opts)
}

type interlockClient struct {
	l lock.Locker
	c *goredis.Client
}

func openInterlock(ctx context.Context, addr string, o options) (client, error) {
	c := newGoRedis(addr, o)
	l, err := redis.New(ctx, c, redis.Options{}, lock.TTL(o.ttl)) // it renews in any case
	return interlockClient{l, c}, err
}

func (c interlockClient) acquire(ctx context.Context, name string) (hold, error) {
	return c.l.Acquire(ctx, name)
}

func (c interlockClient) close() error { return errors.Join(c.l.Close(), c.c.Close()) }

type redislockClient struct {
	l *redislock.Client
	c *goredis.Client
	o options
}

// redislockTries makes Obtain wait for as long as its ctx lasts; it does not
// wait by default.
var redislockTries = &redislock.Options{RetryStrategy: redislock.LinearBackoff(pollEvery)}

func (c redislockClient) acquire(ctx context.Context, name string) (hold, error) {
	l, err := c.l.Obtain(ctx, name, c.o.ttl, redislockTries)
	if err != nil || !c.o.renew {
		return l, err
	}
	return renewed(l, c.o.ttl, func(ctx context.Context) error { return l.Refresh(ctx, c.o.ttl, nil) }), nil
}

func (c redislockClient) close() error { return c.c.Close() }

type redsyncClient struct {
	r *redsync.Redsync
	c *goredis.Client
	o options
}

func (c redsyncClient) acquire(ctx context.Context, name string) (hold, error) {
	m := c.r.NewMutex(name, redsync.WithExpiry(c.o.ttl), redsync.WithTries(1<<20), redsync.WithRetryDelay(pollEvery))
	err := m.LockContext(ctx)
	if err != nil || !c.o.renew {
		return redsyncHold{m}, err
	}
	return renewed(redsyncHold{m}, c.o.ttl, func(ctx context.Context) error {
		_, err := m.ExtendContext(ctx)
		return err
	}), nil
}

func (c redsyncClient) close() error { return c.c.Close() }

type redsyncHold struct{ *redsync.Mutex }

func (h redsyncHold) Release(ctx context.Context) error {
	_, err := h.UnlockContext(ctx)
	return err
}

type rueidislockClient struct{ l rueidislock.Locker }

func (c rueidislockClient) acquire(ctx context.Context, name string) (hold, error) {
	_, cancel, err := c.l.WithContext(ctx, name)
	return rueidislockHold(cancel), err
}

func (c rueidislockClient) close() error {
	c.l.Close()
	return nil
}

// rueidislockHold frees the lock when it is called: it sends and waits for the
// answer.
type rueidislockHold context.CancelFunc

func (h rueidislockHold) Release(context.Context) error {
	h()
	return nil
}

// renewed gives a lock that does not renew itself a goroutine that does.
func renewed(h hold, ttl time.Duration, renew func(context.Context) error) hold {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		tick := time.NewTicker(ttl / 3)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if err := renew(ctx); err != nil && ctx.Err() == nil {
					panic(fmt.Sprintf("renew: %v", err))
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return renewedHold{h, cancel}
}

type renewedHold struct {
	hold
	stop context.CancelFunc
}

func (h renewedHold) Release(ctx context.Context) error {
	h.stop()
	return h.hold.Release(ctx)
}
