package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/interlock-go/lock"
)

var restart = []string{needRestart}

var serverChecks = []Check{
	{
		Name: "paused-server", Cases: []string{"C06"}, needs: []string{needPause}, phase: disturbing,
		Rule: "Every call returns soon after its ctx has ended though the server hangs, and all works again when it goes on.",
		run:  pausedServer,
	},
	{
		Name: "short-pause", Cases: []string{"B03"}, needs: []string{needPause}, not: onlyClock, phase: disturbing,
		Rule: "A server that hangs for less than half a TTL takes no lock away.",
		run:  shortPause,
	},
	{
		Name: "server-restart", Cases: []string{"B14", "B15", "C08"}, needs: restart, phase: disturbing,
		Rule: "While the server is down TryAcquire is ErrUnavailable; when it is back the same clients work again; what was released before stays released.",
		run:  serverRestart,
	},
	{
		Name: "locks-survive-restart", needs: restart, not: onlySurvivingRestart, phase: disturbing,
		Rule: "Where it is promised, a lock outlives a crash and restart of its server.",
		run:  locksSurviveRestart,
	},
	{
		Name: "tokens-grow-over-restart", Cases: []string{"K01"}, needs: restart, not: onlyDurableTokens, phase: disturbing,
		Rule: "Where the Fencing level says so, tokens go on growing over a crash of the server.",
		run:  tokensGrowOverRestart,
	},
}

func pausedServer(ctx context.Context, t *T) error {
	s := t.runner.server
	paused := false
	resume := func() {
		if paused {
			paused = false
			t.must(s.Resume())
		}
	}
	a := t.open()
	err := obeysCtx(ctx, t, "the server hangs", a, s.URL, func() { t.must(s.Pause()); paused = true }, resume)
	if err != nil {
		return err
	}
	a.mustBeFree(t.name(), opBound, "the server goes on")
	return nil
}

func shortPause(ctx context.Context, t *T) error {
	c, name := t.open(), t.name()
	ttl := t.ttl(3 * time.Second)
	h := c.take(name, lock.TTL(ttl))
	for range t.count(2, 10) {
		t.must(t.runner.server.Pause())
		t.note("the end of a short pause of the server")
		time.Sleep(ttl * 3 / 8) // not t.pause: the server must go on in any case
		t.must(t.runner.server.Resume())
		t.pause(ttl / 4)
		if err := h.Err(); err != nil {
			return fmt.Errorf("the lock was lost while the server hung for %v with a TTL of %v: %w", ttl*3/8, ttl, err)
		}
	}
	c.free(h)
	return nil
}

// crash kills the server, and starts it again at the end of the check if that
// has not happened before.
func (t *T) crash() (restart func()) {
	down := true
	restart = func() {
		if down {
			down = false
			t.must(t.runner.server.Restart())
		}
	}
	t.cleanup(func() error { return caught(func() error { restart(); return nil }) })
	t.must(t.runner.server.Kill())
	return restart
}

func serverRestart(ctx context.Context, t *T) error {
	a, b := t.open(), t.open()
	name, released, lost := t.name(), t.name(), t.name()
	ttl := t.ttl(2 * time.Second)
	old := a.take(released, lock.TTL(ttl))
	old.Context()
	a.free(old)
	h := a.take(lost, lock.TTL(ttl))
	restart := t.crash()
	_, err := a.try(name)
	t.wantIs("TryAcquire while the server is down", err, lock.ErrUnavailable)
	t.wantIsNot("TryAcquire while the server is down", err, lock.ErrHeld)
	waiting := t.start(func() error {
		return t.all(2, func(i int) error {
			c := []*client{a, b}[i]
			next := c.takeWithin(25*time.Second, name, lock.TTL(t.ttl(20*time.Second)))
			c.free(next)
			return nil
		})
	})
	t.pause(500 * time.Millisecond)
	restart()
	if err := t.await("two clients to get a free lock when the server was back", 15*time.Second, waiting); err != nil {
		return err
	}
	t.wantIs("the cause of a lock that was released before the crash", context.Cause(old.Context()), lock.ErrReleased)
	// Whether this one outlived the crash is the store's to say; its holder must
	// know.
	err = t.within(opBound, func(ctx context.Context) error { return h.Extend(ctx, h.TTL()) })
	t.logf("a lock held over the crash: %v", err)
	if err != nil && !errors.Is(err, lock.ErrLost) {
		return fmt.Errorf("Extend of a lock held over the crash gave %w; want nil or ErrLost", err)
	}
	if (h.Err() == nil) != (err == nil) {
		return fmt.Errorf("Extend of a lock held over the crash gave %w, then Err says %w", err, h.Err())
	}
	_ = a.release(h)
	b.mustBeFree(lost, ttl+soon, "its holder released it after the crash")
	return nil
}

func locksSurviveRestart(ctx context.Context, t *T) error {
	a, b, name := t.open(), t.open(), t.name()
	h := a.take(name, lock.TTL(t.ttl(20*time.Second)))
	restart := t.crash()
	t.pause(300 * time.Millisecond)
	restart()
	t.until("the server to answer again", 15*time.Second, func() bool {
		_, err := b.try(name)
		if err == nil {
			t.fail("another got the lock after a crash of the server, though the holder still has it (Err: %v)", h.Err())
		}
		return errors.Is(err, lock.ErrHeld)
	})
	if err := a.extend(h, h.TTL()); err != nil {
		return fmt.Errorf("Extend after a crash of the server: %w", err)
	}
	a.free(h)
	return nil
}

func tokensGrowOverRestart(ctx context.Context, t *T) error {
	a, name := t.open(), t.name()
	var last lock.Token
	for range t.count(2, 10) {
		for range 5 {
			h := a.takeWithin(20*time.Second, name, lock.WithToken())
			if now := t.token(h); now <= last {
				return fmt.Errorf("a holder got token %d after one with %d", now, last)
			} else {
				last = now
			}
			a.free(h)
		}
		t.crash()()
	}
	h := a.takeWithin(20*time.Second, name, lock.WithToken())
	if now := t.token(h); now <= last {
		return fmt.Errorf("after a crash of the server a holder got token %d, one before had %d", now, last)
	}
	a.free(h)
	return nil
}
