package lock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pair returns a Locker on two fakes, of which the second's name comes first.
func pair(t *testing.T, opts ...SetupOption) (both Locker, a, b *fake) {
	t.Helper()
	a, b = newFake(), newFake()
	a.guarantees.Backend, b.guarantees.Backend = "zeta", "alpha"
	both, _ = onBoth(t, a, b, opts...)
	return both, a, b
}

func onBoth(t *testing.T, a, b *fake, opts ...SetupOption) (Locker, func(time.Duration)) {
	t.Helper()
	one, _ := on(t, a)
	two, jump := on(t, b) // its clock is the one that is read
	l, err := Both(one, two, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l, jump
}

func TestBothTakesTwoLocksAndTheTokenOfTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, a, b := pair(t, TokenBase(1000))
		a.tokens, b.tokens = 6, 40
		h := must(t, l, WithToken(), TTL(3*time.Second))
		if got, ok := h.Token(); !ok || got != 1007 {
			t.Errorf("token %d, %v, want 1007", got, ok)
		}
		time.Sleep(10 * time.Second)
		if err := h.Err(); err != nil {
			t.Fatalf("after 10s: %v", err)
		}
		for name, f := range map[string]*fake{"first": a, "second": b} {
			if requests, renewals, releases := f.counts(); requests != 1 || renewals < 9 || renewals > 11 || releases != 0 {
				t.Errorf("%s: %d requests, %d renewals, %d releases, want 1, about 10, 0", name, requests, renewals, releases)
			}
		}
		if a.requests[0].Token != true || b.requests[0].Token {
			t.Error("a token was asked of the second, or not of the first")
		}
		if err := h.Release(t.Context()); err != nil {
			t.Error(err)
		}
		for name, f := range map[string]*fake{"first": a, "second": b} {
			if _, _, releases := f.counts(); releases != 1 {
				t.Errorf("%s: %d releases, want 1", name, releases)
			}
		}
	})
}

func TestBothGuaranteesTheWeakerOfEach(t *testing.T) {
	a, b := newFake(), newFake()
	a.guarantees = Guarantees{Backend: "a", Fencing: FencingDurable, Ends: EndsSession, MinTTL: time.Second, MaxTTL: time.Hour, FIFO: true, Extend: true, Survives: FaultClock | FaultRestart}
	b.guarantees = Guarantees{Backend: "b", Fencing: FencingConsensus, MinTTL: 2 * time.Second, MaxTTL: time.Minute, FIFO: true, Survives: FaultClock | FaultServer}
	l, err := Both(fakeLocker(t, a), fakeLocker(t, b))
	if err != nil {
		t.Fatal(err)
	}
	want := Guarantees{Backend: "a+b", Fencing: FencingDurable, Ends: EndsSession, MinTTL: 2 * time.Second, MaxTTL: time.Minute, Survives: FaultClock}
	if got := l.Guarantees(); got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if _, err := Fenced(l, FencingConsensus); !errors.Is(err, ErrNoToken) {
		t.Errorf("Fenced above the tokens' side: %v", err)
	}
}

func TestBothRefusesWhatItCannotHold(t *testing.T) {
	f, g := newFake(), newFake()
	g.guarantees.MinTTL = 2 * f.guarantees.MaxTTL
	g.guarantees.MaxTTL = 4 * f.guarantees.MaxTTL
	l, long := fakeLocker(t, f), fakeLocker(t, g)
	other := fakeLocker(t, newFake())
	for what, try := range map[string]func() (Locker, error){
		"a nil Locker":      func() (Locker, error) { return Both(l, nil) },
		"one Locker":        func() (Locker, error) { return Both(l, wrapped{l}) },
		"not a Locker":      func() (Locker, error) { return Both(struct{ Locker }{l}, l) },
		"no TTL suits":      func() (Locker, error) { return Both(l, long) },
		"TTL":               func() (Locker, error) { return Both(l, other, TTL(-1)) },
		"Unwrap to nothing": func() (Locker, error) { return Both(wrapped{nil}, l) },
	} {
		if got, err := try(); !errors.Is(err, ErrInvalid) || got != nil {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
}

type wrapped struct{ Locker }

func (w wrapped) Unwrap() Locker { return w.Locker }
func (w wrapped) Guarantees() Guarantees {
	if w.Locker == nil {
		return Guarantees{}
	}
	return w.Locker.Guarantees()
}

func TestBothOrderDoesNotDependOnTheArguments(t *testing.T) {
	for _, swap := range []bool{false, true} {
		var order []string
		a, b := newFake(), newFake()
		a.guarantees.Backend, b.guarantees.Backend = "zeta", "alpha"
		for _, f := range []*fake{a, b} {
			f.acquire = func(context.Context, Request) (Grant, error) {
				order = append(order, f.guarantees.Backend)
				return Grant{}, nil
			}
		}
		if swap {
			a, b = b, a
		}
		l, err := Both(fakeLocker(t, a), fakeLocker(t, b))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.TryAcquire(t.Context(), "n"); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(order, " "); got != "alpha zeta" {
			t.Errorf("order %q, want alpha first", got)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestBothGivesTheFirstBackIfTheSecondIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, a, b := pair(t)
		a.acquire = func(context.Context, Request) (Grant, error) {
			return Grant{}, &HeldError{Owner: "web-1", Left: time.Second}
		}
		_, err := l.TryAcquire(t.Context(), "n")
		var held *HeldError
		if !errors.As(err, &held) || held.Owner != "web-1" || held.Left != time.Second {
			t.Errorf("%v", err)
		}
		if requests, _, releases := b.counts(); requests != 1 || releases != 1 {
			t.Errorf("the first: %d requests, %d releases, want 1, 1", requests, releases)
		}
		a.acquire = func(context.Context, Request) (Grant, error) { return Grant{}, errors.New("no route") }
		_, err = l.TryAcquire(t.Context(), "n")
		wantErr(t, "TryAcquire", err, ErrUnavailable)
		if text := err.Error(); !strings.Contains(text, `try "n" on zeta+alpha: zeta: `) || !strings.Contains(text, "no route") {
			t.Errorf("%v", err)
		}
		if _, _, releases := b.counts(); releases != 2 {
			t.Errorf("the first: %d releases, want 2", releases)
		}
	})
}

func TestBothConfirmsTheFirstWhileItWaitsForTheSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, a, b := pair(t)
		began := time.Now()
		a.acquire = func(context.Context, Request) (Grant, error) {
			if time.Since(began) < 20*time.Second {
				return Grant{Retry: 100 * time.Millisecond}, &HeldError{}
			}
			return Grant{}, nil
		}
		h := must(t, l, TTL(3*time.Second))
		if took := time.Since(began); took < 20*time.Second || took > 21*time.Second {
			t.Errorf("held after %v, want 20s", took)
		}
		if requests, renewals, _ := b.counts(); requests != 1 || renewals < 19 {
			t.Errorf("the first: %d requests, %d renewals, want 1 and about 20", requests, renewals)
		}
		if left := time.Until(h.Deadline()); left < 1900*time.Millisecond || left > 3*time.Second {
			t.Errorf("%v left, want what the first's last renewal gives", left)
		}
	})
}

func TestBothStartsAgainIfTheFirstIsLostWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, a, b := pair(t)
		began := time.Now()
		a.acquire = func(context.Context, Request) (Grant, error) {
			if time.Since(began) < 20*time.Second {
				return Grant{Retry: 100 * time.Millisecond}, &HeldError{}
			}
			return Grant{}, nil
		}
		gone := false
		b.renew = func(context.Context, time.Duration) error {
			if !gone && time.Since(began) > 5*time.Second {
				gone = true
				return ErrLost
			}
			return nil
		}
		h := must(t, l, TTL(3*time.Second))
		if requests, _, _ := b.counts(); requests != 2 {
			t.Errorf("the first: %d requests, want 2", requests)
		}
		if err := h.Err(); err != nil {
			t.Error(err)
		}
	})
}

func TestBothWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, a, b := pair(t)
		a.acquire = func(context.Context, Request) (Grant, error) {
			return Grant{Retry: 100 * time.Millisecond}, &HeldError{Owner: "web-1"}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		_, err := l.Acquire(ctx, "n")
		wantErr(t, "Acquire", err, context.DeadlineExceeded, ErrHeld)
		if over := time.Since(began) - 10*time.Second; over > 100*time.Millisecond {
			t.Errorf("it returned %v after its ctx ended", over)
		}
		synctest.Wait()
		if requests, _, releases := b.counts(); requests != 1 || releases != 1 {
			t.Errorf("the first: %d requests, %d releases, want 1, 1", requests, releases)
		}
	})
}

func TestBothLosesWhatEitherLost(t *testing.T) {
	for i, side := range []string{"zeta", "alpha"} {
		synctest.Test(t, func(t *testing.T) {
			l, a, b := pair(t)
			h := must(t, l, TTL(3*time.Second))
			f := []*fake{a, b}[i]
			f.requests[0].Lost(CauseTaken, errors.New("deleted by hand"))
			<-h.Context().Done()
			var lost *LostError
			if !errors.As(h.Err(), &lost) || lost.Cause != CauseTaken || !strings.Contains(lost.Error(), side) || !strings.Contains(lost.Error(), "deleted by hand") {
				t.Errorf("Err() = %v, want that %s lost it", h.Err(), side)
			}
			time.Sleep(4 * time.Second)
			for name, f := range map[string]*fake{"first": a, "second": b} {
				if _, _, releases := f.counts(); releases == 0 {
					t.Errorf("%s: nothing was released", name)
				}
			}
		})
	}
}

func TestBothTrustsNoLongerThanTheWeaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, a, b := pair(t)
		a.renew = func(ctx context.Context, _ time.Duration) error { <-ctx.Done(); return ctx.Err() }
		b.acquire = func(_ context.Context, req Request) (Grant, error) { return Grant{TTL: 2 * time.Second}, nil }
		h := must(t, l, TTL(3*time.Second))
		if h.TTL() != 2*time.Second {
			t.Errorf("TTL %v, want the shorter", h.TTL())
		}
		began := time.Now()
		<-h.Context().Done()
		if held := time.Since(began); held > 2*time.Second {
			t.Errorf("trusted for %v", held)
		}
		wantErr(t, "Err", h.Err(), ErrLost)
	})
}

func TestBothLockersClosedUnderIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newFake(), newFake()
		a.guarantees.Backend = "zeta"
		one, _ := on(t, a)
		two, _ := on(t, b)
		l, err := Both(one, two)
		if err != nil {
			t.Fatal(err)
		}
		h := must(t, l)
		if err := one.Close(); err != nil {
			t.Fatal(err)
		}
		<-h.Context().Done()
		wantErr(t, "Err", h.Err(), ErrLost)
		_, err = l.TryAcquire(t.Context(), "m")
		wantErr(t, "TryAcquire", err, ErrClosed)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if _, err := two.TryAcquire(t.Context(), "m"); err != nil {
			t.Errorf("the other was closed with it: %v", err)
		}
	})
}

// TestBothIsTimedWhereAStoreIsNot: a holder that was stopped learns of its loss
// from the store that has a clock, at its first look.
func TestBothIsTimedWhereAStoreIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newFake(), newFake()
		a.guarantees.Backend, a.guarantees.Ends = "file", EndsProcess
		l, jump := onBoth(t, a, b)
		if ends := l.Guarantees().Ends; ends != EndsProcess {
			t.Errorf("ends by %v", ends)
		}
		h := must(t, l, TTL(3*time.Second))
		if h.Deadline().IsZero() {
			t.Error("no deadline")
		}
		jump(4 * time.Second)
		wantErr(t, "Err", h.Err(), ErrLost)
	})
}
