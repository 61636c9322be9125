package conformance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/conformance/faultproxy"
)

var ttlChecks = []Check{
	{
		Name: "ttl-is-kept", Cases: []string{"E01"}, not: onlyClock,
		Rule: "A lock without renewal is free for others no sooner than its TTL and soon after it, to the millisecond that was asked for.",
		run:  ttlIsKept,
	},
	{
		Name: "bad-ttl", Cases: []string{"E02", "E08"},
		Rule: "A TTL that is zero, negative, out of bounds or not of whole milliseconds is refused before anything is sent; without one there is a default that ends.",
		run:  badTTL,
	},
	{
		Name: "shortest-ttl", Cases: []string{"E08"},
		Rule: "The shortest TTL makes a lock that works, without a storm of renewals.",
		run:  shortestTTL,
	},
}

func ttlIsKept(ctx context.Context, t *T) error {
	ttls := []time.Duration{t.promise().MinTTL}
	for _, d := range []time.Duration{100, 500, 999, 1001, 1500} {
		if d := d * time.Millisecond; d > ttls[0] {
			ttls = append(ttls, d)
		}
	}
	return t.all(len(ttls), func(i int) error {
		ttl, name := ttls[i], t.name()
		a, p := t.openMaybeVia()
		b := t.open()
		began := time.Now()
		h, err := a.acquire(ctx, name, lock.TTL(ttl), lock.NoRenew())
		if ttl != t.grain(ttl) && errors.Is(err, lock.ErrInvalid) {
			return nil // refused, not rounded
		}
		if err != nil {
			return fmt.Errorf("acquiring with TTL %v: %w", ttl, err)
		}
		if h.TTL() < ttl {
			return fmt.Errorf("the handle's TTL is %v, asked for was %v", h.TTL(), ttl)
		}
		if p != nil {
			p.SetMode(faultproxy.Blackhole) // or the holder itself would tidy up
		}
		effective := h.TTL()
		next := b.takeWithin(effective+2*soon, name)
		took := time.Since(began)
		b.free(next)
		if took < ttl {
			return fmt.Errorf("with TTL %v another got the lock after %v", ttl, took)
		}
		if took > effective+soon {
			return fmt.Errorf("with TTL %v (effective %v) another got the lock only after %v", ttl, effective, took)
		}
		return nil
	})
}

func badTTL(ctx context.Context, t *T) error {
	g := t.promise()
	if g.MinTTL <= 0 || g.MinTTL > g.MaxTTL {
		return fmt.Errorf("Guarantees say MinTTL %v, MaxTTL %v", g.MinTTL, g.MaxTTL)
	}
	c, p := t.openMaybeVia()
	name := t.name()
	free := c.take(name) // so that the client has made its connections
	if free.TTL() <= 0 || free.TTL() > g.MaxTTL {
		return fmt.Errorf("without the option TTL the TTL is %v, at most %v is allowed", free.TTL(), g.MaxTTL)
	}
	c.free(free)
	var before int64
	if p != nil {
		before = t.settled(p)
	}
	for _, d := range []time.Duration{
		0, -time.Second, 1, time.Microsecond, g.MinTTL - time.Millisecond, g.MinTTL - 1, g.MinTTL + 1, g.MinTTL + 1500*time.Microsecond,
		g.MaxTTL + time.Millisecond, math.MaxInt64, math.MinInt64,
	} {
		_, err := c.acquire(ctx, name, lock.TTL(d))
		t.wantIs(fmt.Sprintf("Acquire with TTL %v", d), err, lock.ErrInvalid)
		_, err = c.try(name, lock.TTL(d))
		t.wantIs(fmt.Sprintf("TryAcquire with TTL %v", d), err, lock.ErrInvalid)
		if l, err := t.runner.subject.Open(ctx, t.runner.server.URL, lock.TTL(d)); err == nil {
			l.Close()
			return fmt.Errorf("Open took the option TTL(%v)", d)
		} else {
			t.wantIs(fmt.Sprintf("Open with TTL %v", d), err, lock.ErrInvalid)
		}
	}
	if p != nil {
		if n := p.Requests() - before; n > 0 {
			return fmt.Errorf("%d requests were sent for TTLs that are refused", n)
		}
	}
	c.mustBeFree(name, soon, "all acquisitions of it were refused")
	return nil
}

func shortestTTL(ctx context.Context, t *T) error {
	ttl := t.promise().MinTTL
	var renewals counter
	c := t.open(lock.Observe(renewals.observe(lock.EventRenew)))
	name := t.name()
	began := time.Now()
	for time.Since(began) < max(time.Second, 3*ttl) {
		h := c.take(name, lock.TTL(ttl))
		t.pause(2 * ttl)
		if err := c.release(h); err != nil {
			// A machine that is busy for a moment can lose so short a lock; what
			// may not happen is that it is lost and nobody says so.
			t.wantLost(err, name)
			t.logf("a lock with TTL %v was lost: %v", ttl, err)
		}
	}
	if n, most := renewals.n.Load(), int64(200*time.Since(began).Seconds())+10; n > most {
		return fmt.Errorf("%d renewals in %v with TTL %v", n, time.Since(began), ttl)
	}
	if n := renewals.n.Load(); n == 0 {
		return fmt.Errorf("no renewal in %v with TTL %v", time.Since(began), ttl)
	}
	return nil
}
