package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/interlock-go/lock"
)

var children = []string{needChildren}

var processChecks = []Check{
	{
		Name: "processes-exclude", needs: children,
		Rule: "Processes exclude each other under load, and no update under the lock is lost.",
		run:  processesExclude,
	},
	{
		Name: "stopped-holder", Cases: []string{"B12"}, needs: children, not: onlyNotProcess,
		Rule: "A holder that was stopped for longer than its TTL knows of its loss at its first look, and all that it does with the lock is ErrLost.",
		run:  stoppedHolder,
	},
	{
		Name: "stopped-holder-keeps", Cases: []string{"B12"}, needs: children, not: onlyProcess,
		Rule: "Where only the end of its process ends a lock, a stopped holder keeps it, and still has it when it goes on.",
		run:  stoppedHolderKeeps,
	},
	{
		Name: "crash-frees", Cases: []string{"M02", "K01"}, needs: children,
		Rule: "The lock of a process that was killed is free after its TTL at the latest, at once where the process ends it, and tokens go on growing.",
		run:  crashFrees,
	},
	{
		Name: "crash-in-the-midst", Cases: []string{"M02"}, needs: children,
		Rule: "A process that is killed while it acquires or releases blocks nobody for longer than a TTL.",
		run:  crashInTheMidst,
	},
}

func processesExclude(ctx context.Context, t *T) error {
	name, g := t.name(), t.guardDir()
	c := t.open()
	// A time to live that no stall of the machine reaches.
	o := order{Op: "cycle", Name: name, TTL: t.ttl(30 * time.Second), Dir: g.dir}
	var others []*child
	for range 3 {
		others = append(others, t.child())
	}
	for _, other := range others {
		if _, err := other.do(o); err != nil {
			return err
		}
	}
	cycles := 0
	for end := time.Now().Add(time.Duration(t.count(2, 30)) * time.Second); time.Now().Before(end); {
		h := c.takeWithin(20*time.Second, name, lock.TTL(o.TTL))
		if err := g.enter(); err != nil {
			return err
		}
		t.pause(time.Duration(rand.IntN(1000)) * time.Microsecond)
		if err := g.leave(); err != nil {
			return fmt.Errorf("another process took away what this one had put there under the lock: %w", err)
		}
		cycles++
		c.free(h)
	}
	var errs []error
	for _, other := range others {
		r, err := other.do(order{Op: "stop cycling", Within: opBound})
		errs = append(errs, err)
		if r.Cycles == 0 && err == nil {
			errs = append(errs, errors.New("a process never got the lock"))
		}
		cycles += r.Cycles
	}
	if err := few(errs); err != nil {
		return err
	}
	n, err := g.visits()
	if err != nil {
		return err
	}
	t.logf("%d cycles in 4 processes", cycles)
	if n != cycles {
		return fmt.Errorf("%d of %d updates under the lock were lost", cycles-n, cycles)
	}
	return nil
}

func stoppedHolder(ctx context.Context, t *T) error {
	c := t.open()
	ttl := t.ttl(700 * time.Millisecond)
	for range t.count(2, 20) {
		name := t.name()
		holder := t.child()
		old := holder.take("h", name, ttl, false)
		holder.watch("h")
		t.pause(ttl / 2)
		holder.stop()
		h := c.takeWithin(2*ttl+soon+opBound, name, lock.TTL(t.ttl(20*time.Second)))
		granted := commonClock()
		t.pause(ttl)
		holder.cont()
		continued := commonClock()
		r, err := holder.watched("h", opBound)
		if err == nil {
			return errors.New("a holder that was stopped for longer than its TTL has its lock still")
		}
		t.wantIs("the cause of the loss of a stopped holder", err, lock.ErrLost)
		if r.LastOK >= granted {
			return fmt.Errorf("Err said nil %v after another had got the lock", r.LastOK-granted)
		}
		if late := r.Ended - continued; late > soon {
			return fmt.Errorf("Context ended %v after the holder went on", late)
		}
		for _, op := range []string{"state", "extend", "release"} {
			_, err := holder.do(order{Op: op, As: "h", TTL: ttl})
			t.wantIs("the order "+op+" to a holder that was stopped", err, lock.ErrLost)
		}
		if token, ok := h.Token(); ok && old.Token > 0 && int64(token) <= old.Token {
			return fmt.Errorf("the stopped holder's token is %d, the next one's %d", old.Token, token)
		}
		if err := h.Err(); err != nil {
			return fmt.Errorf("the next holder lost its lock to the one that was stopped: %w", err)
		}
		c.mustBeHeld(name, "the next holder has it")
		c.free(h)
	}
	return nil
}

func stoppedHolderKeeps(ctx context.Context, t *T) error {
	c, name := t.open(), t.name()
	ttl := t.ttl(300 * time.Millisecond)
	holder := t.child()
	holder.take("h", name, ttl, false)
	holder.stop()
	for end := time.Now().Add(4 * ttl); time.Now().Before(end); t.pause(ttl / 5) {
		c.mustBeHeld(name, "its holder is stopped, and not dead")
	}
	holder.cont()
	if _, err := holder.do(order{Op: "state", As: "h"}); err != nil {
		return fmt.Errorf("Err of the holder when it goes on: %w", err)
	}
	if _, err := holder.do(order{Op: "release", As: "h"}); err != nil {
		return fmt.Errorf("Release of the holder when it goes on: %w", err)
	}
	c.mustBeFree(name, soon, "its holder has released it")
	return nil
}

func crashFrees(ctx context.Context, t *T) error {
	c, name := t.open(), t.name()
	ttl := t.ttl(time.Second)
	bound := ttl + soon
	if t.promise().Ends != lock.EndsClock {
		bound = soon
	}
	var last int64
	for range t.count(3, 50) {
		holder := t.child()
		r := holder.take("h", name, ttl, false)
		if t.promise().Fencing != lock.FencingNone && r.Token <= last {
			return fmt.Errorf("a holder got token %d after one with %d", r.Token, last)
		}
		c.mustBeHeld(name, "another process holds it")
		killed := time.Now()
		holder.kill()
		h := c.takeWithin(bound+2*soon, name)
		took := time.Since(killed)
		if took > bound {
			return fmt.Errorf("the lock of a process that was killed was free after %v, the bound is %v", took, bound)
		}
		if token, ok := h.Token(); ok && int64(token) <= r.Token {
			return fmt.Errorf("the holder that was killed had token %d, the next one %d", r.Token, token)
		}
		token, _ := h.Token()
		last = int64(token)
		c.free(h)
	}
	return nil
}

func crashInTheMidst(ctx context.Context, t *T) error {
	c, name := t.open(), t.name()
	ttl := t.ttl(time.Second)
	for range t.count(3, 50) {
		other := t.child()
		if _, err := other.do(order{Op: "cycle", Name: name, TTL: ttl}); err != nil {
			return err
		}
		t.until("a child process to begin its cycles", opBound, func() bool {
			h, err := c.try(name)
			if err == nil {
				c.free(h)
			}
			return errors.Is(err, lock.ErrHeld)
		})
		t.pause(time.Duration(rand.IntN(50_000)) * time.Microsecond)
		killed := time.Now()
		other.kill()
		h := c.takeWithin(ttl+2*soon, name)
		if took := time.Since(killed); took > ttl+soon {
			return fmt.Errorf("a process that was killed in the midst of its cycles blocked others for %v, the TTL is %v", took, ttl)
		}
		c.free(h)
		t.residue(name, soon)
	}
	return nil
}
