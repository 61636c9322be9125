package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/interlock-go/lock"
)

var exclusionChecks = []Check{
	{
		Name: "goroutines-exclude", Cases: []string{"A10"},
		Rule: "Two goroutines of one process, on one Locker, exclude each other.",
		run:  goroutinesExclude,
	},
	{
		Name: "clients-exclude",
		Rule: "Two clients exclude each other under load, and no acquisition is lost.",
		run:  clientsExclude,
	},
	{
		Name: "same-owner-excludes", Cases: []string{"A08"},
		Rule: "An owner's label proves nothing: two acquisitions with one label exclude each other.",
		run:  sameOwnerExcludes,
	},
	{
		Name: "others-get-their-turn",
		Rule: "A lock is not passed on within one client for ever: another client gets it in the end.",
		run:  othersGetTheirTurn,
	},
	{
		Name: "fifo", not: onlyFIFO,
		Rule: "Where the store promises it, clients get the lock in the order in which they began to wait.",
		run:  fifo,
	},
}

func goroutinesExclude(ctx context.Context, t *T) error {
	c, name := t.open(), t.name()
	h := c.take(name)
	if err := t.all(2, func(int) error {
		c.mustBeHeld(name, "another goroutine of the same client holds it")
		return nil
	}); err != nil {
		return err
	}
	err := t.within(300*time.Millisecond, func(ctx context.Context) error {
		h, err := c.acquire(ctx, name)
		if err == nil {
			c.free(h)
		}
		return err
	})
	t.wantIs("Acquire of a lock that another goroutine of the same client held until ctx ended", err, context.DeadlineExceeded, lock.ErrHeld)
	c.free(h)

	var g guard
	return t.all(t.count(8, 100), func(int) error {
		for range t.count(10, 200) {
			h := c.takeWithin(20*time.Second, name)
			if err := g.enter(); err != nil {
				return fmt.Errorf("goroutines of one client: %w", err)
			}
			g.leave()
			c.free(h)
		}
		return nil
	})
}

func clientsExclude(ctx context.Context, t *T) error {
	name := t.name()
	clients := []*client{t.open(), t.open(), t.open()}
	var g guard
	visits := 0 // under the lock and nothing else, so that the race detector sees it too
	loops := t.count(15, 300)
	err := t.all(2*len(clients), func(i int) error {
		c := clients[i%len(clients)]
		for range loops {
			h := c.takeWithin(20*time.Second, name)
			if err := g.enter(); err != nil {
				return err
			}
			n := visits
			t.pause(time.Duration(1+i%3) * time.Millisecond)
			visits = n + 1
			g.leave()
			c.free(h)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if want := 2 * len(clients) * loops; visits != want {
		return fmt.Errorf("%d of %d updates under the lock were lost", want-visits, want)
	}
	return nil
}

func sameOwnerExcludes(ctx context.Context, t *T) error {
	name := t.name()
	label := lock.Owner("the same label")
	clients := []*client{t.open(label), t.open(label)}
	h := clients[0].take(name)
	for _, c := range clients {
		c.mustBeHeld(name, "an acquisition with the same owner label holds it")
	}
	clients[0].free(h)

	var g guard
	end := time.Now().Add(time.Duration(t.count(1, 10)) * time.Second)
	return t.all(8, func(i int) error {
		c := clients[i%2]
		for time.Now().Before(end) {
			h, err := c.try(name)
			if errors.Is(err, lock.ErrHeld) {
				t.pause(time.Millisecond)
				continue
			}
			t.must(err)
			if err := g.enter(); err != nil {
				return fmt.Errorf("acquisitions with one owner label: %w", err)
			}
			t.pause(5 * time.Millisecond)
			g.leave()
			c.free(h)
		}
		return nil
	})
}

func othersGetTheirTurn(ctx context.Context, t *T) error {
	name := t.name()
	busy, other := t.open(), t.open()
	stop := make(chan struct{})
	loops := t.start(func() error {
		return t.all(4, func(int) error {
			for {
				select {
				case <-stop:
					return nil
				default:
				}
				h := busy.takeWithin(opBound, name)
				t.pause(time.Millisecond)
				busy.free(h)
			}
		})
	})
	var err error
	for range 3 {
		err = t.within(8*time.Second, func(ctx context.Context) error {
			h, err := other.acquire(ctx, name)
			if err == nil {
				other.free(h)
			}
			return err
		})
		if err != nil {
			err = fmt.Errorf("another client, with four goroutines, kept the lock to itself: %w", err)
			break
		}
	}
	close(stop)
	return errors.Join(err, t.await("four goroutines to end their loops", 25*time.Second, loops))
}

func fifo(ctx context.Context, t *T) error {
	for range t.count(2, 20) {
		name := t.name()
		holder := t.open()
		h := holder.take(name)
		const waiters = 5
		order := make(chan int, waiters)
		var ends []<-chan error
		for i := range waiters {
			c := t.open()
			ends = append(ends, t.start(func() error {
				h := c.takeWithin(20*time.Second, name)
				order <- i
				c.free(h)
				return nil
			}))
			// That a client waits is not to be seen from outside; this is far
			// longer than it needs to begin.
			t.pause(150 * time.Millisecond)
		}
		holder.free(h)
		for i := range waiters {
			if err := t.await("the waiters to get their turns", 20*time.Second, ends[i]); err != nil {
				return err
			}
		}
		for want := range waiters {
			if got := <-order; got != want {
				return fmt.Errorf("waiter %d of %d got the lock when it was waiter %d's turn", got+1, waiters, want+1)
			}
		}
	}
	return nil
}
