package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/conformance/faultproxy"
)

var releaseChecks = []Check{
	{
		Name: "release-frees", Cases: []string{"A13"},
		Rule: "When Release has returned nil, others can have the lock at once.",
		run:  releaseFrees,
	},
	{
		Name: "late-release-spares-others", Cases: []string{"A01"}, not: onlyClock,
		Rule: "The release of an acquisition that ran out never touches the next one's.",
		run:  lateReleaseSparesOthers,
	},
	{
		Name: "release-is-idempotent", Cases: []string{"A02"},
		Rule: "Release may be called any number of times and from any goroutine; all calls have one result, and a later holder is not touched.",
		run:  releaseIsIdempotent,
	},
	{
		Name: "release-with-ended-ctx", Cases: []string{"A06"},
		Rule: "Release frees the lock also when its ctx has ended already.",
		run:  releaseWithEndedCtx,
	},
	{
		Name: "release-cause", Cases: []string{"B14"},
		Rule: "After a clean release the cause is ErrReleased and stays so; no loss is told.",
		run:  releaseCause,
	},
	{
		Name: "release-after-loss", Cases: []string{"A03"},
		Rule: "Release and Extend after a loss answer ErrLost, always, with the lock's name and the backend's.",
		run:  releaseAfterLoss,
	},
	{
		Name: "nothing-stays", Cases: []string{"A13", "C01"}, needs: []string{needResidue},
		Rule: "After a hold with renewals, an Extend, waiters that gave up and a release, the store is as it was before.",
		run:  nothingStays,
	},
	{
		Name: "min-hold", Rule: "MinHold keeps others out for at least its time although the lock was released.",
		run: minHold,
	},
}

func releaseFrees(ctx context.Context, t *T) error {
	a, b, name := t.open(), t.open(), t.name()
	for i := range t.count(20, 500) {
		c, other := a, b
		if i%2 == 1 {
			c, other = b, a
		}
		h := c.take(name)
		other.mustBeHeld(name, "another client holds it")
		c.free(h)
		h, err := other.try(name)
		if err != nil {
			return fmt.Errorf("TryAcquire right after another client's Release returned nil: %w", err)
		}
		other.free(h)
	}
	return nil
}

func lateReleaseSparesOthers(ctx context.Context, t *T) error {
	a, p := t.openMaybeVia()
	b, c, name := t.open(), t.open(), t.name()
	ttl := t.ttl(400 * time.Millisecond)
	late := a.take(name, lock.TTL(ttl), lock.NoRenew())
	if p != nil {
		p.SetMode(faultproxy.Blackhole) // all that the late holder sends comes after the next one's grant
	}
	next := b.take(name, lock.TTL(2*ttl))
	if p != nil {
		p.SetMode(faultproxy.Pass)
	}
	t.wantIs("Release of a lock that had run out", a.release(late), lock.ErrLost)
	for end := time.Now().Add(4 * ttl); time.Now().Before(end); t.pause(ttl / 4) {
		c.mustBeHeldBy(next, "its holder goes on, and only an earlier one has released")
	}
	b.free(next)
	return nil
}

func releaseIsIdempotent(ctx context.Context, t *T) error {
	a, b, name := t.open(), t.open(), t.name()
	for range t.count(3, 50) {
		h := a.take(name)
		var ready sync.WaitGroup
		ready.Add(16)
		if err := t.all(16, func(int) error {
			ready.Done()
			ready.Wait()
			if err := a.release(h); err != nil {
				return fmt.Errorf("one of 16 calls of Release at once: %w", err)
			}
			return nil
		}); err != nil {
			return err
		}
		next := b.take(name)
		if err := a.release(h); err != nil {
			return fmt.Errorf("a later call of Release: %w", err)
		}
		if h.Err() == nil {
			return errors.New("Err is nil after Release")
		}
		t.wantIs("Extend after Release", a.extend(h, h.TTL()), lock.ErrReleased)
		a.mustBeHeld(name, "the next holder has it; only the one before has released again")
		if err := next.Err(); err != nil {
			return fmt.Errorf("the next holder after a second Release of the one before: %w", err)
		}
		b.free(next)
	}
	return nil
}

func releaseWithEndedCtx(ctx context.Context, t *T) error {
	a, b, name := t.open(), t.open(), t.name()
	hctx, cancel := context.WithCancel(ctx)
	h, err := a.acquire(hctx, name, lock.TTL(t.ttl(time.Minute)))
	t.must(err)
	cancel()
	returned := t.start(func() error { return h.Release(hctx) })
	b.mustBeFree(name, soon, "it was released with a ctx that had been cancelled")
	err = t.await("Release with a cancelled ctx", 5*time.Second, returned)
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("Release with a cancelled ctx gave %w; want nil, or an error that is context.Canceled", err)
	}
	if err := a.release(h); err != nil {
		return fmt.Errorf("calling Release again, in time: %w", err)
	}
	return nil
}

func releaseCause(ctx context.Context, t *T) error {
	c, p := t.openMaybeVia()
	name := t.name()
	ttl := t.ttl(600 * time.Millisecond)
	var handles []handle
	for i := range t.count(20, 1000) {
		h := c.take(name, lock.TTL(ttl))
		if i%2 == 0 {
			h.Context() // those of the others are built only after the release
		}
		if cause := h.Err(); cause != nil {
			return fmt.Errorf("a lock that had just been acquired: %w", cause)
		}
		c.free(h)
		handles = append(handles, h)
		if p != nil && i%4 == 3 {
			p.Cut() // between holds, which is no loss of any
		}
	}
	t.pause(ttl + ttl/2) // a loss that is told late would be told by now
	for i, h := range handles {
		hctx := h.Context()
		if hctx.Err() == nil {
			return fmt.Errorf("the Context of lock %d of %d has not ended after its release", i+1, len(handles))
		}
		for what, err := range map[string]error{"the cause of Context": context.Cause(hctx), "Err": h.Err()} {
			if !errors.Is(err, lock.ErrReleased) || errors.Is(err, lock.ErrLost) {
				return fmt.Errorf("%s is %w after a clean release, want ErrReleased", what, err)
			}
		}
	}
	return nil
}

func releaseAfterLoss(ctx context.Context, t *T) error {
	c, name := t.open(), t.name()
	ttl := t.ttl(200 * time.Millisecond)
	h := c.take(name, lock.TTL(ttl), lock.NoRenew())
	cause := t.lossOf(h, ttl+soon, "a lock without renewal to run out")
	t.wantLost(cause, name, lock.CauseExpired)
	for range 2 {
		for op, err := range map[string]error{"Release": c.release(h), "Extend": c.extend(h, ttl), "Err": h.Err()} {
			t.wantIs(op+" after a loss", err, lock.ErrLost)
			t.wantIsNot(op+" after a loss", err, lock.ErrReleased, lock.ErrUnavailable)
			if op != "Err" && (!strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), t.promise().Backend)) {
				return fmt.Errorf("the error of %s after a loss, %q, does not name the lock and the backend", op, err)
			}
		}
	}
	c.mustBeFree(name, soon, "it was lost and released")
	return nil
}

func nothingStays(ctx context.Context, t *T) error {
	// Odd characters, since a helper key that is made in another way shows there.
	name := t.name() + "/app:{x}/v1 "
	a, b := t.open(), t.open()
	ttl := t.ttl(600 * time.Millisecond)
	h := a.take(name, lock.TTL(ttl))
	t.must(t.all(4, func(i int) error {
		c := a
		if i%2 == 0 {
			c = b
		}
		err := t.within(100*time.Millisecond+time.Duration(i)*50*time.Millisecond, func(ctx context.Context) error {
			_, err := c.acquire(ctx, name, lock.TTL(ttl))
			return err
		})
		t.wantIs("a wait that gave up", err, context.DeadlineExceeded)
		return nil
	}))
	t.pause(ttl / 2) // at least one renewal
	if t.promise().Extend {
		ttl = t.ttl(time.Minute) // so that nothing goes by itself
	}
	t.must(a.extend(h, ttl))
	a.free(h)
	t.residue(name, soon)
	return nil
}

func minHold(ctx context.Context, t *T) error {
	a, b, name := t.open(), t.open(), t.name()
	ttl := t.ttl(400 * time.Millisecond)
	hold := 4 * ttl // the entry has to be kept for longer than it would live
	began := time.Now()
	h := a.take(name, lock.TTL(ttl), lock.MinHold(hold))
	a.free(h)
	t.wantIs("Err after Release", h.Err(), lock.ErrReleased)
	h, err := b.acquire(ctx, name)
	t.must(err)
	// The time counts from the acquisition, which began no sooner than this.
	if took := time.Since(began); took < hold {
		return fmt.Errorf("another got the lock %v after the acquisition, MinHold is %v", took, hold)
	}
	if took := time.Since(began); took > hold+soon+time.Second {
		return fmt.Errorf("another got the lock only %v after the acquisition, MinHold is %v", took, hold)
	}
	b.free(h)
	// One that was held for longer is not kept.
	h = a.take(name, lock.TTL(t.ttl(10*time.Second)), lock.MinHold(50*time.Millisecond))
	t.pause(100 * time.Millisecond)
	a.free(h)
	b.mustBeFree(name, soon, "it was held for longer than MinHold and released")
	return nil
}
