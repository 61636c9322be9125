package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/interlock-go/lock"
)

var lifeChecks = []Check{
	{
		Name: "do-releases", Cases: []string{"M01"},
		Rule: "Do releases when its function returned, panicked or called Goexit, and passes errors and panics on as they are.",
		run:  doReleases,
	},
	{
		Name: "do-tells-loss", needs: []string{needSteal},
		Rule: "The ctx of Do's function ends when the lock is lost, and Do then returns ErrLost unless the function has an error of its own.",
		run:  doTellsLoss,
	},
	{
		Name: "do-waits-for-its-function", Cases: []string{"M03"},
		Rule: "Neither the end of ctx nor Close frees the lock while Do's function still runs.",
		run:  doWaitsForItsFunction,
	},
	{
		Name: "handle-context", Rule: "A handle's Context has the values of Acquire's ctx and leads back to the handle; Join ends with either.",
		run: handleContexts,
	},
	{
		Name: "close", Rule: "Close ends Contexts with ErrClosed, frees what is held, ends waits, and then every method answers ErrClosed.",
		run: closes,
	},
	{
		Name: "zero-handle", Rule: "The methods of a nil or zero handle do not panic, and say that it is released.",
		run: zeroHandle,
	},
	{
		Name: "bad-arguments", Rule: "Nil arguments and options that contradict each other are ErrInvalid.",
		run: badArguments,
	},
	{
		Name: "observer", Rule: "An Observer is told once of the end of each wait and hold, and may use the Locker.",
		run: observer,
	},
	{
		Name: "guarantees", Rule: "Guarantees are complete, the same for each client, and do not change.",
		run: guarantees,
	},
}

// onItsOwn runs f on a goroutine that f may end, and returns what it panicked
// with.
func onItsOwn(f func()) (panicked any) {
	var running sync.WaitGroup
	running.Add(1)
	go func() {
		defer running.Done()
		defer func() { panicked = recover() }()
		f()
	}()
	running.Wait()
	return panicked
}

func doReleases(ctx context.Context, t *T) error {
	a, b, name := t.open(), t.open(), t.name()
	do, tryDo := t.runner.subject.seam.do, t.runner.subject.seam.tryDo
	own := errors.New("the function's own error")
	long := lock.TTL(t.ttl(time.Minute))
	for call, do := range map[string]func(context.Context, lock.Locker, string, func(context.Context, *lock.Handle) error, ...lock.Option) error{"Do": do, "TryDo": tryDo} {
		ran := false
		err := do(ctx, a.Locker, name, func(fctx context.Context, h *lock.Handle) error {
			ran = true
			if h.Err() != nil || fctx.Err() != nil {
				return fmt.Errorf("%s called its function with a lock that is not held: %w", call, errors.Join(h.Err(), fctx.Err()))
			}
			if got, ok := t.runner.subject.seam.fromContext(fctx); !ok || got != h {
				return fmt.Errorf("FromContext does not find the handle of %s", call)
			}
			b.mustBeHeld(name, call+"'s function runs")
			return nil
		}, long)
		if err != nil || !ran {
			return fmt.Errorf("%s: %w; its function ran: %v", call, err, ran)
		}
		b.mustBeFree(name, soon, call+" has returned")

		//nolint:errorlint // it must be the very error
		if err := do(ctx, a.Locker, name, func(context.Context, *lock.Handle) error { return own }, long); err != own {
			return fmt.Errorf("%s returned %#v, want its function's error as it is", call, err)
		}
		b.mustBeFree(name, soon, call+"'s function returned an error")

		got := onItsOwn(func() {
			_ = do(ctx, a.Locker, name, func(context.Context, *lock.Handle) error { panic(own) }, long)
		})
		if got != own {
			return fmt.Errorf("%s panicked with %#v, want its function's value as it is", call, got)
		}
		b.mustBeFree(name, soon, call+"'s function panicked")

		got = onItsOwn(func() {
			_ = do(ctx, a.Locker, name, func(context.Context, *lock.Handle) error { runtime.Goexit(); return nil }, long)
		})
		if got != nil {
			return fmt.Errorf("%s panicked with %v after its function's Goexit", call, got)
		}
		b.mustBeFree(name, soon, call+"'s function called Goexit")

		t.wantIs(call+" of a nil function", do(ctx, a.Locker, name, nil), lock.ErrInvalid)
		t.wantIs(call+" on a nil Locker", do(ctx, nil, name, func(context.Context, *lock.Handle) error { return nil }), lock.ErrInvalid)
		b.mustBeFree(name, soon, call+" was refused")
	}
	h := b.take(name, long)
	err := tryDo(ctx, a.Locker, name, func(context.Context, *lock.Handle) error { return nil })
	t.wantIs("TryDo of a held lock", err, lock.ErrHeld)
	b.free(h)
	return nil
}

func doTellsLoss(ctx context.Context, t *T) error {
	a, name := t.open(), t.name()
	ttl := t.ttl(900 * time.Millisecond)
	own := errors.New("the function's own error")
	for _, returned := range []error{nil, own} {
		err := t.runner.subject.seam.do(ctx, a.Locker, name, func(fctx context.Context, _ *lock.Handle) error {
			t.steal(name)
			timer := time.NewTimer(ttl/3 + soon)
			defer timer.Stop()
			t.note("the ctx of Do's function to end after the loss")
			select {
			case <-fctx.Done():
			case <-timer.C:
				t.fail("the ctx of Do's function had not ended %v after the entry was taken away", ttl/3+soon)
			}
			t.wantLost(context.Cause(fctx), name)
			return returned
		}, lock.TTL(ttl))
		if returned != nil && err != returned { //nolint:errorlint // it must be the very error
			return fmt.Errorf("Do returned %#v, want its function's error as it is", err)
		}
		if returned == nil {
			t.wantIs("Do whose lock was lost under it", err, lock.ErrLost)
		}
	}
	return nil
}

func doWaitsForItsFunction(ctx context.Context, t *T) error {
	b := t.open()
	ttl := t.ttl(500 * time.Millisecond)
	do := t.runner.subject.seam.do
	for _, end := range []string{"its ctx was cancelled", "its Locker was closed"} {
		a, name := t.open(), t.name()
		dctx, cancel := context.WithCancel(ctx)
		defer cancel()
		running, finish := make(chan struct{}), make(chan struct{})
		var stopped time.Duration
		doing := t.start(func() error {
			return do(dctx, a.Locker, name, func(fctx context.Context, _ *lock.Handle) error {
				close(running)
				<-finish
				if fctx.Err() == nil {
					return fmt.Errorf("the ctx of Do's function has not ended although %s", end)
				}
				stopped = commonClock()
				return nil
			}, lock.TTL(ttl))
		})
		t.note("Do to call its function")
		select {
		case <-running:
		case err := <-doing:
			return fmt.Errorf("Do did not call its function: %w", err)
		}
		closing := make(<-chan error)
		if end == "its ctx was cancelled" {
			cancel()
		} else {
			closing = t.start(a.Close)
		}
		for until := time.Now().Add(ttl + ttl/2); time.Now().Before(until); t.pause(ttl / 10) {
			b.mustBeHeld(name, "Do's function still runs, though "+end)
		}
		var granted time.Duration
		waiting := t.start(func() error {
			h := b.take(name)
			granted = commonClock()
			b.free(h)
			return nil
		})
		close(finish)
		if err := t.await("Do to return", soon, doing); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, lock.ErrClosed) {
			return fmt.Errorf("Do, when %s: %w", end, err)
		}
		if err := t.await("another client to get the lock after Do", opBound, waiting); err != nil {
			return err
		}
		if granted < stopped {
			return fmt.Errorf("another client had the lock %v before Do's function came to its end", stopped-granted)
		}
		if end == "its Locker was closed" {
			if err := t.await("Close to return", 6*time.Second, closing); err != nil {
				return fmt.Errorf("Close while Do's function ran: %w", err)
			}
		}
	}
	return nil
}

type ctxKey struct{}

func handleContexts(ctx context.Context, t *T) error {
	c := t.open()
	actx, cancel := context.WithCancel(context.WithValue(ctx, ctxKey{}, "of Acquire"))
	lh, err := c.Acquire(actx, t.name())
	t.must(err)
	h := t.runner.subject.seam.handle(lh)
	cancel()
	hctx := h.Context()
	if hctx.Value(ctxKey{}) != "of Acquire" {
		return errors.New("Context does not have the values of Acquire's ctx")
	}
	if hctx.Err() != nil {
		return fmt.Errorf("Context ended with Acquire's ctx: %w", context.Cause(hctx))
	}
	below, stop := context.WithCancel(hctx)
	defer stop()
	if got, ok := t.runner.subject.seam.fromContext(below); !ok || got != lh {
		return errors.New("FromContext does not find the handle in a ctx below its Context")
	}
	if _, ok := t.runner.subject.seam.fromContext(ctx); ok {
		return errors.New("FromContext finds a handle in a ctx that has none")
	}
	jparent, jcancel := context.WithCancel(context.WithValue(ctx, ctxKey{}, "of Join"))
	defer jcancel()
	first, stop1 := h.Join(jparent)
	defer stop1()
	second, stop2 := h.Join(context.WithValue(ctx, ctxKey{}, "of Join"))
	defer stop2()
	if second.Value(ctxKey{}) != "of Join" {
		return errors.New("the ctx of Join does not have the values of its parent")
	}
	jcancel()
	if first.Err() == nil || second.Err() != nil {
		return fmt.Errorf("after one parent was cancelled, the joined ctx has %v and that of another parent %v", first.Err(), second.Err())
	}
	c.free(h)
	t.until("the ctx of Join to end with the lock", soon, func() bool { return second.Err() != nil })
	t.wantIs("the cause of the ctx of Join after the release", context.Cause(second), lock.ErrReleased)
	return nil
}

func closes(ctx context.Context, t *T) error {
	a, b := t.open(), t.open()
	long := lock.TTL(t.ttl(time.Minute))
	names := []string{t.name(), t.name(), t.name()}
	var handles []handle
	for _, name := range names {
		handles = append(handles, a.take(name, long))
	}
	handles[0].Context()
	theirs := b.take(t.name(), long)
	waiting := t.start(func() error {
		_, err := a.acquire(ctx, theirs.Name())
		return err
	})
	t.pause(100 * time.Millisecond)
	if err := t.await("Close", 6*time.Second, t.start(a.Close)); err != nil {
		return fmt.Errorf("Close: %w", err)
	}
	t.wantIs("an Acquire that waited when its Locker was closed", t.await("an Acquire to end with its Locker", soon, waiting), lock.ErrClosed)
	for i, h := range handles {
		t.wantIs("Err of a handle whose Locker was closed", h.Err(), lock.ErrClosed)
		t.wantIs("the cause of Context after Close", context.Cause(h.Context()), lock.ErrClosed)
		t.wantIsNot("the cause of Context after Close", context.Cause(h.Context()), lock.ErrLost)
		if next, err := b.try(names[i]); err != nil {
			return fmt.Errorf("TryAcquire after its holder's Close: %w", err)
		} else {
			b.free(next)
		}
		_ = t.await("Release after Close", opBound, t.start(func() error { return h.Release(ctx) }))
	}
	_, err := a.acquire(ctx, names[0])
	t.wantIs("Acquire after Close", err, lock.ErrClosed)
	_, err = a.try(names[0])
	t.wantIs("TryAcquire after Close", err, lock.ErrClosed)
	t.wantIs("Do after Close", t.runner.subject.seam.do(ctx, a.Locker, names[0], func(context.Context, *lock.Handle) error { return nil }), lock.ErrClosed)
	t.wantIs("Close after Close", a.Close(), lock.ErrClosed)
	if a.Guarantees() != t.promise() {
		return errors.New("Guarantees changed with Close")
	}
	b.mustBeHeld(theirs.Name(), "another client holds it")
	if err := theirs.Err(); err != nil {
		return fmt.Errorf("the lock of another client, after one was closed: %w", err)
	}
	b.free(theirs)
	return nil
}

func zeroHandle(ctx context.Context, t *T) error {
	for what, lh := range map[string]*lock.Handle{"nil": nil, "zero": new(lock.Handle)} {
		h := t.runner.subject.seam.handle(lh)
		if got := onItsOwn(func() {
			t.wantIs("Err of a "+what+" handle", h.Err(), lock.ErrReleased)
			t.wantIs("Release of a "+what+" handle", h.Release(ctx), lock.ErrReleased)
			t.wantIs("Extend of a "+what+" handle", h.Extend(ctx, time.Second), lock.ErrReleased)
			t.wantIs("the cause of the Context of a "+what+" handle", context.Cause(h.Context()), lock.ErrReleased)
			jctx, cancel := h.Join(ctx)
			defer cancel()
			if jctx.Err() == nil {
				t.fail("the ctx of Join of a %s handle has not ended", what)
			}
			if token, ok := h.Token(); ok || token != 0 {
				t.fail("a %s handle has token %d, %v", what, token, ok)
			}
			if h.Name() != "" || h.TTL() != 0 || !h.Deadline().IsZero() {
				t.fail("a %s handle has name %q, TTL %v, deadline %v", what, h.Name(), h.TTL(), h.Deadline())
			}
		}); got != nil {
			if a, ok := got.(abort); ok {
				return a.err
			}
			return fmt.Errorf("a method of a %s handle panicked: %v", what, got)
		}
	}
	return nil
}

func badArguments(ctx context.Context, t *T) error {
	c, name := t.open(), t.name()
	options := map[string][]lock.Option{
		"a nil option":                 {nil},
		"a MaxHold of zero":            {lock.MaxHold(0)},
		"a negative MinHold":           {lock.MinHold(-1)},
		"a negative Grace":             {lock.Grace(-1)},
		"a MinHold above MaxHold":      {lock.MaxHold(time.Second), lock.MinHold(2 * time.Second)},
		"a MinHold above the most TTL": {lock.MinHold(t.promise().MaxTTL + time.Millisecond)},
	}
	for what, opts := range options {
		_, err := c.acquire(ctx, name, opts...)
		t.wantIs("Acquire with "+what, err, lock.ErrInvalid)
		_, err = c.try(name, opts...)
		t.wantIs("TryAcquire with "+what, err, lock.ErrInvalid)
	}
	var none context.Context
	_, err := c.tried(c.TryAcquire(none, name))
	t.wantIs("TryAcquire with a nil Context", err, lock.ErrInvalid)
	_, err = c.acquire(none, name)
	t.wantIs("Acquire with a nil Context", err, lock.ErrInvalid)
	for what, o := range map[string]lock.SetupOption{
		"a nil option": nil, "a nil Logger": lock.Logger(nil), "a nil Observer": lock.Observe(nil), "a negative TokenBase": lock.TokenBase(-1),
	} {
		if l, err := t.runner.subject.Open(ctx, t.runner.server.URL, o); err == nil {
			l.Close()
			return fmt.Errorf("Open took %s", what)
		} else {
			t.wantIs("Open with "+what, err, lock.ErrInvalid)
		}
	}
	c.mustBeFree(name, soon, "all acquisitions of it were refused")
	return nil
}

func observer(ctx context.Context, t *T) error {
	var mu sync.Mutex
	var c *client
	told := make(map[lock.EventKind][]lock.Event)
	name, backend := t.name(), t.promise().Backend
	c = t.open(lock.Owner("the observed"), lock.Observe(func(_ context.Context, e lock.Event) {
		if c != nil && c.Guarantees().Backend != e.Backend { // it would hang if a lock were held
			t.logf("an event names the backend %q, want %q", e.Backend, backend)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if e.Name == name {
			told[e.Kind] = append(told[e.Kind], e)
		}
	}))
	n := 3
	for range n {
		h := c.take(name)
		_, err := c.try(name)
		t.wantIs("TryAcquire of a held lock", err, lock.ErrHeld)
		c.free(h)
	}
	count := func(kind lock.EventKind) int {
		mu.Lock()
		defer mu.Unlock()
		return len(told[kind])
	}
	t.until("the Observer to be told of all holds", soon, func() bool { return count(lock.EventHold) >= n && count(lock.EventRelease) >= n })
	t.pause(50 * time.Millisecond) // for one too many
	mu.Lock()
	defer mu.Unlock()
	for kind, want := range map[lock.EventKind]int{lock.EventWait: 2 * n, lock.EventHold: n, lock.EventRelease: n, lock.EventLost: 0} {
		if got := len(told[kind]); got != want {
			return fmt.Errorf("an Observer was told of %d ends of kind %q, want %d", got, kind, want)
		}
	}
	for i, e := range told[lock.EventWait] {
		if refused := i%2 == 1; errors.Is(e.Err, lock.ErrHeld) != refused || e.Owner != "the observed" {
			return fmt.Errorf("the event of wait %d has owner %q and error %w", i, e.Owner, e.Err)
		}
	}
	return nil
}

func guarantees(ctx context.Context, t *T) error {
	g := t.promise()
	if g.Backend == "" {
		return errors.New("Guarantees do not name the backend")
	}
	c := t.open(lock.TTL(t.ttl(time.Second)))
	name := t.name()
	for range 3 {
		if now := c.Guarantees(); now != g {
			return fmt.Errorf("Guarantees were %+v and are %+v", g, now)
		}
		h := c.take(name)
		if want := t.ttl(time.Second); h.TTL() != want {
			return fmt.Errorf("TTL is %v, set as the default was %v", h.TTL(), want)
		}
		if bounded := !h.Deadline().IsZero(); bounded != (g.Ends == lock.EndsClock) {
			return fmt.Errorf("Deadline is %v, and the %v ends a lock", h.Deadline(), g.Ends)
		}
		c.free(h)
	}
	return nil
}
