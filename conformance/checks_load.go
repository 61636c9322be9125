package conformance

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/interlock-go/lock"
)

var loadChecks = []Check{
	{
		Name: "nothing-leaks", Cases: []string{"C18"}, phase: alone,
		Rule: "Goroutines and open files do not grow with the number of past operations, and none is left after Close.",
		run:  nothingLeaks,
	},
	{
		Name: "many-held-locks", Cases: []string{"M06"}, phase: alone,
		Rule: "Many locks held at once are all renewed, without a goroutine for each.",
		run:  manyHeldLocks,
	},
	{
		Name: "try-under-waiters", Cases: []string{"C07"}, phase: alone,
		Rule: "TryAcquire answers at once, also while many goroutines wait for the same name and others.",
		run:  tryUnderWaiters,
	},
	{
		Name: "waiting-is-idle", Cases: []string{"C13"}, phase: alone,
		Rule: "Waiting costs next to nothing: at most 20 requests a second for each client, and little processor time.",
		run:  waitingIsIdle,
	},
}

// settles waits until there are at most so many goroutines.
func (t *T) settles(what string, most int) {
	t.note("%s", what)
	for deadline := time.Now().Add(5 * time.Second); ; t.pause(20 * time.Millisecond) {
		n := runtime.NumGoroutine()
		if n <= most {
			return
		}
		if time.Now().After(deadline) {
			t.fail("%s: %d goroutines, expected were at most %d\n%s", what, n, most, goroutines())
		}
	}
}

// openFiles is how many files and connections this process has open, where that
// can be told.
func openFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}

// filesSettle waits until at most so many files are open.
func (t *T) filesSettle(when string, most int) {
	for deadline := time.Now().Add(5 * time.Second); ; t.pause(20 * time.Millisecond) {
		n := openFiles()
		if n <= most {
			return
		}
		if time.Now().After(deadline) {
			t.fail("%d files and connections are open %s, expected were at most %d", n, when, most)
		}
	}
}

func nothingLeaks(ctx context.Context, t *T) error {
	before, filesBefore := runtime.NumGoroutine(), openFiles()
	a, holder := t.open(), t.open()
	name, held := t.name(), t.name()
	long := lock.TTL(t.ttl(20 * time.Second))
	h := holder.take(held, long)
	cycle := func(n int) error {
		return t.all(4, func(part int) error {
			for i := range n / 4 {
				switch i % 4 {
				case 0, 1:
					h := a.takeWithin(20*time.Second, fmt.Sprint(name, part), long)
					h.Context()
					a.free(h)
				case 2:
					err := t.within(5*time.Millisecond, func(ctx context.Context) error { _, err := a.acquire(ctx, held, long); return err })
					t.wantIs("a wait that gave up", err, context.DeadlineExceeded)
				case 3:
					_, err := a.try(held)
					t.wantIs("TryAcquire of a held lock", err, lock.ErrHeld)
				}
			}
			return nil
		})
	}
	if err := cycle(100); err != nil { // pools fill
		return err
	}
	t.pause(300 * time.Millisecond)
	steady, filesSteady := runtime.NumGoroutine(), openFiles()
	if err := cycle(t.count(400, 20000)); err != nil {
		return err
	}
	t.settles("goroutines after many cycles", steady+10)
	// A pool of connections may grow to its bound; what leaks has no bound, and
	// there were more than ten times as many cycles.
	t.filesSettle("after many cycles", filesSteady+30)
	holder.free(h)
	t.residue(held, soon)
	a.Close()
	holder.Close()
	t.settles("goroutines after Close", before+2)
	t.filesSettle("after Close", filesBefore+2)
	return nil
}

func manyHeldLocks(ctx context.Context, t *T) error {
	c := t.open()
	n := t.count(200, 1000)
	ttl := t.ttl(3 * time.Second)
	before := runtime.NumGoroutine()
	prefix := t.name()
	held := make([][]handle, 8)
	if err := t.all(len(held), func(part int) error {
		for i := part; i < n; i += len(held) {
			held[part] = append(held[part], c.take(fmt.Sprintf("%s/%d", prefix, i), lock.TTL(ttl)))
		}
		return nil
	}); err != nil {
		return err
	}
	var more []int
	for end := time.Now().Add(ttl + ttl/2); time.Now().Before(end); t.pause(20 * time.Millisecond) {
		more = append(more, runtime.NumGoroutine()-before)
	}
	slices.Sort(more)
	most := more[len(more)*3/4] // a round of renewals may have more, for a moment
	lost := 0
	var first error
	for _, h := range slices.Concat(held...) {
		if err := h.Err(); err != nil {
			lost++
			first = err
		}
	}
	if lost > 0 {
		return fmt.Errorf("%d of %d held locks were lost, one of them: %w", lost, n, first)
	}
	t.logf("%d held locks, at most %d goroutines more", n, most)
	if most > n/2 {
		return fmt.Errorf("%d held locks have %d goroutines", n, most)
	}
	return t.all(len(held), func(part int) error {
		for _, h := range held[part] {
			c.free(h)
		}
		return nil
	})
}

func tryUnderWaiters(ctx context.Context, t *T) error {
	holder, c, name := t.open(), t.open(), t.name()
	long := lock.TTL(t.ttl(30 * time.Second))
	h := holder.take(name, long)
	wctx, cancel := context.WithCancel(ctx)
	defer cancel()
	waiting := t.start(func() error {
		return t.all(t.count(200, 500), func(i int) error {
			return c.waitInVain(wctx, name)
		})
	})
	t.pause(200 * time.Millisecond)
	other := t.name()
	var times []time.Duration
	for range 50 {
		began := time.Now()
		_, err := c.try(name)
		times = append(times, time.Since(began))
		t.wantIs("TryAcquire of a held lock with many waiters", err, lock.ErrHeld)
		began = time.Now()
		free, err := c.try(other)
		times = append(times, time.Since(began))
		if err != nil {
			return fmt.Errorf("TryAcquire of a free lock while many wait for another: %w", err)
		}
		c.free(free)
	}
	slices.Sort(times)
	median, worst := times[len(times)/2], times[len(times)-1]
	t.logf("median %v, longest %v", median.Round(time.Microsecond), worst.Round(time.Microsecond))
	if median > 100*time.Millisecond || worst > 2*time.Second {
		return fmt.Errorf("TryAcquire with many waiters took %v at the median and %v at most", median, worst)
	}
	cancel()
	holder.free(h)
	return t.await("all waits to end when they were cancelled", 2*soon, waiting)
}

func waitingIsIdle(ctx context.Context, t *T) error {
	holder, name := t.open(), t.name()
	long := lock.TTL(t.ttl(time.Minute))
	h := holder.take(name, long)
	const clients, goroutines = 4, 25
	a, p := t.openMaybeVia()
	waiters := []*client{a}
	for len(waiters) < clients {
		if p == nil {
			waiters = append(waiters, t.open())
		} else {
			waiters = append(waiters, t.openVia(p))
		}
	}
	wctx, cancel := context.WithCancel(ctx)
	defer cancel()
	waiting := t.start(func() error {
		return t.all(clients*goroutines, func(i int) error {
			return waiters[i%clients].waitInVain(wctx, name)
		})
	})
	t.pause(500 * time.Millisecond)
	var requests int64
	if p != nil {
		requests = p.Requests()
	}
	cpu, known := cpuTime()
	span := time.Duration(t.count(2, 30)) * time.Second
	t.pause(span)
	if p != nil {
		rate := float64(p.Requests()-requests) / span.Seconds() / clients
		t.logf("%.1f requests a second for each client", rate)
		if rate > 20 {
			return fmt.Errorf("%d waiters in a client make %.0f requests a second", goroutines, rate)
		}
	}
	if now, _ := cpuTime(); known {
		share := float64(now-cpu) / float64(span)
		t.logf("%.1f %% of a processor for %d waiters", 100*share, clients*goroutines)
		if share > 0.5 {
			return fmt.Errorf("%d waiters take %.0f %% of a processor", clients*goroutines, 100*share)
		}
	}
	cancel()
	holder.free(h)
	return t.await("all waits to end when they were cancelled", 2*soon, waiting)
}

// waitInVain waits for a held lock until ctx is cancelled.
func (c *client) waitInVain(ctx context.Context, name string) error {
	h, err := c.acquire(ctx, name, lock.TTL(c.t.ttl(time.Minute)))
	if err == nil { // it was freed at that moment
		c.free(h)
		return nil
	}
	c.t.wantIs("a wait that was cancelled", err, context.Canceled)
	return nil
}
