package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/conformance/faultproxy"
)

var network = []string{needNetwork}

var networkChecks = []Check{
	{
		Name: "cut-off-holder-stops-first", Cases: []string{"B02"}, needs: network, not: onlyClock,
		Rule: "A holder that is cut off in silence knows of its loss before anyone else gets the lock, by its own clock.",
		run:  cutOffHolderStopsFirst,
	},
	{
		Name: "blip-is-survived", Cases: []string{"B03"}, needs: network, not: onlyClock,
		Rule: "An outage shorter than half a TTL takes no lock away.",
		run:  blipIsSurvived,
	},
	{
		Name: "late-grant", Cases: []string{"B11"}, needs: network, not: onlyClock,
		Rule: "A grant whose answer came after its TTL is not returned, and leaves nothing.",
		run:  lateGrant,
	},
	{
		Name: "lost-grant-is-freed", Cases: []string{"C02"}, needs: network,
		Rule: "A grant whose answer was lost, or came after ctx had ended, is freed soon, whatever the TTL.",
		run:  lostGrantIsFreed,
	},
	{
		Name: "lost-answer-of-try", Cases: []string{"C08"}, needs: network,
		Rule: "A TryAcquire whose answer was lost is ErrUnavailable or the lock; what it left is freed.",
		run:  lostAnswerOfTry,
	},
	{
		Name: "release-without-store", Cases: []string{"A03"}, needs: network,
		Rule: "A Release that the store did not confirm says ErrUnavailable or ctx's error, never ErrLost, and goes on until the lock is free.",
		run:  releaseWithoutStore,
	},
	{
		Name: "outage-is-not-held", Cases: []string{"C08"}, needs: network,
		Rule: "While the store is away TryAcquire is ErrUnavailable and not ErrHeld, and Acquire goes on until ctx ends or the store is back.",
		run:  outageIsNotHeld,
	},
	{
		Name: "acquire-after-partition", Cases: []string{"B15"}, needs: network, not: onlyClock,
		Rule: "A client whose lock was lost by an outage acquires it again as soon as the store is back.",
		run:  acquireAfterPartition,
	},
	{
		Name: "given-up-wait-while-cut", Cases: []string{"C01"}, needs: network,
		Rule: "A wait that gave up while its connection broke leaves nothing that blocks others for longer than a TTL.",
		run:  givenUpWaitWhileCut,
	},
	{
		Name: "smallest-pool", Cases: []string{"C16"}, needs: []string{needPool},
		Rule: "With the smallest pool of connections, waiters do not keep the holder from renewing and releasing.",
		run:  smallestPool,
	},
}

func cutOffHolderStopsFirst(ctx context.Context, t *T) error {
	ttl := t.ttl(800 * time.Millisecond)
	for range t.count(2, 20) {
		p, name := t.proxy(), t.name()
		a, b := t.openVia(p), t.open()
		h := a.take(name, lock.TTL(ttl))
		var granted time.Duration
		waiting := t.start(func() error {
			next := b.takeWithin(3*ttl+soon+opBound, name, lock.TTL(t.ttl(20*time.Second)))
			granted = commonClock()
			b.free(next)
			return nil
		})
		t.pause(ttl / 2)
		t.must(h.Err())
		p.SetMode(faultproxy.Blackhole)
		cut := time.Now()
		var lastOK time.Duration
		for {
			now := commonClock()
			if h.Err() != nil {
				break
			}
			lastOK = now
			if time.Since(cut) > ttl+soon {
				return fmt.Errorf("Err still says nil %v after the holder was cut off, the TTL is %v", time.Since(cut), ttl)
			}
			t.pause(time.Millisecond)
		}
		t.wantLost(t.lossOf(h, soon, "the Context of a holder that was cut off to end"), name, lock.CauseExpired, lock.CauseSessionEnded)
		if err := t.await("another client to get the lock of one that was cut off", ttl+soon+opBound, waiting); err != nil {
			return err
		}
		if granted < lastOK {
			return fmt.Errorf("Err still said nil %v after another had got the lock", lastOK-granted)
		}
	}
	return nil
}

func blipIsSurvived(ctx context.Context, t *T) error {
	p, name := t.proxy(), t.name()
	a, b := t.openVia(p), t.open()
	ttl := t.ttl(4 * time.Second)
	h := a.take(name, lock.TTL(ttl))
	token, _ := h.Token()
	for i := range t.count(3, 10) {
		mode := []faultproxy.Mode{faultproxy.Refuse, faultproxy.HoldReplies, faultproxy.Blackhole}[i%3]
		p.SetMode(mode)
		if mode == faultproxy.Refuse {
			p.Cut()
		}
		t.pause(ttl * 3 / 8)
		p.SetMode(faultproxy.Pass)
		t.pause(ttl / 4)
		if err := h.Err(); err != nil {
			return fmt.Errorf("the lock was lost by an outage of %v with a TTL of %v: %w", ttl*3/8, ttl, err)
		}
		b.mustBeHeld(name, "its holder has survived an outage")
	}
	if now, _ := h.Token(); now != token {
		return fmt.Errorf("the token was %d and is %d", token, now)
	}
	t.must(a.extend(h, ttl))
	a.free(h)
	return nil
}

func lateGrant(ctx context.Context, t *T) error {
	p, name := t.proxy(), t.name()
	a, b := t.openVia(p), t.open()
	a.mustBeFree(name, opBound, "nobody has had it") // so that the client has made its connections
	ttl := t.ttl(400 * time.Millisecond)
	p.SetMode(faultproxy.HoldReplies)
	var h handle
	var granted time.Duration
	waiting := t.start(func() error {
		return t.within(ttl+5*time.Second, func(ctx context.Context) (err error) {
			h, err = a.acquire(ctx, name, lock.TTL(ttl), lock.NoRenew())
			granted = commonClock()
			return err
		})
	})
	t.pause(ttl + 100*time.Millisecond)
	next := b.take(name, lock.TTL(t.ttl(3*time.Second)), lock.NoRenew()) // the first grant has run out
	p.SetMode(faultproxy.Pass)
	t.pause(300 * time.Millisecond)
	stillOurs := commonClock()
	if err := next.Err(); err != nil {
		return fmt.Errorf("the holder of the lock while a late grant arrived: %w", err)
	}
	b.free(next)
	err := t.await("an Acquire whose grant came too late", opBound+5*time.Second, waiting)
	if err == nil {
		if granted < stillOurs {
			return fmt.Errorf("Acquire returned a lock %v before its other holder had freed it", stillOurs-granted)
		}
		_ = a.release(h) // it may have run out since
	} else {
		t.wantIs("an Acquire whose grant came too late", err, context.DeadlineExceeded)
	}
	b.mustBeFree(name, soon, "a late grant was not returned")
	t.residue(name, ttl+soon)
	return nil
}

func lostGrantIsFreed(ctx context.Context, t *T) error {
	for _, mode := range []faultproxy.Mode{faultproxy.HoldReplies, faultproxy.DropReplies} {
		p, name := t.proxy(), t.name()
		a, b := t.openVia(p), t.open()
		a.mustBeFree(name, opBound, "nobody has had it") // so that the client has made its connections
		long := lock.TTL(t.ttl(time.Minute))
		p.SetMode(mode)
		err := t.within(300*time.Millisecond, func(ctx context.Context) error {
			_, err := a.acquire(ctx, name, long)
			return err
		})
		t.wantIs("Acquire whose answers did not come", err, context.DeadlineExceeded)
		t.wantIsNot("Acquire whose answers did not come", err, lock.ErrHeld)
		p.SetMode(faultproxy.Pass)
		b.mustBeFree(name, 4*soon, "an Acquire of it whose answer was lost has returned an error, and the store is back")
		t.residue(name, 4*soon)
	}
	return nil
}

func lostAnswerOfTry(ctx context.Context, t *T) error {
	p, name := t.proxy(), t.name()
	a, b := t.openVia(p), t.open()
	a.mustBeFree(name, opBound, "nobody has had it") // so that the client has made its connections
	p.SetMode(faultproxy.DropReplies)
	trying := t.start(func() error {
		h, err := a.try(name, lock.TTL(t.ttl(time.Minute)))
		if err == nil {
			a.free(h)
		}
		return err
	})
	t.pause(200 * time.Millisecond)
	p.SetMode(faultproxy.Pass)
	if err := t.await("TryAcquire whose answer was lost", opBound, trying); err != nil {
		t.wantIs("TryAcquire whose answer was lost", err, lock.ErrUnavailable)
		t.wantIsNot("TryAcquire whose answer was lost", err, lock.ErrHeld)
	}
	b.mustBeFree(name, 4*soon, "a TryAcquire of it whose answer was lost has returned, and the store is back")
	return nil
}

func releaseWithoutStore(ctx context.Context, t *T) error {
	for _, mode := range []faultproxy.Mode{faultproxy.Blackhole, faultproxy.DropReplies, faultproxy.Refuse} {
		p, name := t.proxy(), t.name()
		a, b := t.openVia(p), t.open()
		h := a.take(name, lock.TTL(t.ttl(time.Minute)))
		p.SetMode(mode)
		if mode == faultproxy.Refuse {
			p.Cut()
		}
		err := t.within(400*time.Millisecond, func(ctx context.Context) error { return h.Release(ctx) })
		if err == nil {
			return errors.New("Release returned nil though the store could not answer")
		}
		if !errors.Is(err, lock.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("Release without the store gave %w; want ErrUnavailable or ctx's error", err)
		}
		t.wantIsNot("Release without the store", err, lock.ErrLost)
		t.wantIs("Err after a Release that was not confirmed", h.Err(), lock.ErrReleased)
		p.SetMode(faultproxy.Pass)
		if mode == faultproxy.Refuse {
			// Called again, it frees at once.
			if err := a.release(h); err != nil {
				return fmt.Errorf("Release, called again when the store was back: %w", err)
			}
		}
		b.mustBeFree(name, 4*soon, "it was released while the store was away, and the store is back")
		if err := a.release(h); err != nil {
			return fmt.Errorf("Release, called again after the lock was freed: %w", err)
		}
		t.residue(name, soon)
	}
	return nil
}

func outageIsNotHeld(ctx context.Context, t *T) error {
	p, name := t.proxy(), t.name()
	a := t.openVia(p)
	a.mustBeFree(name, opBound, "nobody has had it")
	p.SetMode(faultproxy.Refuse)
	p.Cut()
	h, err := a.try(name)
	if err == nil {
		return fmt.Errorf("TryAcquire got %q without a store", h.Name())
	}
	t.wantIs("TryAcquire without a store", err, lock.ErrUnavailable)
	t.wantIsNot("TryAcquire without a store", err, lock.ErrHeld, lock.ErrLost, lock.ErrInvalid)
	err = t.within(500*time.Millisecond, func(ctx context.Context) error {
		_, err := a.acquire(ctx, name)
		return err
	})
	t.wantIs("Acquire without a store until ctx ended", err, context.DeadlineExceeded, lock.ErrUnavailable)
	t.wantIsNot("Acquire without a store until ctx ended", err, lock.ErrHeld)
	url, err := t.runner.viaURL(t.runner.server.URL, p.Addr())
	t.must(err)
	err = t.within(3*time.Second, func(ctx context.Context) error {
		l, err := t.runner.subject.Open(ctx, url)
		if err == nil {
			// A client may connect at first use; then that says it.
			defer l.Close()
			_, err = l.TryAcquire(ctx, name)
		}
		return err
	})
	t.wantIs("opening a client without a store", err, lock.ErrUnavailable)

	waiting := t.start(func() error {
		h := a.takeWithin(20*time.Second, name)
		a.free(h)
		return nil
	})
	t.pause(300 * time.Millisecond)
	p.SetMode(faultproxy.Pass)
	return t.await("Acquire to get a free lock when the store was back", 3*soon, waiting)
}

func acquireAfterPartition(ctx context.Context, t *T) error {
	p, name := t.proxy(), t.name()
	a := t.openVia(p)
	ttl := t.ttl(500 * time.Millisecond)
	for _, mode := range []faultproxy.Mode{faultproxy.Blackhole, faultproxy.Refuse} {
		old := a.take(name, lock.TTL(ttl))
		p.SetMode(mode)
		if mode == faultproxy.Refuse {
			p.Cut()
		}
		t.lossOf(old, ttl+soon, "a holder that was cut off to lose its lock")
		p.SetMode(faultproxy.Pass)
		back := time.Now()
		if err := t.all(2, func(int) error {
			h := a.takeWithin(ttl+4*soon, name, lock.TTL(t.ttl(10*time.Second)))
			t.wantIs("Release of the lost lock", a.release(old), lock.ErrLost)
			t.must(h.Err())
			a.free(h)
			return nil
		}); err != nil {
			return err
		}
		if took := time.Since(back); took > ttl+3*soon {
			return fmt.Errorf("acquiring again took %v after the store was back, the TTL is %v", took, ttl)
		}
	}
	return nil
}

func givenUpWaitWhileCut(ctx context.Context, t *T) error {
	p, name := t.proxy(), t.name()
	a, b, d := t.open(), t.openVia(p), t.open()
	ttl := t.ttl(time.Second)
	h := a.take(name, lock.TTL(t.ttl(20*time.Second)))
	waiting := t.start(func() error {
		return t.all(10, func(i int) error {
			err := t.within(time.Duration(600+i*20)*time.Millisecond, func(ctx context.Context) error {
				_, err := b.acquire(ctx, name, lock.TTL(ttl))
				return err
			})
			t.wantIs("a wait that gave up", err, context.DeadlineExceeded)
			return nil
		})
	})
	t.pause(500 * time.Millisecond)
	p.SetMode(faultproxy.Refuse)
	for range 10 {
		p.Cut()
		t.pause(40 * time.Millisecond)
	}
	if err := t.await("ten waits to give up", opBound, waiting); err != nil {
		return err
	}
	a.free(h)
	d.mustBeFree(name, ttl+soon, "its holder released it and all waiters had given up")
	p.SetMode(faultproxy.Pass)
	t.residue(name, ttl+3*soon)
	return nil
}

func smallestPool(ctx context.Context, t *T) error {
	a := t.openURL(t.runner.subject.SmallestPool(t.runner.server.URL))
	names := []string{t.name(), t.name()}
	ttl := t.ttl(900 * time.Millisecond)
	h := a.take(names[0], lock.TTL(ttl))
	other := t.open()
	h2 := other.take(names[1], lock.TTL(ttl))
	waiting := t.start(func() error {
		return t.all(40, func(i int) error {
			h := a.takeWithin(30*time.Second, names[i%2], lock.TTL(t.ttl(20*time.Second)))
			a.free(h)
			return nil
		})
	})
	t.pause(2 * ttl)
	if err := h.Err(); err != nil {
		return fmt.Errorf("the holder, whose client has 40 waiters: %w", err)
	}
	released := time.Now()
	a.free(h)
	if took := time.Since(released); took > soon {
		return fmt.Errorf("Release took %v in a client with 40 waiters", took)
	}
	other.free(h2)
	return t.await("40 waiters to get their turns", 30*time.Second, waiting)
}
