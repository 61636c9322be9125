package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestBadInputIsRefusedBeforeAnythingIsSent(t *testing.T) {
	f := newFake()
	f.guarantees.Fencing = FencingNone
	f.guarantees.MaxTTL = time.Hour
	l, err := New(f)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var nilOption Option
	for _, c := range []struct {
		what string
		name string
		opts []Option
		is   error
		says string
	}{
		{"empty name", "", nil, ErrInvalid, "empty name"},
		{"long name", strings.Repeat("x", 513), nil, ErrInvalid, "513 bytes (at most 512)"},
		{"huge name", strings.Repeat("x", 2_000_000), nil, ErrInvalid, "2000000 bytes"},
		{"zero TTL", "n", []Option{TTL(0)}, ErrInvalid, "not positive"},
		{"negative TTL", "n", []Option{TTL(-time.Second)}, ErrInvalid, "-1s"},
		{"tiny TTL", "n", []Option{TTL(time.Millisecond)}, ErrInvalid, "the least of fake, 100ms"},
		{"huge TTL", "n", []Option{TTL(1<<63 - 1)}, ErrInvalid, ""},
		{"long TTL", "n", []Option{TTL(10 * 365 * 24 * time.Hour)}, ErrInvalid, "the most of fake, 1h0m0s"},
		{"microseconds", "n", []Option{TTL(time.Second + time.Microsecond)}, ErrInvalid, "whole number of milliseconds"},
		{"TTL and Grace", "n", []Option{TTL(time.Hour), Grace(time.Second)}, ErrInvalid, "together"},
		{"huge Grace", "n", []Option{Grace((1<<63 - 1) / 1_000_000 * 1_000_000)}, ErrInvalid, "together"},
		{"MinHold above MaxHold", "n", []Option{MinHold(2 * time.Second), MaxHold(time.Second)}, ErrInvalid, "above MaxHold"},
		{"zero MaxHold", "n", []Option{MaxHold(0)}, ErrInvalid, "not positive"},
		{"token", "n", []Option{WithToken()}, ErrNoToken, "gives none"},
		{"owner", "n", []Option{Owner(strings.Repeat("x", 257))}, ErrInvalid, "257 bytes"},
		{"nil option", "n", []Option{nilOption}, ErrInvalid, "nil option"},
	} {
		for _, try := range []bool{false, true} {
			acquire := l.Acquire
			if try {
				acquire = l.TryAcquire
			}
			h, err := acquire(t.Context(), c.name, c.opts...)
			if h != nil || !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v, want %v that says %q", c.what, err, c.is, c.says)
			} else if len(err.Error()) > 1000 {
				t.Errorf("%s: an error of %d bytes", c.what, len(err.Error()))
			}
		}
	}
	//nolint:staticcheck // a nil Context is the mistake under test
	_, err = l.Acquire(nil, "n")
	wantErr(t, "nil ctx", err, ErrInvalid)
	_, err = New(nil)
	wantErr(t, "nil Backend", err, ErrInvalid)
	_, err = New((*fake)(nil))
	wantErr(t, "nil pointer as Backend", err, ErrInvalid)
	_, err = New(f, TTL(0))
	wantErr(t, "bad default", err, ErrInvalid)
	_, err = New(f, TTL(time.Millisecond))
	wantErr(t, "default below the least", err, ErrInvalid)
	_, err = New(f, Logger(nil))
	wantErr(t, "nil Logger", err, ErrInvalid)
	_, err = New(f, nil)
	wantErr(t, "nil setup option", err, ErrInvalid)
	_, err = New(f, WithToken())
	wantErr(t, "token by default", err, ErrNoToken)
	if n, _, _ := f.counts(); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestCancelRacesWithGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		granted := make(chan struct{})
		f.acquire = func(context.Context, Request) (Grant, error) { <-granted; return Grant{}, nil } // obeys no ctx
		l, _ := on(t, f)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		h, err := l.Acquire(ctx, "n")
		wantErr(t, "Acquire", err, context.DeadlineExceeded)
		if took := time.Since(began); h != nil || took > time.Second+100*time.Millisecond {
			t.Errorf("handle %v after %v", h, took)
		}
		close(granted)
		synctest.Wait()
		if _, _, n := f.counts(); n != 1 {
			t.Errorf("the grant that nobody knew of was released %d times, want once", n)
		}
	})
}

func TestAcquireGoesOnThroughAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		began := time.Now()
		f.acquire = func(context.Context, Request) (Grant, error) {
			if time.Since(began) < 20*time.Second {
				return Grant{}, fmt.Errorf("%w: connection refused", ErrUnavailable)
			}
			return Grant{}, nil
		}
		l, _ := on(t, f)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := l.Acquire(ctx, "n")
		wantErr(t, "ctx ended in the outage", err, context.DeadlineExceeded, ErrUnavailable)
		if errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("%v", err)
		}
		_, err = l.TryAcquire(t.Context(), "n")
		wantErr(t, "TryAcquire", err, ErrUnavailable)
		h := must(t, l)
		wantErr(t, "after the outage", h.Err())
		if took := time.Since(began); took > 21*time.Second+50*time.Millisecond {
			t.Errorf("taken %v after the start, the store was back after 20s", took)
		}
		if n, _, _ := f.counts(); n > 60 {
			t.Errorf("%d requests in 20 s", n)
		}
	})
}

func TestErrorThatWillNotPassIsReturnedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		wrong := errors.New("WRONGPASS invalid username-password pair")
		f.acquire = func(context.Context, Request) (Grant, error) { return Grant{}, wrong }
		l, _ := on(t, f)
		_, err := l.Acquire(context.Background(), "n")
		wantErr(t, "Acquire", err, ErrUnavailable, wrong)
		if want := `acquire "n" on fake: store unavailable: WRONGPASS invalid username-password pair`; err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
		f.acquire = func(context.Context, Request) (Grant, error) { return Grant{}, ErrUnsupported }
		_, err = l.Acquire(context.Background(), "n")
		wantErr(t, "Acquire", err, ErrUnsupported)
		if errors.Is(err, ErrUnavailable) {
			t.Errorf("%v", err)
		}
	})
}

// heldThenFree answers held until free is called.
func heldThenFree(f *fake, left time.Duration) (free func()) {
	var mu sync.Mutex
	var isFree bool
	f.acquire = func(_ context.Context, req Request) (Grant, error) {
		mu.Lock()
		defer mu.Unlock()
		if isFree {
			return Grant{}, nil
		}
		return Grant{Lease: fakeLease{f, req.ID}}, &HeldError{Owner: "web-1", Left: left}
	}
	return func() {
		mu.Lock()
		defer mu.Unlock()
		isFree = true
	}
}

func TestWaiterSleepsUntilTheTTLOrAWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		free := heldThenFree(f, 5*time.Second)
		l, _ := on(t, f)
		got := make(chan *Handle)
		go func() { got <- must(t, l) }()
		time.Sleep(4 * time.Second)
		if n, _, _ := f.counts(); n != 1 {
			t.Errorf("%d requests while the holder lives, want 1", n)
		}
		time.Sleep(time.Second + 20*time.Millisecond)
		if n, _, _ := f.counts(); n != 2 {
			t.Errorf("%d requests after its TTL, want 2", n)
		}
		f.requests[0].Wake(time.Second) // look again in a second
		time.Sleep(time.Second / 2)
		if n, _, _ := f.counts(); n != 2 {
			t.Errorf("%d requests, the wake-up was for later", n)
		}
		time.Sleep(time.Second)
		if n, _, _ := f.counts(); n != 3 {
			t.Errorf("%d requests after the wake-up's time, want 3", n)
		}
		free()
		f.requests[0].Wake(0)
		began := time.Now()
		h := <-got
		if took := time.Since(began); took != 0 {
			t.Errorf("woken after %v", took)
		}
		wantErr(t, "Release", h.Release(t.Context()))
		if _, _, n := f.counts(); n != 1 {
			t.Errorf("%d releases, the queue's entry is the lock's own", n)
		}
		h.e.backend.(*fake).requests[0].Wake(0) // too late: nothing happens
	})
}

func TestWaiterThatGivesUpLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		heldThenFree(f, time.Minute)
		l, _ := on(t, f)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("the user went away"))
		defer cancel()
		_, err := l.Acquire(ctx, "n")
		wantErr(t, "Acquire", err, context.DeadlineExceeded, ErrHeld)
		for _, says := range []string{"the user went away", "held by web-1, 1m0s left", `acquire "n" on fake`} {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("%v: does not say %q", err, says)
			}
		}
		var held *HeldError
		if !errors.As(err, &held) || held.Name != "n" {
			t.Errorf("HeldError %+v", held)
		}
		synctest.Wait()
		if _, _, n := f.counts(); n != 1 {
			t.Errorf("the queue's entry was released %d times, want once", n)
		}
	})
}

func TestOneContenderPerNameInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var holder string
		var mu sync.Mutex
		f.acquire = func(_ context.Context, req Request) (Grant, error) {
			mu.Lock()
			defer mu.Unlock()
			if holder != "" {
				return Grant{}, &HeldError{Left: 100 * time.Millisecond}
			}
			holder = req.ID
			return Grant{}, nil
		}
		f.release = func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			holder = ""
			return nil
		}
		l, _ := on(t, f)
		first := must(t, l)
		var order []int
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				h := must(t, l)
				order = append(order, i)
				_ = h.Release(t.Context())
			})
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := l.Acquire(ctx, "n")
		wantErr(t, "behind 50 others", err, context.DeadlineExceeded, ErrHeld)
		if n, _, _ := f.counts(); n != 2 {
			t.Errorf("%d requests by 52 goroutines of one name, want the holder's and one contender's", n)
		}
		began := time.Now()
		_, err = l.TryAcquire(t.Context(), "n")
		wantErr(t, "TryAcquire", err, ErrHeld)
		if took := time.Since(began); took != 0 {
			t.Errorf("TryAcquire waited for %v behind those who wait", took)
		}
		_ = first.Release(t.Context())
		wg.Wait()
		for i, got := range order {
			if i != got {
				t.Fatalf("order %v", order)
			}
		}
	})
}

func TestTriesShareOneAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		answer := make(chan error)
		f.acquire = func(context.Context, Request) (Grant, error) { return Grant{}, <-answer }
		l, _ := on(t, f)
		var wg sync.WaitGroup
		var mu sync.Mutex
		handles, refused := 0, 0
		for range 20 {
			wg.Go(func() {
				h, err := l.TryAcquire(t.Context(), "n")
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil && h != nil:
					handles++
				case errors.Is(err, ErrHeld) && h == nil:
					refused++
				default:
					t.Errorf("%v, %v", h, err)
				}
			})
		}
		synctest.Wait()
		answer <- &HeldError{} // to one; the others came after it was sent
		synctest.Wait()
		if n, _, _ := f.counts(); n != 2 {
			t.Errorf("%d attempts, want a second for the 19 who came after the first was sent", n)
		}
		answer <- nil
		wg.Wait()
		if n, _, _ := f.counts(); n != 2 || handles != 1 || refused != 19 {
			t.Errorf("%d attempts, %d handles, %d refused, want 2, 1, 19", n, handles, refused)
		}
	})
}

func TestReleaseWorksWithAFinishedCtx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l, _ := on(t, f)
		ctx, cancel := context.WithCancel(t.Context())
		h, err := l.Acquire(ctx, "n")
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		wantErr(t, "Err after the end of Acquire's ctx", h.Err())
		wantErr(t, "Release", h.Release(ctx))

		stuck := make(chan struct{})
		f.release = func(context.Context) error { <-stuck; return nil }
		h = must(t, l)
		began := time.Now()
		wantErr(t, "Release of a stuck store", h.Release(ctx), context.Canceled, ErrUnavailable)
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("Release returned after %v", took)
		}
		close(stuck)
		synctest.Wait()
		wantErr(t, "Release again", h.Release(t.Context()))
	})
}

func TestReleaseGoesOnUntilTheStoreIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		began := time.Now()
		f.release = func(context.Context) error {
			if time.Since(began) < time.Minute {
				return errAway
			}
			return ErrLost // an earlier one was carried out and its answer lost
		}
		l, _ := on(t, f)
		h := must(t, l)
		wantErr(t, "Release", h.Release(t.Context()), ErrUnavailable, errAway)
		wantErr(t, "Release again", h.Release(t.Context()), ErrUnavailable)
		wantErr(t, "Err", h.Err(), ErrReleased)
		time.Sleep(time.Minute + 5*time.Second)
		_, _, n := f.counts()
		wantErr(t, "Release when the store is back", h.Release(t.Context()))
		if _, _, now := f.counts(); now != n {
			t.Error("Release sent again what was confirmed in the background")
		}
		if n > 100 {
			t.Errorf("%d attempts in a minute", n)
		}
	})
}

func TestReleaseByManyIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.release = func(context.Context) error { time.Sleep(time.Second); return nil }
		l, _ := on(t, f)
		h := must(t, l)
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() { wantErr(t, "Release", h.Release(t.Context())) })
		}
		wg.Wait()
		if _, _, n := f.counts(); n != 1 {
			t.Errorf("%d releases were sent, want 1", n)
		}
	})
}

func TestReleaseFindsTheLockTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.release = func(context.Context) error { return ErrLost }
		l, _ := on(t, f)
		h := must(t, l)
		for range 2 {
			err := h.Release(t.Context())
			wantErr(t, "Release", err, ErrLost)
			if causeOf(err) != CauseTaken {
				t.Errorf("%v", err)
			}
		}
		if _, _, n := f.counts(); n != 1 {
			t.Errorf("%d releases, want 1: nothing is there any more", n)
		}
	})
}

func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l, _ := on(t, f, TokenBase(1000))
		if token, ok := must(t, l).Token(); token != 1001 || !ok {
			t.Errorf("token %d %v, want the store's 1 on the base of 1000", token, ok)
		}
		f.acquire = func(context.Context, Request) (Grant, error) { return Grant{Token: 1<<63 - 1000}, nil }
		_, err := l.Acquire(t.Context(), "n")
		wantErr(t, "overflow", err, ErrInvalid)
		synctest.Wait()
		if _, _, n := f.counts(); n != 1 {
			t.Errorf("the grant without a usable token was released %d times", n)
		}
		f.acquire = func(_ context.Context, req Request) (Grant, error) {
			return Grant{Token: -1, Lease: fakeLease{f, req.ID}}, nil
		}
		_, err = l.Acquire(t.Context(), "n", WithToken())
		wantErr(t, "a negative token", err, ErrNoToken)
	})
}

func TestLateCopyOfAnUnansweredRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.acquire = func(_ context.Context, req Request) (Grant, error) {
			if len(f.requests) == 1 {
				return Grant{Lease: fakeLease{f, "unanswered"}}, fmt.Errorf("%w: time-out", ErrUnavailable)
			}
			return Grant{Lease: fakeLease{f, req.ID}}, nil
		}
		l, _ := on(t, f)
		h := must(t, l)
		wantErr(t, "Release", h.Release(t.Context()))
		synctest.Wait()
		if want := []string{h.id, "unanswered"}; fmt.Sprint(f.released) != fmt.Sprint(want) {
			t.Errorf("released %v, want %v: the first copy of the request may still arrive", f.released, want)
		}
	})
}
