package lock

import (
	"errors"
	"time"
)

// flight is a renewal under way, by the scheduler or by Extend.
type flight struct {
	h     *Handle
	ttl   time.Duration // asked for
	least time.Duration // the shortest that the store may have carried out after this one
	sent  Instant
	next  *flight // in Handle.aloft

	landed Instant
	err    error
	turned bool // renewal began to fail, or works again
}

// takeOff notes that a renewal with ttl is to be sent. Requests that are under
// way together may reach the store in any order, so trust counts with the
// shortest TTL among them. h.mu is held.
func (h *Handle) takeOff(ttl time.Duration) *flight {
	f := &flight{h: h, ttl: ttl, least: ttl, next: h.aloft}
	if h.floor > 0 {
		f.least = min(ttl, h.floor)
	}
	for o := h.aloft; o != nil; o = o.next {
		o.least = min(o.least, ttl)
		f.least = min(f.least, o.ttl)
	}
	h.aloft = f
	if entry := Now().Add(ttl + h.grace + ttl/6); entry.Sub(h.entry) > 0 {
		h.entry = entry
	}
	return f
}

// inAir counts the renewals under way. h.mu is held.
func (h *Handle) inAir() (n int) {
	for f := h.aloft; f != nil; f = f.next {
		n++
	}
	return n
}

// unanswered notes that a request for ttl may still arrive at the store. h.mu is
// held.
func (h *Handle) unanswered(ttl time.Duration) {
	if h.floor == 0 || ttl < h.floor {
		h.floor = ttl
	}
}

// land takes in what the store answered to a renewal. It tells nobody: tell
// does.
func (f *flight) land(err error) {
	h := f.h
	f.err, f.landed = err, Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	for at := &h.aloft; *at != nil; at = &(*at).next {
		if *at == f {
			*at = f.next
			break
		}
	}
	if h.state != held {
		return
	}
	if cause, over := h.overdue(f.landed); over {
		_ = h.loseLocked(cause, err) // trust that has run out never comes back
		return
	}
	switch {
	case err == nil:
		f.turned = h.failing
		h.failing = false
		if trust := f.sent.Add(f.least - h.e.margin(f.least)); h.bounded() && trust.Sub(h.trust) > 0 {
			h.trust = trust
		}
		if !h.noRenew {
			h.renewAt = f.sent.Add(f.least / 3)
		}
	case errors.Is(err, ErrLost):
		_ = h.loseLocked(CauseTaken, err)
		return
	default:
		f.turned = !h.failing
		h.failing = true
		h.unanswered(f.ttl)
		if !h.noRenew {
			h.renewAt = f.landed.Add(h.retryIn(f.landed))
		}
	}
	h.e.sched.move(&h.sched, h.due(), f.landed)
}

// retryIn is the pause after a renewal without an answer: shorter and shorter,
// so that the store has many chances to answer before trust ends. h.mu is held.
func (h *Handle) retryIn(now Instant) time.Duration {
	pause := min(h.ttl/12, time.Second)
	if h.bounded() {
		pause = min(pause, -now.Sub(h.trust)/3)
	}
	return max(pause/2+jitter(pause/2), 10*time.Millisecond)
}

// tell logs the first failure of a row and its end, and tells the Observer.
func (f *flight) tell() {
	e := f.h.e
	switch {
	case f.turned && f.err != nil:
		e.setup.log.Warn("lock: a renewal failed, trying again until trust ends", "backend", e.promise.Backend, "name", f.h.name, "err", f.err)
	case f.turned:
		e.setup.log.Info("lock: renewal works again", "backend", e.promise.Backend, "name", f.h.name)
	}
	e.emitBehind(f.h.ctx, Event{
		Kind: EventRenew, Name: f.h.name, Owner: f.h.owner, Token: f.h.token,
		Took: f.landed.Sub(f.sent), Err: f.err,
	})
}
