package lock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l, _ := on(t, f)
		mine := errors.New("mine")
		if err := Do(t.Context(), l, "n", func(context.Context, *Handle) error { return mine }); err != mine { //nolint:errorlint // unwrapped
			t.Errorf("%v, want fn's error as it is", err)
		}
		func() {
			defer func() {
				if got := recover(); got != "boom" {
					t.Errorf("recovered %v", got)
				}
			}()
			_ = Do(t.Context(), l, "n", func(context.Context, *Handle) error { panic("boom") })
		}()
		var wg sync.WaitGroup
		wg.Go(func() {
			_ = Do(t.Context(), l, "n", func(context.Context, *Handle) error { runtime.Goexit(); return nil })
		})
		wg.Wait()
		if _, _, n := f.counts(); n != 3 {
			t.Errorf("%d releases after an error, a panic and Goexit, want 3", n)
		}
		err := Do(t.Context(), l, "n", func(_ context.Context, h *Handle) error {
			h.lostByStore(CauseTaken, nil)
			return nil
		})
		wantErr(t, "lost under fn", err, ErrLost)
		err = Do(t.Context(), l, "n", func(_ context.Context, h *Handle) error {
			h.lostByStore(CauseTaken, nil)
			return mine
		})
		wantErr(t, "lost under fn, which had an error of its own", err, mine)
		synctest.Wait() // what was lost has been cleaned up
		f.release = func(context.Context) error { return errAway }
		ctx, cancel := context.WithCancel(t.Context())
		wantErr(t, "release not confirmed", Do(ctx, l, "n", func(context.Context, *Handle) error { cancel(); return nil }))
		f.release = nil
		wantErr(t, "nil fn", Do(t.Context(), l, "n", nil), ErrInvalid)
		wantErr(t, "nil Locker", Do(t.Context(), nil, "n", func(context.Context, *Handle) error { return nil }), ErrInvalid)
		f.acquire = func(context.Context, Request) (Grant, error) { return Grant{}, &HeldError{} }
		wantErr(t, "TryDo", TryDo(t.Context(), l, "n", func(context.Context, *Handle) error { return mine }), ErrHeld)
	})
}

func TestContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		l, _ := on(t, newFake())
		outer := must(t, l)
		ctx, cancel := context.WithCancel(context.WithValue(outer.Context(), key{}, "v"))
		inner, err := l.Acquire(ctx, "inner")
		if err != nil {
			t.Fatal(err)
		}
		if h, ok := FromContext(ctx); !ok || h != outer {
			t.Error("FromContext of what descends from Context")
		}
		if h, ok := FromContext(inner.Context()); !ok || h != inner {
			t.Error("FromContext is not the innermost")
		}
		if _, ok := FromContext(t.Context()); ok {
			t.Error("FromContext found a handle where there is none")
		}
		joined, stop := inner.Join(ctx)
		defer stop()
		if h, _ := FromContext(joined); h != inner || joined.Value(key{}) != "v" {
			t.Error("values of Join's Context")
		}
		cancel()
		if inner.Context().Err() != nil || inner.Context().Value(key{}) != "v" {
			t.Error("Context ended with Acquire's ctx, or has not its values")
		}
		wantErr(t, "Join with ctx ended", joined.Err(), context.Canceled)
		joined, stop = inner.Join(t.Context())
		defer stop()
		_ = inner.Release(t.Context())
		synctest.Wait()
		wantErr(t, "Join with the lock released", context.Cause(joined), ErrReleased)
		joined, stop = inner.Join(t.Context())
		defer stop()
		wantErr(t, "Join after the release", context.Cause(joined), ErrReleased)
		wantErr(t, "Context after the release", context.Cause(inner.Context()), ErrReleased)
	})
}

func TestZeroHandle(t *testing.T) {
	for _, h := range []*Handle{nil, {}} {
		if _, ok := h.Token(); ok || h.Name() != "" || h.TTL() != 0 || !h.Deadline().IsZero() {
			t.Error("a zero Handle has something")
		}
		wantErr(t, "Err", h.Err(), ErrReleased)
		wantErr(t, "Context", context.Cause(h.Context()), ErrReleased)
		wantErr(t, "Release", h.Release(t.Context()), ErrReleased)
		wantErr(t, "Extend", h.Extend(t.Context(), time.Second), ErrReleased)
		ctx, cancel := h.Join(t.Context())
		wantErr(t, "Join", context.Cause(ctx), ErrReleased)
		cancel()
	}
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l, _ := on(t, f)
		h := must(t, l)
		ctx := h.Context()
		started, finish := make(chan struct{}), make(chan struct{})
		done := make(chan error)
		go func() {
			done <- Do(t.Context(), l, "busy", func(ctx context.Context, _ *Handle) error {
				close(started)
				<-ctx.Done()
				<-finish
				return context.Cause(ctx)
			})
		}()
		<-started
		f.mu.Lock()
		f.acquire = func(context.Context, Request) (Grant, error) { return Grant{}, &HeldError{Left: time.Hour} }
		f.mu.Unlock()
		waiting := make(chan error)
		go func() { _, err := l.Acquire(context.Background(), "n"); waiting <- err }()
		synctest.Wait()
		closed := make(chan error)
		go func() { closed <- l.Close() }()
		wantErr(t, "a waiter", <-waiting, ErrClosed)
		synctest.Wait()
		wantErr(t, "Context", context.Cause(ctx), ErrClosed)
		wantErr(t, "Err", h.Err(), ErrClosed)
		if _, _, n := f.counts(); n != 1 {
			t.Errorf("%d releases while a function of Do runs, want only the idle lock's", n)
		}
		time.Sleep(2 * time.Second)
		close(finish)
		wantErr(t, "Do", <-done, ErrClosed)
		wantErr(t, "Close", <-closed)
		if _, _, n := f.counts(); n != 2 {
			t.Errorf("%d releases", n)
		}
		wantErr(t, "Close again", l.Close(), ErrClosed)
		_, err := l.Acquire(t.Context(), "n")
		wantErr(t, "Acquire", err, ErrClosed)
		_, err = l.TryAcquire(t.Context(), "n")
		wantErr(t, "TryAcquire", err, ErrClosed)
	})
}

func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		stuck := make(chan struct{})
		f.release = func(context.Context) error { <-stuck; return nil }
		f.shut = func() error { <-stuck; return nil }
		l, err := New(f)
		if err != nil {
			t.Fatal(err)
		}
		must(t, l)
		never := make(chan struct{})
		go func() {
			_ = Do(t.Context(), l, "busy", func(context.Context, *Handle) error { <-never; return nil })
		}()
		synctest.Wait()
		began := time.Now()
		wantErr(t, "Close", l.Close(), ErrUnavailable)
		if took := time.Since(began); took != closeTimeout {
			t.Errorf("Close took %v", took)
		}
		_, renewals, releases := f.counts()
		if releases != 1 {
			t.Errorf("%d releases, want the idle lock's: fn has not returned", releases)
		}
		time.Sleep(time.Hour)
		if _, n, _ := f.counts(); n != renewals {
			t.Error("renewal went on after Close")
		}
		close(stuck)
		close(never)
	})
}

func TestCloseEndsMinHoldUnlessTheStoreKeepsIt(t *testing.T) {
	for _, c := range []struct {
		ends     Ends
		released bool
	}{{EndsClock, true}, {EndsProcess, true}, {EndsClock, false}, {EndsProcess, false}} {
		ends := c.ends
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.guarantees.Ends = ends
			l, _ := on(t, f)
			h := must(t, l, MinHold(time.Hour))
			if c.released {
				wantErr(t, "Release", h.Release(t.Context()))
			}
			began := time.Now()
			wantErr(t, "Close", l.Close())
			if took := time.Since(began); took > time.Second {
				t.Errorf("Close took %v", took)
			}
			want := map[Ends]int{EndsClock: 0, EndsProcess: 1}[ends]
			_, renewals, n := f.counts()
			if n != want || renewals != 1-want {
				t.Errorf("%+v: %d releases, %d renewals for the rest; want %d and %d", c, n, renewals, want, 1-want)
			}
		})
	}
}

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		var mu sync.Mutex
		var shown atomic.Pointer[Handle]
		l, _ := on(t, newFake(), Owner("me"), Observe(func(_ context.Context, e Event) {
			_ = shown.Load().Err() // outside of locks
			mu.Lock()
			defer mu.Unlock()
			got = append(got, fmt.Sprintf("%v %s %s/%s %d %v %v", e.Kind, e.Name, e.Backend, e.Owner, e.Token, e.Took, e.Err))
		}))
		h := must(t, l, TTL(9*time.Second))
		shown.Store(h)
		time.Sleep(4 * time.Second)
		_ = h.Release(t.Context())
		h, _ = l.TryAcquire(t.Context(), "m")
		shown.Store(h)
		h.lostByStore(CauseTaken, nil)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		want := []string{
			`wait n fake/me 1 0s <nil>`, `renew n fake/me 1 0s <nil>`, `hold n fake/me 1 4s <nil>`, `release n fake/ 0 0s <nil>`,
			`wait m fake/me 2 0s <nil>`, `lost m fake/me 2 0s lock "m" lost: its entry at the store is gone`,
			`hold m fake/me 2 0s lock "m" lost: its entry at the store is gone`, `release m fake/ 0 0s <nil>`,
		}
		slices.Sort(got[4:]) // a loss is told beside what follows from it
		slices.Sort(want[4:])
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got\n%q\nwant\n%q", got, want)
		}
	})
}

// batchFake renews in one call.
type batchFake struct {
	*fake
	sizes []int
	times []time.Time
}

func (b *batchFake) RenewAll(_ context.Context, batch []Renewal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sizes = append(b.sizes, len(batch))
	b.times = append(b.times, time.Now())
}

func TestManyHeldLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, ttl = 2000, 6 * time.Second
		b := &batchFake{fake: newFake()}
		l, _ := on(t, b)
		ctx := t.Context()
		must(t, l)
		before := runtime.NumGoroutine()
		var m0, m1 runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m0)
		handles := make([]*Handle, n)
		for i := range handles {
			var err error
			if handles[i], err = l.Acquire(ctx, fmt.Sprint("n", i), TTL(ttl)); err != nil {
				t.Fatal(err)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&m1)
		if more := runtime.NumGoroutine() - before; more > 2 {
			t.Errorf("%d goroutines for %d locks", more, n)
		}
		t.Logf("%d bytes of heap per held lock, the fake's Request of it included", (m1.HeapAlloc-m0.HeapAlloc)/n)
		time.Sleep(10 * ttl)
		for _, h := range handles {
			if err := h.Err(); err != nil {
				t.Fatal(err)
			}
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		renewed := 0
		for i, size := range b.sizes {
			renewed += size
			if size > batchMost {
				t.Errorf("a call with %d leases", size)
			}
			if i > 0 && b.times[i].Sub(b.times[i-1]) < 10*time.Millisecond && size+b.sizes[i-1] > 2*batchMost {
				t.Errorf("calls %d and %d came together", i-1, i)
			}
		}
		if calls := len(b.sizes); calls > 31*(n/batchMost+2) {
			t.Errorf("%d calls for %d renewals", calls, renewed)
		}
		if renewed < 27*n || renewed > 34*n {
			t.Errorf("%d renewals of %d locks in 30 thirds of the TTL", renewed, n)
		}
		t.Logf("%d calls, %d renewals", len(b.sizes), renewed)
	})
}

func TestFewLocksShareOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &batchFake{fake: newFake()}
		l, _ := on(t, b)
		for i := range 100 {
			if _, err := l.Acquire(t.Context(), fmt.Sprint("n", i), TTL(6*time.Second)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(59 * time.Second)
		b.mu.Lock()
		defer b.mu.Unlock()
		if calls := len(b.sizes); calls > 31 {
			t.Errorf("%d calls in 30 thirds of the TTL, want one each", calls)
		}
	})
}

func TestObserverThatPanicsOrExits(t *testing.T) {
	for _, kind := range []EventKind{EventWait, EventHold, EventRelease, EventRenew, EventLost} {
		for _, exits := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				var quiet atomic.Bool
				l, _ := on(t, f, TTL(time.Second), Observe(func(_ context.Context, e Event) {
					switch {
					case e.Kind != kind || quiet.Load():
					case exits:
						runtime.Goexit()
					default:
						panic("boom")
					}
				}))
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					defer func() { _ = recover() }() // as an HTTP server does
					h, err := l.Acquire(t.Context(), "n")
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(400 * time.Millisecond) // a renewal
					if kind == EventLost {
						f.requests[0].Lost(CauseTaken, nil)
						return
					}
					_ = h.Release(t.Context())
				}()
				<-ended
				time.Sleep(time.Second)
				if _, _, n := f.counts(); n != 1 {
					t.Errorf("%v, exits %v: %d releases, want 1: nobody has the handle", kind, exits, n)
				}
				quiet.Store(true)
				h := must(t, l)
				wantErr(t, "Release of the next", h.Release(t.Context()))
				began := time.Now()
				wantErr(t, "Close", l.Close())
				if took := time.Since(began); took > time.Second {
					t.Errorf("%v, exits %v: Close took %v", kind, exits, took)
				}
			})
		}
	}
}

func TestCloseWaitsForAReleaseWhoseObserverIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.shut = func() error {
			if _, _, n := f.counts(); n != 1 {
				t.Errorf("the backend was closed after %d releases, want 1", n)
			}
			return nil
		}
		f.release = func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil }
		l, _ := on(t, f, Observe(func(_ context.Context, e Event) {
			if e.Kind == EventHold {
				time.Sleep(time.Second)
			}
		}))
		h := must(t, l)
		var wg sync.WaitGroup
		wg.Go(func() { wantErr(t, "Release", h.Release(t.Context())) })
		synctest.Wait()
		wantErr(t, "Close", l.Close())
		wg.Wait()
	})
}

func TestHandlePrintsNoInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := on(t, newFake())
		h := must(t, l)
		for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d"} {
			if got, want := fmt.Sprintf(format, h), `lock "n" on fake: held`; got != want {
				t.Errorf("%s: %s, want %s", format, got, want)
			}
		}
		_ = h.Release(t.Context())
		if got, want := fmt.Sprint(h, (*Handle)(nil)), `lock "n" on fake: lock released no lock`; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}
