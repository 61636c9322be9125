package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock"
)

var waitChecks = []Check{
	{
		Name: "held-says-who", Cases: []string{"C08"},
		Rule: "ErrHeld comes as a *HeldError with the lock's name and, where a clock ends it, the time left; a lock that is held is not ErrUnavailable.",
		run:  heldSaysWho,
	},
	{
		Name: "owner-is-shown", needs: []string{needOwner},
		Rule: "A HeldError shows the holder's label, exactly.",
		run:  ownerIsShown,
	},
	{
		Name: "ctx-ends-wait", Cases: []string{"C01"},
		Rule: "A wait ends when its ctx does, with ctx's error and ErrHeld; with a ctx that has ended nothing is taken.",
		run:  ctxEndsWait,
	},
	{
		Name: "given-up-wait", Cases: []string{"C01"},
		Rule: "A wait that gave up leaves nothing that blocks or delays others.",
		run:  givenUpWait,
	},
	{
		Name: "cancel-races-grant", Cases: []string{"C02"},
		Rule: "When Acquire returns an error at the moment of its grant, the lock is not left held.",
		run:  cancelRacesGrant,
	},
	{
		Name: "release-wakes", Cases: []string{"C09"},
		Rule: "A released lock reaches who waits for it within a second, whatever the TTL.",
		run:  releaseWakes,
	},
	{
		Name: "no-lost-wakeup", Cases: []string{"C09"},
		Rule: "Under steady load from several clients no waiter sleeps while the lock is free.",
		run:  noLostWakeup,
	},
	{
		Name: "expiry-wakes", not: onlyClock,
		Rule: "A lock that ran out reaches who waits for it soon, though nobody released it.",
		run:  expiryWakes,
	},
}

func heldSaysWho(ctx context.Context, t *T) error {
	a, b, name := t.open(), t.open(), t.name()
	ttl := t.ttl(5 * time.Second)
	h := a.take(name, lock.TTL(ttl))
	_, tryErr := b.try(name)
	waitErr := t.within(300*time.Millisecond, func(ctx context.Context) error {
		_, err := b.acquire(ctx, name)
		return err
	})
	for op, err := range map[string]error{"TryAcquire": tryErr, "Acquire": waitErr} {
		t.wantIs(op+" of a held lock", err, lock.ErrHeld)
		t.wantIsNot(op+" of a held lock", err, lock.ErrUnavailable, lock.ErrLost, lock.ErrInvalid)
		var held *lock.HeldError
		if !errors.As(err, &held) {
			return fmt.Errorf("%s of a held lock gave %w, which has no *HeldError", op, err)
		}
		if held.Name != name {
			return fmt.Errorf("the HeldError of %s names %q, want %q", op, held.Name, name)
		}
		if held.Left < 0 || held.Left > ttl || held.Left == 0 && onlyClock(t.promise()) == "" {
			return fmt.Errorf("the HeldError of %s says %v left, the TTL is %v", op, held.Left, ttl)
		}
	}
	a.free(h)
	return nil
}

func ownerIsShown(ctx context.Context, t *T) error {
	a, b := t.open(), t.open(lock.Owner("another's label"))
	for _, label := range []string{"web-1:4711", "a label\nwith: \"odd\" {characters} ünï\x00", string(make([]byte, lock.MaxOwnerLen))} {
		name := t.name()
		h := a.take(name, lock.Owner(label))
		_, err := b.try(name)
		var held *lock.HeldError
		if !errors.As(err, &held) || held.Owner != label {
			return fmt.Errorf("TryAcquire of a lock held by %q: %#v (%w)", label, held, err)
		}
		a.free(h)
	}
	if _, err := a.try(t.name(), lock.Owner(string(make([]byte, lock.MaxOwnerLen+1)))); !errors.Is(err, lock.ErrInvalid) {
		return fmt.Errorf("an owner label of %d bytes: %w, want ErrInvalid", lock.MaxOwnerLen+1, err)
	}
	return nil
}

func ctxEndsWait(ctx context.Context, t *T) error {
	a, b, name := t.open(), t.open(), t.name()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for range 5 {
		if h, err := b.acquire(ended, name); err == nil {
			b.free(h)
			return errors.New("Acquire with a cancelled ctx got the lock")
		} else {
			t.wantIs("Acquire with a cancelled ctx", err, context.Canceled)
		}
		_, err := b.tried(b.TryAcquire(ended, name))
		t.wantIs("TryAcquire with a cancelled ctx", err, context.Canceled)
	}
	h := a.take(name)
	for _, c := range []*client{a, b} {
		wctx, cancel := context.WithCancel(ctx)
		waiting := t.start(func() error {
			h, err := c.acquire(wctx, name)
			if err == nil {
				c.free(h)
			}
			return err
		})
		t.pause(200 * time.Millisecond)
		cancelled := time.Now()
		cancel()
		err := t.await("Acquire whose ctx was cancelled", soon, waiting)
		t.wantIs("Acquire whose ctx was cancelled", err, context.Canceled, lock.ErrHeld)
		t.wantIsNot("Acquire whose ctx was cancelled", err, context.DeadlineExceeded, lock.ErrUnavailable)
		if took := time.Since(cancelled); took > time.Second {
			return fmt.Errorf("Acquire returned %v after its ctx was cancelled", took)
		}
	}
	a.free(h)
	return nil
}

// tried is either for a call of TryAcquire that the check makes itself.
func (c *client) tried(h *lock.Handle, err error) (handle, error) {
	return c.either("TryAcquire", h, err)
}

func givenUpWait(ctx context.Context, t *T) error {
	a, b, d, name := t.open(), t.open(), t.open(), t.name()
	h := a.take(name, lock.TTL(t.ttl(time.Minute)))
	n := t.count(20, 50)
	long := lock.TTL(t.ttl(time.Minute))
	if err := t.all(n, func(i int) error {
		err := t.within(time.Duration(50+i*20)*time.Millisecond, func(ctx context.Context) error {
			c := a
			if i%2 == 0 {
				c = b
			}
			h, err := c.acquire(ctx, name, long)
			if err == nil {
				c.free(h)
				return errors.New("it got the lock")
			}
			return err
		})
		// Those that queued behind another goroutine of their client may not have
		// heard that the lock is held.
		t.wantIs("a wait that gave up", err, context.DeadlineExceeded)
		return nil
	}); err != nil {
		return err
	}
	a.free(h)
	d.mustBeFree(name, soon, "its holder released it and all waiters had given up")
	t.residue(name, soon)
	return nil
}

func cancelRacesGrant(ctx context.Context, t *T) error {
	a, b, d, name := t.open(), t.open(), t.open(), t.name()
	long := lock.TTL(t.ttl(time.Minute))
	got := 0
	for range t.count(60, 2000) {
		h := a.take(name, long)
		wctx, cancel := context.WithCancel(ctx)
		var won handle
		waiting := t.start(func() (err error) {
			won, err = b.acquire(wctx, name, long)
			return err
		})
		t.pause(time.Duration(rand.IntN(4)) * time.Millisecond)
		var racing sync.WaitGroup
		racing.Go(func() {
			time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
			cancel()
		})
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
		a.free(h)
		err := t.await("an Acquire that was cancelled", opBound, waiting)
		racing.Wait()
		cancel()
		if err != nil {
			t.wantIs("an Acquire that was cancelled", err, context.Canceled)
		} else {
			got++
			if err := won.Err(); err != nil {
				return fmt.Errorf("Acquire returned a handle that is not held: %w", err)
			}
			d.mustBeHeld(name, "Acquire returned a handle although it was cancelled at that moment")
			b.free(won)
		}
		d.mustBeFree(name, soon, "its holder released it, and a waiter was cancelled at that moment")
	}
	t.logf("the grant won %d races", got)
	return nil
}

func releaseWakes(ctx context.Context, t *T) error {
	a, b, name := t.open(), t.open(), t.name()
	long := lock.TTL(t.ttl(time.Minute))
	var worst time.Duration
	holder, other := a, b
	h := holder.take(name, long)
	for range t.count(8, 100) {
		var next handle
		waiting := t.start(func() error { next = other.takeWithin(opBound, name, long); return nil })
		t.pause(time.Duration(100+rand.IntN(100)) * time.Millisecond)
		released := time.Now()
		holder.free(h)
		if err := t.await("a waiter to get the lock that was released", opBound+time.Second, waiting); err != nil {
			return err
		}
		worst = max(worst, time.Since(released))
		h, holder, other = next, other, holder
	}
	holder.free(h)
	t.logf("longest hand-off %v", worst.Round(time.Microsecond))
	if worst > soon {
		return fmt.Errorf("a released lock reached its waiter after %v", worst)
	}
	return nil
}

func noLostWakeup(ctx context.Context, t *T) error {
	name := t.name()
	var lastFree atomic.Int64 // commonClock at the last release; 0: held
	var worst atomic.Int64
	end := time.Now().Add(time.Duration(t.count(2, 60)) * time.Second)
	clients := []*client{t.open(), t.open(), t.open()}
	var cycles atomic.Int64
	err := t.all(9, func(i int) error {
		c := clients[i%len(clients)]
		for time.Now().Before(end) {
			h := c.takeWithin(opBound, name, lock.TTL(t.ttl(30*time.Second)))
			if at := lastFree.Swap(0); at > 0 {
				gap := int64(commonClock()) - at
				for w := worst.Load(); gap > w && !worst.CompareAndSwap(w, gap); w = worst.Load() {
				}
			}
			t.pause(time.Duration(rand.IntN(2000)) * time.Microsecond)
			lastFree.Store(int64(commonClock()))
			c.free(h)
			cycles.Add(1)
			t.pause(time.Duration(rand.IntN(3000)) * time.Microsecond)
		}
		return nil
	})
	gap := time.Duration(worst.Load())
	t.logf("%d cycles, longest gap %v", cycles.Load(), gap.Round(time.Microsecond))
	if err == nil && gap > soon {
		err = fmt.Errorf("the lock was free for %v while others waited for it", gap)
	}
	return err
}

func expiryWakes(ctx context.Context, t *T) error {
	a, b, name := t.open(), t.open(), t.name()
	ttl := t.ttl(400 * time.Millisecond)
	began := time.Now()
	a.take(name, lock.TTL(ttl), lock.NoRenew())
	h := b.takeWithin(ttl+2*soon, name)
	if took := time.Since(began); took > ttl+soon {
		return fmt.Errorf("a lock of TTL %v reached its waiter after %v", ttl, took)
	}
	b.free(h)
	return nil
}
