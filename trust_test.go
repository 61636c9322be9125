package lock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

var errAway = errors.New("fake: no answer")

// Rule 1, with TTL 10 s: trust is 10 s - 1 % - 2 ms.
const (
	tenTTL   = 10 * time.Second
	tenTrust = tenTTL - 102*time.Millisecond
)

func TestHungRenewalEndsTrustInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		hung := make(chan struct{})
		f.renew = func(context.Context, time.Duration) error { <-hung; return nil } // obeys no ctx
		l, _ := on(t, f)
		began := time.Now()
		h := must(t, l, TTL(tenTTL))
		<-h.Context().Done()
		if took := time.Since(began); took != tenTrust {
			t.Errorf("Context ended after %v, want %v", took, tenTrust)
		}
		if causeOf(context.Cause(h.Context())) != CauseExpired {
			t.Errorf("cause %v", context.Cause(h.Context()))
		}
		if _, n, _ := f.counts(); n < 2 || n > flightMost {
			t.Errorf("%d renewals were sent while none was answered, want 2 to %d", n, flightMost)
		}
		close(hung) // the answers come at last, and say nil
		synctest.Wait()
		wantErr(t, "Err after late answers", h.Err(), ErrLost)
		wantErr(t, "Release", h.Release(t.Context()), ErrLost)
	})
}

func TestOutageShorterThanTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		began := time.Now()
		f.renew = func(context.Context, time.Duration) error {
			if since := time.Since(began); since > 3*time.Second && since < 9800*time.Millisecond {
				return errAway
			}
			return nil
		}
		l, _ := on(t, f)
		h := must(t, l, TTL(tenTTL))
		time.Sleep(60 * time.Second)
		wantErr(t, "Err", h.Err())
		wantErr(t, "Release", h.Release(t.Context()))
	})
}

func TestTrustCountsFromTheSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.acquire = func(context.Context, Request) (Grant, error) { time.Sleep(4 * time.Second); return Grant{}, nil }
		f.renew = func(context.Context, time.Duration) error { return errAway }
		l, _ := on(t, f)
		began := time.Now()
		h := must(t, l, TTL(tenTTL))
		if want := began.Add(tenTrust); !h.Deadline().Equal(want) {
			t.Errorf("Deadline %v after the start, want %v", h.Deadline().Sub(began), tenTrust)
		}
		<-h.Context().Done()
		if took := time.Since(began); took != tenTrust {
			t.Errorf("Context ended after %v, want %v", took, tenTrust)
		}
	})
}

func TestReplySlowerThanTTL(t *testing.T) {
	for _, gone := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			first := true
			f.acquire = func(context.Context, Request) (Grant, error) {
				if first {
					first = false
					time.Sleep(tenTTL + time.Second)
				}
				return Grant{}, nil
			}
			confirmed := 0
			f.renew = func(context.Context, time.Duration) error {
				confirmed++
				if gone {
					return ErrLost
				}
				return nil
			}
			l, _ := on(t, f)
			h := must(t, l, TTL(tenTTL))
			wantErr(t, "Err", h.Err())
			synctest.Wait()
			n, _, releases := f.counts()
			switch {
			case confirmed != 1:
				t.Errorf("gone=%v: the late grant was confirmed %d times, want once", gone, confirmed)
			case gone && (n != 2 || f.requests[0].ID == f.requests[1].ID):
				t.Errorf("%d requests, want a second with an ID of its own", n)
			case gone && releases != 1:
				t.Errorf("the lease that ran out was cleaned up %d times, want once", releases)
			case !gone && n != 1:
				t.Errorf("%d requests although the store confirmed the first", n)
			}
		})
	}
}

func TestTryWithReplySlowerThanTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.acquire = func(context.Context, Request) (Grant, error) { time.Sleep(tenTTL + time.Second); return Grant{}, nil }
		f.renew = func(context.Context, time.Duration) error { return ErrLost }
		l, _ := on(t, f)
		h, err := l.TryAcquire(t.Context(), "n", TTL(tenTTL))
		wantErr(t, "TryAcquire", err, ErrUnavailable)
		if h != nil || errors.Is(err, ErrHeld) {
			t.Errorf("handle %v, error %v", h, err)
		}
	})
}

func TestSuspendEndsTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, jump := on(t, newFake())
		exact := must(t, l, TTL(tenTTL))
		h, err := l.Acquire(t.Context(), "other", TTL(tenTTL))
		if err != nil {
			t.Fatal(err)
		}
		ended := h.Context().Done()
		time.Sleep(time.Second + 100*time.Millisecond)
		jump(time.Minute) // the machine slept; Go's timers did not see it
		woke := time.Now()
		wantErr(t, "Err at once", exact.Err(), ErrLost)
		<-ended
		if took := time.Since(woke); took > time.Second {
			t.Errorf("Context ended %v after the wake, want a tick of 1s at most", took)
		}
		again := must(t, l, TTL(tenTTL)) // the Locker works on
		time.Sleep(time.Minute)
		wantErr(t, "a lock taken after the wake", again.Err())
	})
}

func TestShortSuspendIsSurvivedByRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l, jump := on(t, f)
		h := must(t, l, TTL(tenTTL))
		time.Sleep(time.Second)
		jump(7 * time.Second) // trust has 1.9 s left, and the next tick comes in 1 s
		time.Sleep(time.Minute)
		wantErr(t, "Err", h.Err())
		if _, n, _ := f.counts(); n < 15 {
			t.Errorf("%d renewals in a minute of TTL/3", n)
		}
	})
}

func TestReleaseDuringRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		sent, answer := make(chan struct{}), make(chan struct{})
		f.renew = func(context.Context, time.Duration) error { sent <- struct{}{}; <-answer; return ErrLost }
		l, _ := on(t, f)
		h := must(t, l, TTL(tenTTL))
		ctx := h.Context()
		<-sent
		wantErr(t, "Release", h.Release(t.Context()))
		close(answer) // the renewal finds the lock gone: our own doing
		synctest.Wait()
		wantErr(t, "cause", context.Cause(ctx), ErrReleased)
		wantErr(t, "Err", h.Err(), ErrReleased)
		wantErr(t, "Release again", h.Release(t.Context()))
		time.Sleep(time.Minute)
		if _, n, _ := f.counts(); n != 1 {
			t.Errorf("%d renewals, want none after Release began", n)
		}
	})
}

func TestContextEndsBeforeTheReleaseIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l, _ := on(t, f)
		h := must(t, l)
		ctx := h.Context()
		f.release = func(context.Context) error {
			wantErr(t, "cause at the send", context.Cause(ctx), ErrReleased)
			wantErr(t, "Err at the send", h.Err(), ErrReleased)
			return nil
		}
		wantErr(t, "Release", h.Release(t.Context()))
	})
}

func TestRenewalSaysLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.renew = func(context.Context, time.Duration) error { return ErrLost }
		l, _ := on(t, f)
		began := time.Now()
		h := must(t, l, TTL(9*time.Second))
		<-h.Context().Done()
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("told after %v, want at the first renewal, TTL/3", took)
		}
		if causeOf(h.Err()) != CauseTaken {
			t.Errorf("Err %v", h.Err())
		}
	})
}

func TestStoreTellsOfLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l, _ := on(t, f)
		h := must(t, l)
		gone := errors.New("session 42 closed")
		f.requests[0].Lost(CauseSessionEnded, gone)
		wantErr(t, "Err", h.Err(), ErrLost, gone)
		if causeOf(h.Err()) != CauseSessionEnded {
			t.Errorf("Err %v", h.Err())
		}
		f.requests[0].Lost(CauseTaken, nil)
		if causeOf(h.Release(t.Context())) != CauseSessionEnded {
			t.Errorf("the first cause did not stay")
		}
	})
}

func TestLostBeforeAcquireReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.acquire = func(_ context.Context, req Request) (Grant, error) {
			if len(f.requests) == 1 {
				req.Lost(CauseTaken, nil)
			}
			return Grant{}, nil
		}
		l, _ := on(t, f)
		h := must(t, l)
		wantErr(t, "Err", h.Err())
		if n, _, _ := f.counts(); n != 2 {
			t.Errorf("%d requests, want a second after the first was lost in flight", n)
		}
	})
}

func TestNoRenewEndsAfterOneTTL(t *testing.T) {
	for _, ends := range []Ends{EndsClock, EndsProcess} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.guarantees.Ends = ends
			l, _ := on(t, f)
			began := time.Now()
			h := must(t, l, TTL(tenTTL), NoRenew())
			<-h.Context().Done()
			if took := time.Since(began); took != tenTrust {
				t.Errorf("%v: ended after %v, want %v", ends, took, tenTrust)
			}
			synctest.Wait()
			if _, _, n := f.counts(); n != 0 {
				t.Errorf("%v: released under work that may still run", ends)
			}
			time.Sleep(time.Second)
			if _, renewals, n := f.counts(); n != 1 || renewals != 0 {
				t.Errorf("%v: %d releases, %d renewals, want 1 and 0 after the TTL", ends, n, renewals)
			}
		})
	}
}

func TestNoClockNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.guarantees.Ends = EndsProcess
		f.renew = func(context.Context, time.Duration) error { return errAway }
		l, jump := on(t, f)
		h := must(t, l, TTL(time.Second))
		jump(time.Hour)
		time.Sleep(time.Hour)
		wantErr(t, "Err", h.Err())
		if !h.Deadline().IsZero() {
			t.Errorf("Deadline %v, want none", h.Deadline())
		}
	})
}

func TestMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l, _ := on(t, f)
		began := time.Now()
		h := must(t, l, TTL(tenTTL), MaxHold(25*time.Second))
		<-h.Context().Done()
		if took := time.Since(began); took != 25*time.Second || causeOf(h.Err()) != CauseMaxHold {
			t.Errorf("ended after %v with %v", took, h.Err())
		}
		synctest.Wait()
		_, renewals, releases := f.counts()
		if releases != 0 {
			t.Error("the entry was freed under running work")
		}
		time.Sleep(time.Minute)
		if _, n, _ := f.counts(); n != renewals {
			t.Error("renewal went on after MaxHold")
		}
		wantErr(t, "Release", h.Release(t.Context()), ErrLost)
	})
}

func TestMinHold(t *testing.T) {
	for _, g := range []Guarantees{{Ends: EndsClock, Extend: true}, {Ends: EndsClock}, {Ends: EndsSession}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.guarantees.Ends, f.guarantees.Extend = g.Ends, g.Extend
			l, _ := on(t, f)
			h := must(t, l, TTL(tenTTL), MinHold(time.Minute))
			time.Sleep(time.Second)
			began := time.Now()
			wantErr(t, "Release", h.Release(t.Context()))
			wantErr(t, "Release again", h.Release(t.Context()))
			wantErr(t, "Err", h.Err(), ErrReleased)
			if time.Since(began) != 0 {
				t.Error("Release waited for MinHold")
			}
			time.Sleep(58 * time.Second)
			_, renewals, releases := f.counts()
			if releases != 0 {
				t.Errorf("%+v: freed before MinHold", g)
			}
			switch {
			case g.Extend && (renewals != 1 || f.renewals[0] != 59*time.Second):
				t.Errorf("kept by %v, want one renewal for the 59 s that are left", f.renewals)
			case g.Ends == EndsClock && !g.Extend && renewals < 15:
				t.Errorf("kept by %d renewals, want one each TTL/3", renewals)
			case g.Ends == EndsSession && renewals != 0:
				t.Errorf("renewed %d times where no clock ends the lock", renewals)
			}
			time.Sleep(2 * time.Second)
			if _, _, n := f.counts(); n != 1 {
				t.Errorf("%+v: %d releases after MinHold, want 1", g, n)
			}
		})
	}
}

func TestGraceIsForTheStoreOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.renew = func(context.Context, time.Duration) error { return errAway }
		l, _ := on(t, f)
		began := time.Now()
		h := must(t, l, TTL(tenTTL), Grace(5*time.Second))
		if f.requests[0].TTL != 15*time.Second || h.TTL() != tenTTL {
			t.Errorf("the store was asked for %v, the handle says %v", f.requests[0].TTL, h.TTL())
		}
		<-h.Context().Done()
		if took := time.Since(began); took != tenTrust {
			t.Errorf("trusted for %v, want %v", took, tenTrust)
		}
		if f.renewals[0] != 15*time.Second {
			t.Errorf("renewed for %v", f.renewals[0])
		}
	})
}

func TestExtend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l, _ := on(t, f)
		h := must(t, l, TTL(tenTTL), NoRenew())
		time.Sleep(time.Second)
		wantErr(t, "Extend", h.Extend(t.Context(), time.Minute))
		if got := time.Until(h.Deadline()); got != time.Minute-602*time.Millisecond {
			t.Errorf("trusted for %v more", got)
		}
		// Shortened, and the answer lost: the store may have done it.
		f.renew = func(context.Context, time.Duration) error { return errAway }
		wantErr(t, "Extend without answer", h.Extend(t.Context(), 5*time.Second), ErrUnavailable)
		if got := time.Until(h.Deadline()); got != 5*time.Second-52*time.Millisecond {
			t.Errorf("trusted for %v after a shortening that may have been done", got)
		}
		f.renew = nil
		wantErr(t, "zero", h.Extend(t.Context(), 0), ErrInvalid)
		wantErr(t, "too long", h.Extend(t.Context(), 2*time.Hour), ErrInvalid)
		wantErr(t, "microseconds", h.Extend(t.Context(), time.Second+time.Microsecond), ErrInvalid)
		time.Sleep(time.Minute)
		n := len(f.renewals)
		wantErr(t, "after the end", h.Extend(t.Context(), tenTTL), ErrLost)
		if len(f.renewals) != n {
			t.Error("a lock that ran out was renewed")
		}
	})
}

func TestExtendWhereTheTTLIsFixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.guarantees.Extend = false
		l, _ := on(t, f)
		h := must(t, l, TTL(tenTTL))
		wantErr(t, "same TTL", h.Extend(t.Context(), tenTTL))
		wantErr(t, "another TTL", h.Extend(t.Context(), 2*tenTTL), ErrUnsupported)
	})
}

func TestExtendsInTheAirTogetherCountWithTheShortest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l, _ := on(t, f)
		h := must(t, l, TTL(tenTTL), NoRenew())
		land := map[time.Duration]chan struct{}{time.Minute: make(chan struct{}), time.Second: make(chan struct{})}
		f.renew = func(_ context.Context, ttl time.Duration) error { <-land[ttl]; return nil }
		for _, ttl := range []time.Duration{time.Minute, time.Second} {
			go func() { wantErr(t, "Extend", h.Extend(t.Context(), ttl)) }()
			synctest.Wait()
		}
		close(land[time.Second]) // answered first, but perhaps carried out last
		synctest.Wait()
		close(land[time.Minute])
		synctest.Wait()
		if got := time.Until(h.Deadline()); got > time.Second {
			t.Errorf("trusted for %v although the shorter request may have been the last", got)
		}
	})
}

func TestUnansweredShorterExtendBoundsTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		l, _ := on(t, f)
		h := must(t, l, TTL(tenTTL), NoRenew())
		f.renew = func(context.Context, time.Duration) error { return errAway }
		wantErr(t, "Extend without an answer", h.Extend(t.Context(), 2*time.Second), ErrUnavailable)
		f.renew = nil
		wantErr(t, "Extend", h.Extend(t.Context(), time.Minute))
		if got := time.Until(h.Deadline()); got > 2*time.Second {
			t.Errorf("trusted for %v although the lost request for 2s may still arrive", got)
		}
	})
}

func TestUnansweredAcquireBoundsExtend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.acquire = func(_ context.Context, req Request) (Grant, error) {
			if len(f.requests) == 1 {
				return Grant{Lease: fakeLease{f, req.ID}}, ErrUnavailable
			}
			return Grant{}, nil
		}
		l, _ := on(t, f)
		h := must(t, l, TTL(time.Second), NoRenew())
		wantErr(t, "Extend", h.Extend(t.Context(), time.Minute))
		if got := time.Until(h.Deadline()); got > time.Second {
			t.Errorf("trusted for %v although a copy of the acquire for 1s may still arrive", got)
		}
	})
}

func TestReleaseWithoutAnswerUntilTheEndIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.release = func(context.Context) error { time.Sleep(3 * time.Second); return ErrLost } // it ended by itself
		l, _ := on(t, f)
		h := must(t, l, TTL(time.Second))
		wantErr(t, "Err", h.Err())
		wantErr(t, "Release", h.Release(t.Context()))
		wantErr(t, "Err", h.Err(), ErrReleased)
	})
}
