package benchmarks

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// The bare contestants do the least that the task needs with the plain client.
var (
	// bare is one SET NX PX and one script call. It cannot wait.
	bare = contestant{name: "bare: SET NX PX and a script", open: func(_ context.Context, addr string, o options) (client, error) {
		return &bareClient{c: newGoRedis(addr, o), o: o}, nil
	}}
	// baton is a list with one element, which BLPOP takes and LPUSH gives back. It
	// hands over as fast as Redis can, but is gone for ever with a holder that
	// dies: a bound, not a lock.
	baton = contestant{name: "bare: a baton, no lock", open: func(_ context.Context, addr string, o options) (client, error) {
		return &batonClient{c: newGoRedis(addr, o)}, nil
	}}
	// bareBatched renews all that it holds in one pipeline.
	bareBatched = contestant{name: "bare: one pipeline", open: func(_ context.Context, addr string, o options) (client, error) {
		return newBatchedClient(newGoRedis(addr, o), o.ttl), nil
	}}
)

var (
	compareAndDelete = goredis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
	compareAndExpire = goredis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0`)
)

type bareClient struct {
	c    *goredis.Client
	o    options
	last atomic.Int64
}

type bareHold struct {
	b        *bareClient
	name, id string
}

func (b *bareClient) acquire(ctx context.Context, name string) (hold, error) {
	id := strconv.FormatInt(b.last.Add(1), 10)
	ok, err := b.c.SetNX(ctx, name, id, b.o.ttl).Result() //nolint:staticcheck // go-redis prefers another name for it
	if err == nil && !ok {
		err = fmt.Errorf("%s is held", name)
	}
	return &bareHold{b, name, id}, err
}

func (h *bareHold) Release(ctx context.Context) error {
	return compareAndDelete.Run(ctx, h.b.c, []string{h.name}, h.id).Err()
}

func (b *bareClient) close() error { return b.c.Close() }

type batonClient struct{ c *goredis.Client }

type batonHold struct {
	c    *goredis.Client
	name string
}

// prepare makes the baton of a name.
func (c *batonClient) prepare(ctx context.Context, name string) error {
	return c.c.LPush(ctx, name, "baton").Err()
}

func (c *batonClient) acquire(ctx context.Context, name string) (hold, error) {
	return &batonHold{c.c, name}, c.c.BLPop(ctx, 0, name).Err()
}

func (h *batonHold) Release(ctx context.Context) error {
	return h.c.LPush(ctx, h.name, "baton").Err()
}

func (c *batonClient) close() error { return c.c.Close() }

type batchedClient struct {
	bareClient

	mu    sync.Mutex
	held  []*bareHold
	ended chan struct{}
	over  sync.WaitGroup
}

func newBatchedClient(c *goredis.Client, ttl time.Duration) *batchedClient {
	b := &batchedClient{bareClient: bareClient{c: c, o: options{ttl: ttl}}, ended: make(chan struct{})}
	b.over.Go(func() {
		tick := time.NewTicker(ttl / 3)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				b.renew()
			case <-b.ended:
				return
			}
		}
	})
	return b
}

func (b *batchedClient) acquire(ctx context.Context, name string) (hold, error) {
	h, err := b.bareClient.acquire(ctx, name)
	if err == nil {
		b.mu.Lock()
		b.held = append(b.held, h.(*bareHold)) //nolint:forcetypeassert // bareClient's
		b.mu.Unlock()
	}
	return h, err
}

func (b *batchedClient) renew() {
	ctx := context.Background()
	p := b.c.Pipeline()
	b.mu.Lock()
	for _, h := range b.held {
		compareAndExpire.Eval(ctx, p, []string{h.name}, h.id, b.o.ttl.Milliseconds())
	}
	b.mu.Unlock()
	p.Exec(ctx) //nolint:errcheck // how many were sent is what counts here
}

func (b *batchedClient) close() error {
	close(b.ended)
	b.over.Wait()
	return b.c.Close()
}
