package memory_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/memory"
)

func open(t *testing.T, s *memory.Store, opts ...lock.SetupOption) lock.Locker {
	t.Helper()
	l, err := memory.New(t.Context(), s, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestFIFO(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, s := t.Context(), memory.NewStore()
		first, err := open(t, s).Acquire(ctx, "n")
		if err != nil {
			t.Fatal(err)
		}
		var order []int
		var wg sync.WaitGroup
		for i := range 8 {
			l := open(t, s)
			wg.Go(func() {
				h, err := l.Acquire(ctx, "n")
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i)
				if err := h.Release(ctx); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		if err := first.Release(ctx); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		for i, got := range order {
			if got != i {
				t.Fatalf("order %v", order)
			}
		}
	})
}

func TestBreakTellsTheHolderFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, s := t.Context(), memory.NewStore()
		old, err := open(t, s).Acquire(ctx, "n")
		if err != nil {
			t.Fatal(err)
		}
		oldToken, _ := old.Token()
		next := open(t, s)
		got := make(chan struct{})
		go func() {
			defer close(got)
			h, err := next.Acquire(ctx, "n")
			if err != nil {
				t.Error(err)
				return
			}
			if !errors.Is(context.Cause(old.Context()), lock.ErrLost) {
				t.Errorf("the new holder came before the old one knew: %v", context.Cause(old.Context()))
			}
			if token, _ := h.Token(); token <= oldToken {
				t.Errorf("token %d after %d", token, oldToken)
			}
		}()
		synctest.Wait()
		if !s.Break("n") {
			t.Error("Break found no holder")
		}
		<-got
		var lost *lock.LostError
		if !errors.As(old.Err(), &lost) || lost.Cause != lock.CauseTaken {
			t.Errorf("Err() = %v", old.Err())
		}
		if s.Break("other") {
			t.Error("Break found a holder where there is none")
		}
	})
}

func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, s := t.Context(), memory.NewStore()
		a, b := open(t, s), open(t, s)
		began := time.Now()
		h, err := a.Acquire(ctx, "n", lock.TTL(time.Second), lock.NoRenew())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.TryAcquire(ctx, "n"); !errors.Is(err, lock.ErrHeld) {
			t.Fatalf("TryAcquire while held: %v", err)
		}
		next, err := b.Acquire(ctx, "n")
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("the waiter had it after %v, want 1s", took)
		}
		if !errors.Is(h.Err(), lock.ErrLost) || !errors.Is(h.Release(ctx), lock.ErrLost) {
			t.Errorf("the old handle says %v", h.Err())
		}
		if err := next.Err(); err != nil {
			t.Errorf("the new holder lost it with the old one's Release: %v", err)
		}
	})
}
