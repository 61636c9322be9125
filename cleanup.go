package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// releaseTimeout bounds one attempt to free an entry at the store.
const releaseTimeout = 5 * time.Second

// leftover is a lease that is to be freed: of a released or lost lock, or of an
// acquisition that failed. The engine tries until the store says that it is
// gone, also when nobody waits for it.
type leftover struct {
	e     *engine
	name  string
	lease Lease
	ttl   time.Duration // as the store was asked, with Grace
	sched schedItem

	mu      sync.Mutex
	also    Lease    // of an earlier request without an answer, which may still arrive: freed next
	orphan  bool     // nobody has ever held it
	unknown bool     // an earlier request for it had no answer, so "not ours" may be our own doing
	trust   Instant  // until when it was surely ours when Release began; zero: no clock ends it, or it was not held
	until   Instant  // MinHold's end, until which it is kept
	alone   bool     // it is of a lost lock, and the store's clock ends it
	kept    bool     // the store has confirmed that it is kept
	now     *freeing // the attempt under way
	gone    bool
	result  error // once gone
	retry   backoff
}

func (l *leftover) init(e *engine, name string) {
	l.e, l.name = e, name
	l.sched = schedItem{l: l, index: -1}
}

// freeing is one attempt. err is set before done is closed.
type freeing struct {
	l     *leftover
	lasts bool // leftover.lasts, when it began
	done  chan struct{}
	err   error
}

func (f *freeing) run() {
	if f.lasts {
		defer f.l.e.close.frees.Add(-1)
	}
	f.l.attempt(f)
}

func (f *freeing) late() {}

// keep makes the lease outlive its release until the given moment.
func (l *leftover) keep(until Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = until
}

// free starts an attempt to free l, or joins the one that is under way. An
// attempt that is made here, by a caller who waits for it in any case, has ended
// when free returns.
func (e *engine) free(l *leftover, here bool) *freeing {
	l.mu.Lock()
	if l.now != nil {
		defer l.mu.Unlock()
		return l.now
	}
	f := &freeing{l: l, done: make(chan struct{})}
	if l.gone || l.lease == nil || l.kept && !l.until.Reached(Now()) {
		f.err = l.result
		l.mu.Unlock()
		close(f.done)
		return f
	}
	l.now = f
	l.mu.Unlock()
	e.sched.remove(&l.sched)
	if f.lasts = l.lasts(); f.lasts {
		e.close.frees.Add(1) // the scheduler does not have it meanwhile
	}
	if here {
		f.run()
	} else {
		e.calls.do(f)
	}
	return f
}

// expire has the first attempt made when the entry should have ended by itself.
func (l *leftover) expire(at Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.alone = l.e.promise.Ends == EndsClock
	l.schedule(at)
}

func (l *leftover) schedule(at Instant) {
	l.e.sched.add(&l.sched, at, Now(), 0)
}

func (l *leftover) attempt(f *freeing) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	l.mu.Lock()
	until := l.until
	l.mu.Unlock()
	if !until.IsZero() {
		if left := -Now().Sub(until); left > 0 {
			l.hold(ctx, f, left)
			return
		}
	}
	began := l.e.timed()
	err := l.lease.Release(ctx)
	took := l.e.took(began)
	l.mu.Lock()
	l.now = nil
	switch {
	case err == nil:
		l.gone = true
	case errors.Is(err, ErrLost):
		l.gone = true
		// Without that it is our own doing, or it ended by itself before the
		// store answered.
		if !l.unknown && (l.trust.IsZero() || !l.trust.Reached(Now())) {
			l.result = err
		}
	default:
		l.unknown = true
		f.err = unavailable(err)
		if l.retry.most == 0 {
			l.retry = backoff{least: 50 * time.Millisecond, most: 2 * time.Second}
		}
		l.schedule(Now().Add(l.retry.next()))
	}
	var also Lease
	if l.gone {
		f.err = l.result
		also, l.also = l.also, nil
	}
	l.mu.Unlock()
	close(f.done)
	if also != nil {
		l.e.freeOrphan(l.name, also)
	}
	l.e.emitBehind(ctx, Event{Kind: EventRelease, Name: l.name, Took: took, Err: err})
}

// freeOrphan frees what nobody has held.
func (e *engine) freeOrphan(name string, lease Lease) {
	l := &leftover{lease: lease, orphan: true}
	l.init(e, name)
	e.free(l, false)
}

// hold keeps the lease for the rest of MinHold: at once for all of it where the
// store can, so that it also holds if this process ends.
func (l *leftover) hold(ctx context.Context, f *freeing, left time.Duration) {
	g := l.e.promise
	next := l.until
	var err error
	if g.Ends == EndsClock {
		ttl := max((left + time.Millisecond - 1).Truncate(time.Millisecond), g.MinTTL)
		if !g.Extend {
			ttl = l.ttl
			if third := Now().Add(ttl / 3); next.Sub(third) > 0 {
				next = third
			}
		}
		err = l.lease.Renew(ctx, ttl)
	}
	l.mu.Lock()
	l.now = nil
	switch {
	case err == nil:
		l.kept = g.Extend || g.Ends != EndsClock
	case errors.Is(err, ErrLost):
		l.gone, l.result = true, err
		f.err = err
	default:
		f.err = unavailable(err)
		next = Now().Add(min(100*time.Millisecond+jitter(100*time.Millisecond), left))
	}
	// On Close, what the store's clock ends is left to it.
	if !l.gone && !(err == nil && g.Ends == EndsClock && l.e.isClosing()) {
		l.schedule(next)
	}
	l.mu.Unlock()
	close(f.done)
}

// letGo ends MinHold, for Close. It reports whether the entry is to be left to
// the store, which ends it by itself: at the end of MinHold, or of a lost lock,
// under which work may still run.
func (l *leftover) letGo() (alone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.alone || l.kept && l.e.promise.Ends == EndsClock {
		return true
	}
	l.until, l.kept = Instant{}, false
	return false
}

// lasts reports whether Close should wait for l to be freed. What an acquisition
// without an answer may have left ends by its TTL, and cannot be made sure of
// sooner.
func (l *leftover) lasts() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.orphan || l.e.promise.Ends != EndsClock
}

// outcome waits for an attempt, as long as ctx lasts, or, if that has ended
// already, for a moment.
func (f *freeing) outcome(ctx context.Context) error {
	select {
	case <-f.done:
		return f.err
	default:
	}
	var moment <-chan time.Time
	ended := ctx.Done()
	if ctx.Err() != nil {
		t := time.NewTimer(100 * time.Millisecond)
		defer t.Stop()
		moment, ended = t.C, nil
	}
	select {
	case <-f.done:
		return f.err
	case <-ended:
	case <-moment:
	}
	return fmt.Errorf("%w: %w: not confirmed yet, it goes on in the background", ctxError(ctx), ErrUnavailable)
}
