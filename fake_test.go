package lock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fake is a Backend whose answers a test scripts. A nil function answers well.
type fake struct {
	guarantees Guarantees
	acquire    func(ctx context.Context, req Request) (Grant, error)
	renew      func(ctx context.Context, ttl time.Duration) error
	release    func(ctx context.Context) error
	shut       func() error

	mu       sync.Mutex
	requests []Request
	renewals []time.Duration // the TTLs asked for
	released []string        // IDs, at each call
	tokens   Token
}

func newFake() *fake {
	return &fake{guarantees: Guarantees{
		Backend: "fake", Fencing: FencingConsensus, Ends: EndsClock,
		MinTTL: 100 * time.Millisecond, MaxTTL: time.Hour, Extend: true,
	}}
}

func (f *fake) Guarantees() Guarantees { return f.guarantees }

func (f *fake) Close() error {
	if f.shut != nil {
		return f.shut()
	}
	return nil
}

func (f *fake) Acquire(ctx context.Context, req Request) (Grant, error) {
	f.mu.Lock()
	f.requests = append(f.requests, req)
	f.tokens++
	g := Grant{Lease: fakeLease{f, req.ID}, Token: f.tokens}
	f.mu.Unlock()
	if f.acquire != nil {
		own, err := f.acquire(ctx, req)
		if err != nil || own.Lease != nil {
			return own, err
		}
		own.Lease = g.Lease
		if own.Token == 0 {
			own.Token = g.Token
		}
		return own, nil
	}
	return g, nil
}

type fakeLease struct {
	f  *fake
	id string
}

func (l fakeLease) Renew(ctx context.Context, ttl time.Duration) error {
	l.f.mu.Lock()
	l.f.renewals = append(l.f.renewals, ttl)
	l.f.mu.Unlock()
	if l.f.renew != nil {
		return l.f.renew(ctx, ttl)
	}
	return nil
}

func (l fakeLease) Release(ctx context.Context) error {
	l.f.mu.Lock()
	l.f.released = append(l.f.released, l.id)
	l.f.mu.Unlock()
	if l.f.release != nil {
		return l.f.release(ctx)
	}
	return nil
}

func (f *fake) counts() (requests, renewals, releases int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.requests), len(f.renewals), len(f.released)
}

// on returns, in a bubble, a Locker over the fake, closed at the end of the test.
// It replaces the boot clock by one that the bubble's sleep moves, and returns what makes it
// jump.
func on(t *testing.T, b Backend, opts ...SetupOption) (Locker, func(time.Duration)) {
	t.Helper()
	var mu sync.Mutex
	var jumped time.Duration
	real, began := bootClock, time.Now()
	bootClock = func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Since(began) + jumped
	}
	l, err := New(b, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil && !errors.Is(err, ErrClosed) {
			t.Errorf("Close: %v", err)
		}
		synctest.Wait() // nobody reads it any more
		bootClock = real
	})
	return l, func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		jumped += d
	}
}

func must(t *testing.T, l Locker, opts ...Option) *Handle {
	t.Helper()
	h, err := l.Acquire(t.Context(), "n", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// until waits for a condition that some goroutine brings about.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for began := time.Now(); !cond(); {
		if time.Since(began) > 10*time.Second {
			t.Fatalf("waited 10s for %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func wantErr(t *testing.T, what string, err error, is ...error) {
	t.Helper()
	for _, target := range is {
		if !errors.Is(err, target) {
			t.Errorf("%s: %v, want %v", what, err, target)
		}
	}
	if len(is) == 0 && err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func causeOf(err error) LossCause {
	var lost *LostError
	if errors.As(err, &lost) {
		return lost.Cause
	}
	return 255
}
