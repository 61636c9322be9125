package lock

import (
	"container/heap"
	"context"
	"math"
	"sync"
	"time"
)

// scheduler looks after all held locks of a Locker, and after what is still to
// be freed, from one goroutine: it renews in batches, ends locks whose trust is
// over, and wakes often enough to find that the machine was suspended, which
// stops Go's timers.
type scheduler struct {
	e    *engine
	wake chan struct{}
	done chan struct{} // closed when run has ended

	mu       sync.Mutex
	items    schedHeap
	sleeping time.Duration // until when run sleeps
	tick     time.Duration // the longest that run may sleep
	paced    time.Duration // until when the renewals of a large round are spread out
	inHand   int           // items that run has taken and not yet put back
	deserted bool          // nothing was there when run last looked, and nothing came since
	running  bool
	stopped  bool
}

// schedItem is a held lock or a leftover in the heap. It is under scheduler.mu,
// but for h and l, which are constant.
type schedItem struct {
	h     *Handle
	l     *leftover
	at    Instant
	due   time.Duration // at, on Go's clock, as far as the two agree
	index int           // in the heap; -1: not there
}

const (
	forever    = time.Duration(math.MaxInt64)
	batchMost  = 256 // leases in one call of RenewAll
	singleMost = 64  // calls of Renew started at once
	flightMost = 3   // renewals of one lock under way at once
)

func (s *scheduler) start(e *engine) {
	s.e, s.wake, s.done = e, make(chan struct{}, 1), make(chan struct{})
	s.tick, s.paced = time.Second, math.MinInt64
}

// add enters an item, or moves it, and shortens the tick for a lock of the given
// TTL. After stop it does nothing.
func (s *scheduler) add(it *schedItem, at, now Instant, ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	if !s.running {
		s.running = true
		go s.run()
	}
	if ttl > 0 {
		s.tick = min(s.tick, max(ttl/10, time.Millisecond))
	}
	s.put(it, at, now)
	s.deserted = false
	if wakeAt := min(it.due, now.mono+s.tick); wakeAt < s.sleeping {
		s.sleeping = wakeAt
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// move changes when an item is due, if it is there.
func (s *scheduler) move(it *schedItem, at, now Instant) {
	s.mu.Lock()
	there := it.index >= 0
	s.mu.Unlock()
	if there {
		s.add(it, at, now, 0)
	}
}

func (s *scheduler) remove(it *schedItem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if it.index >= 0 {
		heap.Remove(&s.items, it.index)
	}
}

func (s *scheduler) put(it *schedItem, at, now Instant) {
	it.at = at
	it.due = forever
	if !at.IsZero() {
		it.due = now.mono - now.Sub(at)
	}
	if it.index < 0 {
		heap.Push(&s.items, it)
	} else {
		heap.Fix(&s.items, it.index)
	}
}

func (s *scheduler) stop() {
	s.mu.Lock()
	s.stopped = true
	for len(s.items) > 0 {
		heap.Pop(&s.items)
	}
	running := s.running
	s.mu.Unlock()
	if running {
		close(s.wake)
		<-s.done // it runs nobody else's code, so it ends at once
	}
}

// all returns the held locks and the leftovers of the moment, but for those that
// run has in hand.
func (s *scheduler) all() (hs []*Handle, ls []*leftover, inHand int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, it := range s.items {
		if it.h != nil {
			hs = append(hs, it.h)
		} else {
			ls = append(ls, it.l)
		}
	}
	return hs, ls, s.inHand
}

func (s *scheduler) run() {
	defer close(s.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for last := Now(); ; {
		now := Now()
		handles, leftovers := s.take(now, last)
		last = now
		flights := s.look(handles, now)
		s.send(flights, now)
		for _, l := range leftovers {
			s.e.free(l, false)
		}
		timer.Reset(s.rest())
		select {
		case <-timer.C:
		case _, open := <-s.wake:
			if !open {
				return
			}
		}
	}
}

// take removes what is due from the heap. With a renewal it takes those that are
// due soon too, so that they share its round trip.
func (s *scheduler) take(now, last Instant) (hs []*Handle, ls []*leftover) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slept := now.Sub(last) - (now.mono - last.mono); slept > time.Millisecond {
		for _, it := range s.items { // what was due by the clock that stopped
			it.due = now.mono - now.Sub(it.at)
			if it.at.IsZero() {
				it.due = forever
			}
		}
		heap.Init(&s.items)
	}
	at := now.mono
	until := at
	for len(s.items) > 0 && (s.items[0].due <= at || s.items[0].due <= until && len(hs) < batchMost) {
		it := heap.Pop(&s.items).(*schedItem)
		if it.l != nil {
			ls = append(ls, it.l)
			continue
		}
		hs = append(hs, it.h)
		if s.e.batch != nil && at >= s.paced {
			until = at + s.tick*10/24
		}
	}
	s.inHand = len(hs) + len(ls)
	return hs, ls
}

// rest is how long run may sleep.
func (s *scheduler) rest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inHand = 0
	if len(s.items) > 0 {
		at := Now().mono
		s.sleeping = min(s.items[0].due, at+s.tick)
		return s.sleeping - at
	}
	s.tick = time.Second
	if s.deserted {
		s.sleeping = forever
		return forever
	}
	// A lock that is taken soon need not wake run.
	s.sleeping, s.deserted = Now().mono+s.tick, true
	return s.tick
}

// look ends the locks that are over, puts the others back, and returns the
// renewals to be sent.
func (s *scheduler) look(hs []*Handle, now Instant) []*flight {
	var flights []*flight
	most := singleMost
	if s.e.batch != nil {
		most = batchMost
	}
	// A round of many renewals is spread over a sixth of the TTL, for the
	// store's sake.
	chunks := (len(hs) + most - 1) / most
	for _, h := range hs {
		h.mu.Lock()
		if h.state != held {
			h.mu.Unlock()
			continue
		}
		if cause, over := h.overdue(now); over {
			_ = h.loseLocked(cause, nil)
			h.mu.Unlock()
			continue
		}
		soon := now.Add(h.ttl / 24)
		if !h.renewAt.IsZero() && h.renewAt.Reached(soon) {
			if slot := len(flights) / most; slot > 0 {
				delay := time.Duration(slot) * (h.ttl / 6) / time.Duration(chunks)
				h.renewAt = now.Add(delay)
				s.spread(now, delay)
				flights = append(flights, nil) // counts for the slots
			} else {
				// If this one is not answered, another follows.
				h.renewAt = now.Add(max(h.ttl/6, 10*time.Millisecond))
				if h.inAir() < flightMost {
					flights = append(flights, h.takeOff(h.ttl))
				}
			}
		}
		s.add(&h.sched, h.due(), now, 0)
		h.mu.Unlock()
	}
	return flights[:min(len(flights), most)]
}

func (s *scheduler) spread(now Instant, delay time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paced = max(s.paced, now.mono+delay)
}

// send starts renewals. Each may last until the trust of its lock ends.
func (s *scheduler) send(fs []*flight, now Instant) {
	if len(fs) == 0 {
		return
	}
	if s.e.batch == nil {
		for _, f := range fs {
			s.e.calls.do(action(func() {
				ctx, cancel := f.context(now)
				defer cancel()
				f.sent = Now()
				f.land(f.h.lease.Renew(ctx, f.ttl+f.h.grace))
				f.tell()
			}))
		}
		return
	}
	s.e.calls.do(action(func() {
		batch := make([]Renewal, len(fs))
		longest := fs[0]
		for i, f := range fs {
			batch[i] = Renewal{Lease: f.h.lease, TTL: f.ttl + f.h.grace}
			if f.ttl > longest.ttl {
				longest = f
			}
		}
		ctx, cancel := longest.context(now)
		defer cancel()
		sent := Now()
		s.e.batch.RenewAll(ctx, batch)
		for i, f := range fs {
			f.sent = sent
			f.land(batch[i].Err)
		}
		for _, f := range fs { // an Observer must not keep others from landing
			f.tell()
		}
	}))
}

// context bounds a renewal: an answer that comes after a whole TTL is worth
// nothing.
func (f *flight) context(now Instant) (context.Context, context.CancelFunc) {
	return context.WithDeadline(context.WithoutCancel(f.h.ctx), now.Add(f.ttl).wall())
}

// schedHeap orders items by when they are due.
type schedHeap []*schedItem

func (q schedHeap) Len() int           { return len(q) }
func (q schedHeap) Less(i, j int) bool { return q[i].due < q[j].due }
func (q schedHeap) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *schedHeap) Push(x any) {
	it := x.(*schedItem)
	it.index = len(*q)
	*q = append(*q, it)
}

func (q *schedHeap) Pop() any {
	old := *q
	it := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	it.index = -1
	return it
}
