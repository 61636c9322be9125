package redis

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/conformance/faultproxy"
)

func proxied(t *testing.T, s *server) *faultproxy.Proxy {
	t.Helper()
	p, err := faultproxy.New(s.Addr())
	must(t, err)
	t.Cleanup(p.Close)
	return p
}

// knowScripts has the server know the scripts: the answer that is lost is then
// not that it does not.
func knowScripts(t *testing.T, b lock.Backend) {
	t.Helper()
	r, _ := request("first", time.Minute)
	g, err := b.Acquire(t.Context(), r)
	must(t, err)
	must(t, g.Lease.Release(t.Context()))
}

func calls(t *testing.T, admin *goredis.Client, command string) string {
	t.Helper()
	info, err := admin.Info(t.Context(), "commandstats").Result()
	must(t, err)
	for line := range strings.Lines(info) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_"+command+":calls="); ok {
			n, _, _ := strings.Cut(rest, ",")
			return n
		}
	}
	return "0"
}

// A late copy of a request may be carried out after its clean-up: the clean-up
// is over only when that copy would be dead too.
func TestAcquireWithoutAnswer(t *testing.T) {
	s := startServer(t)
	p, admin := proxied(t, s), s.admin()
	b := openBackend(t, "redis://"+p.Addr())
	req, _ := request("n", 700*time.Millisecond)
	knowScripts(t, b)
	p.SetMode(faultproxy.DropReplies)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	sent := time.Now()
	g, err := b.Acquire(ctx, req)
	if !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrHeld) || g.Lease == nil {
		t.Fatalf("%+v, %v", g, err)
	}
	if took := time.Since(sent); took > 400*time.Millisecond {
		t.Errorf("the deadline of 200ms was kept after %v", took)
	}
	if admin.Exists(t.Context(), "interlock:{n}").Val() != 1 {
		t.Fatal("the request did not reach the server: this proves nothing")
	}
	p.SetMode(faultproxy.Pass)
	within(t, time.Second, "a release to be answered", func() bool {
		err := g.Lease.Release(t.Context())
		return err != nil && strings.Contains(err.Error(), "late copy")
	})
	if admin.Exists(t.Context(), "interlock:{n}").Val() != 0 {
		t.Error("the release was answered, and the key is there")
	}
	// The late copy comes now.
	other := openBackend(t, s.url(""))
	_, err = other.Acquire(t.Context(), req)
	must(t, err)
	within(t, 2*time.Second, "the clean-up to end", func() bool {
		err := g.Lease.Release(t.Context())
		return err == nil || errors.Is(err, lock.ErrLost)
	})
	if took := time.Since(sent); took < 700*time.Millisecond {
		t.Errorf("the clean-up was over after %v, within the TTL", took)
	}
	if left := residue(t, admin, "*"); len(left) > 0 {
		t.Errorf("left at the server: %q", left)
	}
}

func TestReleaseOfWhatNobodyCanReach(t *testing.T) {
	s := startServer(t)
	p := proxied(t, s)
	b := openBackend(t, "redis://"+p.Addr())
	req, _ := request("n", 500*time.Millisecond)
	g, err := b.Acquire(t.Context(), req)
	must(t, err)
	p.SetMode(faultproxy.Refuse)
	p.Cut()
	began := time.Now()
	within(t, 3*time.Second, "the lease to be dead", func() bool {
		err := g.Lease.Release(t.Context())
		if err == nil || !errors.Is(err, lock.ErrUnavailable) && !errors.Is(err, lock.ErrLost) {
			t.Fatalf("%v", err)
		}
		return errors.Is(err, lock.ErrLost)
	})
	if took := time.Since(began); took < 400*time.Millisecond {
		t.Errorf("dead after %v, within the TTL", took)
	}
}

// Refused connections prove that nothing was sent: there is nothing to clean up.
func TestRefusedAcquireLeavesNothing(t *testing.T) {
	s := startServer(t)
	b := openBackend(t, s.url(""))
	must(t, s.Kill())
	defer func() { must(t, s.Restart()) }()
	req, _ := request("n", time.Minute)
	within(t, 5*time.Second, "the pooled connections to be used up", func() bool {
		g, err := b.Acquire(t.Context(), req)
		if !errors.Is(err, lock.ErrUnavailable) {
			t.Fatalf("%v", err)
		}
		return g.Lease == nil
	})
}

// go-redis sends a command again when its answer was lost. For a lock's release
// the second copy would find the lock gone and report a loss.
func TestNothingIsSentTwice(t *testing.T) {
	s := startServer(t)
	ctx, admin := t.Context(), s.admin()
	p := proxied(t, s)
	client := goredis.NewClient(&goredis.Options{Addr: p.Addr(), MaxRetries: 5, ReadTimeout: 100 * time.Millisecond})
	t.Cleanup(func() { client.Close() })
	made, err := NewBackend(ctx, client, Options{})
	must(t, err)
	t.Cleanup(func() { made.Close() })
	knowScripts(t, made)
	req, _ := request("n", time.Minute)
	g, err := made.Acquire(ctx, req)
	must(t, err)
	admin.ConfigResetStat(ctx)
	p.SetMode(faultproxy.DropReplies)
	if err := g.Lease.Release(ctx); !errors.Is(err, lock.ErrUnavailable) {
		t.Errorf("Release whose answer was lost: %v", err)
	}
	time.Sleep(300 * time.Millisecond) // a retry would have come by now; its absence cannot be waited for
	if n := calls(t, admin, "evalsha"); n != "1" {
		t.Errorf("the release was sent %s times", n)
	}
}

func TestWaitersAreWokenWhenTheSubscriptionIsBack(t *testing.T) {
	s := startServer(t)
	ctx, admin := t.Context(), s.admin()
	b1, b2 := openBackend(t, s.url("")), openBackend(t, s.url(""))
	r1, _ := request("n", time.Minute)
	r2, woken := request("n", time.Minute)
	g1, err := b1.Acquire(ctx, r1)
	must(t, err)
	if _, err = b2.Acquire(ctx, r2); !errors.Is(err, lock.ErrHeld) {
		t.Fatal(err)
	}
	must(t, admin.ClientKillByFilter(ctx, "type", "pubsub").Err())
	if after := wake(t, woken); after != 0 {
		t.Errorf("told to wait %v", after)
	}
	if _, err = b2.Acquire(ctx, r2); !errors.Is(err, lock.ErrHeld) {
		t.Fatal(err)
	}
	must(t, g1.Lease.Release(ctx))
	wake(t, woken)
	_, err = b2.Acquire(ctx, r2)
	must(t, err)
}

// countingClient is a client of no type that we know.
type countingClient struct {
	*goredis.Client
	subscribed atomic.Int64
}

func (c *countingClient) Subscribe(ctx context.Context, channels ...string) *goredis.PubSub {
	c.subscribed.Add(1)
	return c.Client.Subscribe(ctx, channels...)
}

// A client that was closed under the Backend is not asked in a loop.
func TestClientClosedTooSoon(t *testing.T) {
	s := startServer(t)
	ctx := t.Context()
	client := &countingClient{Client: s.admin()}
	b, err := NewBackend(ctx, client, Options{})
	must(t, err)
	hold := openBackend(t, s.url(""))
	r1, _ := request("n", time.Minute)
	r2, _ := request("n", time.Minute)
	_, err = hold.Acquire(ctx, r1)
	must(t, err)
	if _, err = b.Acquire(ctx, r2); !errors.Is(err, lock.ErrHeld) {
		t.Fatal(err)
	}
	must(t, client.Close())
	within(t, 5*time.Second, "the subscription to be missed", func() bool { return client.subscribed.Load() > 1 })
	time.Sleep(300 * time.Millisecond) // what is looked for would come at once
	if n := client.subscribed.Load(); n > 10 {
		t.Errorf("subscribed %d times in 300ms", n)
	}
	g, err := b.Acquire(ctx, r2)
	if err == nil || errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrHeld) {
		t.Errorf("%+v, %v: a closed client will not come back", g, err)
	}
	must(t, b.Close())
}

// A subscription that is cut off in silence is found by its own tests.
func TestSilentSubscription(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	ctx, p := t.Context(), proxied(t, s)
	b1, b2 := openBackend(t, s.url("")), openBackend(t, "redis://"+p.Addr())
	r1, _ := request("n", time.Minute)
	r2, woken := request("n", time.Minute)
	_, err := b1.Acquire(ctx, r1)
	must(t, err)
	if _, err = b2.Acquire(ctx, r2); !errors.Is(err, lock.ErrHeld) {
		t.Fatal(err)
	}
	p.SetMode(faultproxy.Blackhole)
	within(t, 5*pingEvery, "the subscription to be given up", func() bool {
		b2.sub.mu.Lock()
		defer b2.sub.mu.Unlock()
		return !b2.sub.up
	})
	p.SetMode(faultproxy.Pass)
	select {
	case <-woken:
	case <-time.After(10 * time.Second):
		t.Fatal("waited 10s for the waiter to be woken by a new subscription")
	}
}

// A waiter that was stopped, not killed, costs the others one offer.
func TestStoppedWaiterCostsOneOffer(t *testing.T) {
	s := startServer(t)
	ctx := t.Context()
	b1, stopped, b3 := openBackend(t, s.url("")), openBackend(t, s.url("")), openBackend(t, s.url(""))
	r1, _ := request("n", time.Minute)
	r2, woken2 := request("n", time.Minute)
	r3, woken3 := request("n", time.Minute)
	g1, err := b1.Acquire(ctx, r1)
	must(t, err)
	for b, r := range map[*backend]lock.Request{stopped: r2} {
		_, err := b.Acquire(ctx, r)
		if !errors.Is(err, lock.ErrHeld) {
			t.Fatal(err)
		}
	}
	if _, err := b3.Acquire(ctx, r3); !errors.Is(err, lock.ErrHeld) {
		t.Fatal(err)
	}
	released := time.Now()
	must(t, g1.Lease.Release(ctx))
	wake(t, woken2) // and does nothing
	after := wake(t, woken3)
	timer := time.NewTimer(after)
	<-timer.C
	g, err := b3.Acquire(ctx, r3)
	if err != nil || time.Since(released) > offerTTL+200*time.Millisecond {
		t.Errorf("%v after %v", err, time.Since(released))
	}
	// It wakes up: the offer is gone.
	if _, err := stopped.Acquire(ctx, r2); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("%v", err)
	}
	must(t, g.Lease.Release(ctx))
	wake(t, woken2)
	_, err = stopped.Acquire(ctx, r2)
	must(t, err)
}

func TestCloseLeavesNoGoroutine(t *testing.T) {
	s := startServer(t)
	ctx := t.Context()
	hold := openBackend(t, s.url(""))
	r1, _ := request("n", time.Minute)
	_, err := hold.Acquire(ctx, r1)
	must(t, err)
	before := runtime.NumGoroutine()
	for range 5 {
		made, err := lock.OpenBackend(ctx, s.url(""))
		must(t, err)
		r, _ := request("n", time.Minute)
		if _, err := made.Acquire(ctx, r); !errors.Is(err, lock.ErrHeld) {
			t.Fatal(err)
		}
		must(t, made.Close())
	}
	within(t, 5*time.Second, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}

// A token is greater than all before it, also after a server that kept nothing
// came back.
func TestTokens(t *testing.T) {
	s := startServer(t)
	ctx, b := t.Context(), openBackend(t, s.url("?fencing=counter"))
	if g := b.Guarantees(); g.Fencing != lock.FencingVolatile {
		t.Errorf("%+v", g)
	}
	var last lock.Token
	take := func(name string) lock.Grant {
		t.Helper()
		var g lock.Grant
		within(t, 5*time.Second, "the server to grant", func() (ok bool) {
			r, _ := request(name, time.Minute)
			var err error
			g, err = b.Acquire(ctx, r)
			return err == nil
		})
		if g.Token <= last {
			t.Errorf("token %d after %d", g.Token, last)
		}
		last = g.Token
		return g
	}
	for range 20 {
		g := take("n")
		must(t, g.Lease.Renew(ctx, time.Minute))
		must(t, g.Lease.Release(ctx))
	}
	take("stolen")
	s.admin().Del(ctx, "interlock:{stolen}")
	take("stolen")
	must(t, s.Kill())
	must(t, s.Restart())
	if n := len(residue(t, s.admin(), "*")); n != 0 {
		t.Fatalf("the server kept %d keys: this proves nothing", n)
	}
	take("n")
}
