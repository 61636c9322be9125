package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/interlock-go/lock"
)

var trustChecks = []Check{
	{
		Name: "renewal-keeps", Cases: []string{"B18"},
		Rule: "A lock is renewed for as long as it is held, also after the ctx of its Acquire has ended.",
		run:  renewalKeeps,
	},
	{
		Name: "expiry-is-told-first",
		Rule: "A lock without renewal ends, by Err and by Context, before anyone else can have it.",
		run:  expiryIsToldFirst,
	},
	{
		Name: "theft-is-told", Cases: []string{"B01"}, needs: []string{needSteal},
		Rule: "A holder whose entry was taken away at the store hears of it by the next renewal, and does not take the lock back.",
		run:  theftIsTold,
	},
	{
		Name: "acquire-after-theft", Cases: []string{"B15"}, needs: []string{needSteal},
		Rule: "After a loss the same client can acquire the lock again, and the old handle does no harm.",
		run:  acquireAfterTheft,
	},
	{
		Name: "extend-after-expiry", Cases: []string{"B07"}, not: onlyClock,
		Rule: "Extend of a lock that ran out is ErrLost and creates nothing, also if nobody had it in between.",
		run:  extendAfterExpiry,
	},
	{
		Name: "extend", Rule: "Extend confirms the lock and makes its ttl the TTL from then on, or says that the backend cannot.",
		run: extend,
	},
	{
		Name: "max-hold", Rule: "With MaxHold, Context ends in time, renewal stops, and the lock is not freed under work that still runs.",
		run: maxHold,
	},
	{
		Name: "grace", Rule: "Grace keeps others out for longer than the holder trusts its lock, but not after a release.",
		run: grace,
	},
	{
		Name: "handles-are-concurrent", Cases: []string{"B17"},
		Rule: "All methods of a handle may be called at once, and none blocks after Release.",
		run:  handlesAreConcurrent,
	},
}

func renewalKeeps(ctx context.Context, t *T) error {
	a, b, name := t.open(), t.open(), t.name()
	ttl := t.ttl(700 * time.Millisecond)
	actx, cancel := context.WithTimeout(ctx, opBound)
	h, err := a.acquire(actx, name, lock.TTL(ttl))
	t.must(err)
	cancel()
	for end := time.Now().Add(3 * ttl); time.Now().Before(end); t.pause(ttl / 10) {
		b.mustBeHeldBy(h, "its holder renews it")
	}
	if err := h.Context().Err(); err != nil {
		return fmt.Errorf("Context ended while the lock was held: %w", context.Cause(h.Context()))
	}
	a.free(h)
	return nil
}

func expiryIsToldFirst(ctx context.Context, t *T) error {
	name, ttl := t.name(), t.ttl(800*time.Millisecond)
	a, b := t.open(), t.open()
	for range t.count(2, 20) {
		began := time.Now()
		h := a.take(name, lock.TTL(ttl), lock.NoRenew())
		if d := h.Deadline(); d.IsZero() || d.After(time.Now().Add(ttl)) {
			return fmt.Errorf("Deadline is %v away, want at most the TTL of %v", time.Until(d), ttl)
		}
		granted := make(chan time.Duration, 1)
		waiting := t.start(func() error {
			next := b.takeWithin(2*ttl+soon+opBound, name)
			granted <- commonClock()
			b.free(next)
			return nil
		})
		var lastOK time.Duration
		for {
			now := commonClock()
			if h.Err() != nil {
				break
			}
			lastOK = now
			t.pause(time.Millisecond)
		}
		if took := time.Since(began); took > ttl+soon {
			return fmt.Errorf("Err said nil for %v, the TTL is %v", took, ttl)
		}
		t.wantLost(t.lossOf(h, soon, "the Context of a lock without renewal to end"), name, lock.CauseExpired)
		if t.promise().Ends != lock.EndsClock {
			t.wantIs("Release after the loss", a.release(h), lock.ErrLost)
		}
		if err := t.await("another client to get the lock that ran out", ttl+soon+opBound, waiting); err != nil {
			return err
		}
		if at := <-granted; lastOK > at {
			return fmt.Errorf("Err still said nil %v after another had got the lock", lastOK-at)
		}
	}
	return nil
}

func theftIsTold(ctx context.Context, t *T) error {
	a, b, name := t.open(), t.open(), t.name()
	ttl := t.ttl(1500 * time.Millisecond)
	h := a.take(name, lock.TTL(ttl))
	t.steal(name)
	stolen := time.Now()
	next := b.take(name, lock.TTL(t.ttl(20*time.Second)))
	cause := t.lossOf(h, ttl/3+soon, "the holder to hear that its entry was taken away")
	t.logf("told after %v", time.Since(stolen).Round(time.Millisecond))
	t.wantLost(cause, name, lock.CauseTaken, lock.CauseSessionEnded)
	t.wantIs("Err after the theft", h.Err(), lock.ErrLost)
	t.wantIs("Extend after the theft", a.extend(h, ttl), lock.ErrLost)
	t.wantIs("Release after the theft", a.release(h), lock.ErrLost)
	a.mustBeHeld(name, "the next holder has it")
	if err := next.Err(); err != nil {
		return fmt.Errorf("the next holder lost its lock: %w", err)
	}
	b.free(next)
	t.residue(name, soon)
	return nil
}

func acquireAfterTheft(ctx context.Context, t *T) error {
	a, b, name := t.open(), t.open(), t.name()
	ttl := t.ttl(900 * time.Millisecond)
	old := a.take(name, lock.TTL(ttl))
	t.steal(name)
	t.lossOf(old, ttl/3+soon, "the holder to hear that its entry was taken away")
	h := a.take(name, lock.TTL(ttl)) // without a Release of the old one
	if err := h.Err(); err != nil {
		return fmt.Errorf("the lock that was acquired after the loss: %w", err)
	}
	t.wantIs("Release of the lost lock", a.release(old), lock.ErrLost)
	b.mustBeHeld(name, "it was acquired again")
	t.pause(ttl)
	if err := h.Err(); err != nil {
		return fmt.Errorf("the lock that was acquired after the loss: %w", err)
	}
	a.free(h)
	// Another goroutine of the client can have it too.
	return t.await("another goroutine to acquire the lock", opBound, t.start(func() error {
		a.mustBeFree(name, soon, "it was released")
		return nil
	}))
}

func extendAfterExpiry(ctx context.Context, t *T) error {
	a, b := t.open(), t.open()
	ttl := t.ttl(300 * time.Millisecond)
	for _, inBetween := range []bool{false, true} {
		name := t.name()
		h := a.take(name, lock.TTL(ttl), lock.NoRenew())
		t.pause(ttl + ttl/2 + 50*time.Millisecond)
		if inBetween {
			b.mustBeFree(name, soon, "it ran out")
		}
		for range 2 {
			t.wantIs("Extend of a lock that had run out", a.extend(h, ttl), lock.ErrLost)
		}
		if h.Err() == nil {
			return errors.New("Err is nil again after Extend of a lock that had run out")
		}
		next, err := b.try(name)
		if err != nil {
			return fmt.Errorf("after Extend of a lock that had run out: %w", err)
		}
		old, had := h.Token()
		if token, has := next.Token(); had && has && token <= old {
			return fmt.Errorf("the next holder's token is %d, that of the one before %d", token, old)
		}
		b.free(next)
	}
	return nil
}

func extend(ctx context.Context, t *T) error {
	a, b, name := t.open(), t.open(), t.name()
	g := t.promise()
	ttl := t.ttl(600 * time.Millisecond)
	h := a.take(name, lock.TTL(ttl), lock.NoRenew())
	if h.TTL() < ttl {
		return fmt.Errorf("TTL is %v, asked for was %v", h.TTL(), ttl)
	}
	token, _ := h.Token()
	for what, bad := range map[string]time.Duration{
		"zero": 0, "negative": -time.Second, "below the least": g.MinTTL - time.Millisecond, "above the most": g.MaxTTL + time.Millisecond,
		"not of whole milliseconds": g.MinTTL + time.Microsecond,
	} {
		t.wantIs("Extend by a TTL that is "+what, a.extend(h, bad), lock.ErrInvalid)
	}
	if !g.Extend {
		t.wantIs("Extend to another TTL", a.extend(h, h.TTL()+time.Second), lock.ErrUnsupported)
		if err := a.extend(h, h.TTL()); err != nil {
			return fmt.Errorf("Extend with the same TTL: %w", err)
		}
		a.free(h)
		return nil
	}
	longer := 3 * ttl
	began := time.Now()
	if err := a.extend(h, longer); err != nil {
		return fmt.Errorf("Extend of a held lock: %w", err)
	}
	if h.TTL() != longer {
		return fmt.Errorf("TTL is %v after Extend by %v", h.TTL(), longer)
	}
	if d := h.Deadline(); d.After(time.Now().Add(longer)) || d.Before(began.Add(longer/2)) {
		return fmt.Errorf("Deadline is %v away after Extend by %v", time.Until(d), longer)
	}
	if now, _ := h.Token(); now != token {
		return fmt.Errorf("the token was %d and is %d after Extend", token, now)
	}
	for time.Since(began) < ttl+ttl/2 {
		b.mustBeHeld(name, fmt.Sprintf("it was extended by %v, %v ago", longer, time.Since(began)))
		t.pause(ttl / 10)
	}
	if err := h.Err(); err != nil {
		return fmt.Errorf("%v after Extend by %v: %w", time.Since(began), longer, err)
	}
	// A shorter TTL is one too.
	if err := a.extend(h, ttl); err != nil {
		return fmt.Errorf("Extend by a shorter TTL: %w", err)
	}
	if d := time.Until(h.Deadline()); d > ttl {
		return fmt.Errorf("Deadline is %v away after Extend by %v", d, ttl)
	}
	if g.Ends == lock.EndsClock {
		b.mustBeFree(name, ttl+soon, "the last Extend made its TTL shorter")
		return nil
	}
	a.free(h)
	return nil
}

func maxHold(ctx context.Context, t *T) error {
	a, b, name := t.open(), t.open(), t.name()
	ttl := t.ttl(800 * time.Millisecond)
	most := ttl / 2
	began := time.Now()
	h := a.take(name, lock.TTL(ttl), lock.MaxHold(most))
	if d := h.Deadline(); d.IsZero() || d.After(time.Now().Add(most)) {
		return fmt.Errorf("Deadline is %v away, MaxHold is %v", time.Until(d), most)
	}
	cause := t.lossOf(h, most+soon, "MaxHold to end the Context")
	if took := time.Since(began); took < most {
		return fmt.Errorf("Context ended after %v, MaxHold is %v", took, most)
	}
	t.wantLost(cause, name, lock.CauseMaxHold)
	if t.promise().Ends != lock.EndsClock {
		b.mustBeHeld(name, "MaxHold is over, but no clock ends the lock and it was not released")
		t.wantIs("Release after MaxHold", a.release(h), lock.ErrLost)
		b.mustBeFree(name, soon, "it was released after MaxHold")
		return nil
	}
	next := b.takeWithin(2*ttl+soon, name)
	// The entry had a whole TTL when it was made.
	if took := time.Since(began); took < ttl {
		return fmt.Errorf("another got the lock %v after its acquisition: it was freed under work that may still run (TTL %v)", took, ttl)
	}
	t.wantIs("Release after MaxHold", a.release(h), lock.ErrLost)
	a.mustBeHeld(name, "the next holder has it")
	b.free(next)
	return nil
}

func grace(ctx context.Context, t *T) error {
	a, b, name := t.open(), t.open(), t.name()
	ttl, more := t.ttl(400*time.Millisecond), t.grain(800*time.Millisecond)
	if onlyClock(t.promise()) != "" {
		_, err := a.try(name, lock.TTL(ttl), lock.Grace(more))
		t.wantIs("Grace where no clock ends a lock", err, lock.ErrUnsupported)
		b.mustBeFree(name, soon, "Grace was refused")
		return nil
	}
	h := a.take(name, lock.TTL(ttl), lock.Grace(more))
	if h.TTL() != ttl {
		return fmt.Errorf("TTL is %v with Grace, asked for was %v", h.TTL(), ttl)
	}
	a.free(h)
	if h, err := b.try(name); err != nil {
		return fmt.Errorf("TryAcquire after a release with Grace: %w", err)
	} else {
		b.free(h)
	}
	began := time.Now()
	h = a.take(name, lock.TTL(ttl), lock.Grace(more), lock.NoRenew())
	if d := h.Deadline(); d.After(time.Now().Add(ttl)) {
		return fmt.Errorf("Deadline is %v away, with TTL %v and Grace %v", time.Until(d), ttl, more)
	}
	t.lossOf(h, ttl+soon, "a lock with Grace to run out by its TTL alone")
	next := b.takeWithin(ttl+more+soon, name)
	if took := time.Since(began); took < ttl+more {
		return fmt.Errorf("another got the lock %v after its acquisition, TTL %v and Grace %v", took, ttl, more)
	}
	b.free(next)
	return nil
}

func handlesAreConcurrent(ctx context.Context, t *T) error {
	c := t.open()
	ttl := t.ttl(5 * time.Second)
	return t.all(t.count(10, 100), func(i int) error {
		h := c.take(t.name(), lock.TTL(ttl))
		token, _ := h.Token()
		over := make(chan struct{})
		users := t.start(func() error {
			return t.all(8, func(j int) error {
				for k := j; ; k++ {
					select {
					case <-over:
						return nil
					default:
					}
					switch k % 5 {
					case 0:
						if err := c.extend(h, ttl); err != nil && !errors.Is(err, lock.ErrReleased) {
							return fmt.Errorf("Extend beside Release: %w", err)
						}
					case 1:
						if now, _ := h.Token(); now != token {
							return fmt.Errorf("the token was %d and is %d", token, now)
						}
					case 2:
						h.Context().Err()
					case 3:
						_ = h.Err()
					case 4:
						jctx, cancel := h.Join(t.ctx)
						jctx.Err()
						cancel()
						h.Deadline()
						h.TTL()
					}
				}
			})
		})
		t.pause(time.Duration(i) * 7 * time.Millisecond)
		c.free(h)
		close(over)
		return t.await("eight users of a released handle to end", 5*time.Second, users)
	})
}
