// Package memory keeps locks in the memory of one process: for tests of code
// that takes locks, for programs of one process, and to be read. It is the
// contract of [lock.Backend] in its shortest form, and passes the same suite as
// the others.
//
// # How it works
//
// A [Store] has an entry for each name that is held. An entry has the holder's
// ID, its token and the moment when its time to live ends; it goes when it is
// released, broken, or found to have run out. Tokens come from one counter of
// the store.
//
// # How it waits
//
// Acquire blocks in the entry's queue, first come first served. Who releases,
// or finds that the entry has run out, makes the first of the queue its holder.
//
// # What breaks it
//
// Nothing outside of the process sees these locks. When the process ends, they
// and the counter end with it, which is why its tokens are only
// FencingVolatile.
//
// # URL and options
//
//	memory://name
//
// is one store per name and process; it has no parameters of its own. Locks of
// the same store exclude each other whichever Locker took them.
package memory

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/interlock-go/lock"
)

// Store is a set of locks; the zero value is an empty one. Its methods may be called from many goroutines.
type Store struct {
	mu    sync.Mutex
	names map[string]*entry
	last  lock.Token
}

// entry is a name that is held.
type entry struct {
	id, owner string
	token     lock.Token
	until     lock.Instant
	lost      func(lock.LossCause, error)
	queue     []*waiter
}

type waiter struct {
	req     lock.Request
	granted chan lock.Grant // holds one
	look    chan struct{}   // holds one: the holder's time was cut
}

// NewStore returns an empty Store.
func NewStore() *Store { return new(Store) }

// New returns a Locker on the store, which may have others.
func New(_ context.Context, s *Store, opts ...lock.SetupOption) (lock.Locker, error) {
	b, err := NewBackend(s)
	if err != nil {
		return nil, err
	}
	return lock.New(b, opts...)
}

// NewBackend returns a Backend on the store, which may have others.
func NewBackend(s *Store) (lock.Backend, error) {
	if s == nil {
		return nil, fmt.Errorf("memory: %w: a nil Store", lock.ErrInvalid)
	}
	return backend{s}, nil
}

// Break takes the lock away from its holder, who is told, and gives it to the
// first who waits. It reports whether there was a holder.
func (s *Store) Break(name string) bool {
	s.mu.Lock()
	e := s.live(name)
	if e == nil {
		s.mu.Unlock()
		return false
	}
	lost := e.lost
	e.id = "" // nobody's, until the holder has been told
	s.mu.Unlock()
	lost(lock.CauseTaken, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names[name] == e && e.id == "" {
		s.pass(name, e)
	}
	return true
}

// live returns the entry of name, or nil if nobody holds it. s.mu is held.
func (s *Store) live(name string) *entry {
	for {
		e := s.names[name]
		if e == nil || !e.until.Reached(lock.Now()) {
			return e
		}
		s.pass(name, e)
	}
}

// pass gives the entry to the first of its queue, or removes it. s.mu is held.
func (s *Store) pass(name string, e *entry) {
	if len(e.queue) == 0 {
		delete(s.names, name)
		return
	}
	w := e.queue[0]
	e.queue = e.queue[1:]
	w.granted <- s.grant(w.req, e)
}

// grant makes the request the holder of the entry. s.mu is held.
func (s *Store) grant(req lock.Request, e *entry) lock.Grant {
	now := lock.Now()
	if e.id != req.ID {
		s.last++
		e.until = now
		e.id, e.owner, e.token, e.lost = req.ID, req.Owner, s.last, req.Lost
	}
	if until := now.Add(req.TTL); until.Sub(e.until) > 0 { // a second copy of a request cuts nothing
		e.until = until
	}
	return lock.Grant{Lease: lease{s, req.Name, req.ID}, Token: e.token, Sent: now}
}

type backend struct{ s *Store }

// Acquire takes a free lock, or one that the request holds already; else it
// queues, if the request is willing to wait.
func (b backend) Acquire(ctx context.Context, req lock.Request) (lock.Grant, error) {
	s := b.s
	s.mu.Lock()
	e := s.live(req.Name)
	if e == nil {
		e = new(entry)
		if s.names == nil {
			s.names = make(map[string]*entry)
		}
		s.names[req.Name] = e
	}
	left := -lock.Now().Sub(e.until)
	if e.id == req.ID || e.token == 0 {
		defer s.mu.Unlock()
		return s.grant(req, e), nil
	}
	if !req.Wait {
		defer s.mu.Unlock()
		return lock.Grant{}, &lock.HeldError{Owner: e.owner, Left: left}
	}
	w := &waiter{req, make(chan lock.Grant, 1), make(chan struct{}, 1)}
	e.queue = append(e.queue, w)
	held := &lock.HeldError{Owner: e.owner, Left: left}
	s.mu.Unlock()
	req.Held(held)
	return s.wait(ctx, w, left)
}

// wait blocks until the request is granted, and looks when the holder's time to
// live should have ended.
func (s *Store) wait(ctx context.Context, w *waiter, left time.Duration) (lock.Grant, error) {
	for {
		timer := time.NewTimer(left)
		select {
		case g := <-w.granted:
			timer.Stop()
			return g, nil
		case <-w.look:
			left = s.left(w.req.Name)
		case <-timer.C:
			left = s.left(w.req.Name)
		case <-ctx.Done():
			timer.Stop()
			return s.giveUp(ctx, w)
		}
	}
}

// left is for how long the name's holder has it, after those who had it for long
// enough have lost it.
func (s *Store) left(name string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.live(name); e != nil {
		return max(-lock.Now().Sub(e.until), time.Millisecond)
	}
	return time.Millisecond
}

// giveUp takes a waiter out of the queue, unless it was granted at the same
// moment.
func (s *Store) giveUp(ctx context.Context, w *waiter) (lock.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case g := <-w.granted:
		return g, nil
	default:
	}
	e := s.live(w.req.Name)
	if e == nil {
		return lock.Grant{}, ctx.Err()
	}
	e.queue = slices.DeleteFunc(e.queue, func(o *waiter) bool { return o == w })
	return lock.Grant{}, &lock.HeldError{Owner: e.owner, Left: -lock.Now().Sub(e.until)}
}

// Guarantees are those of a clock and a counter in one process.
func (b backend) Guarantees() lock.Guarantees {
	return lock.Guarantees{
		Backend: "memory", Fencing: lock.FencingVolatile, Ends: lock.EndsClock,
		MinTTL: 100 * time.Millisecond, MaxTTL: 30 * 24 * time.Hour,
		FIFO: true, Extend: true, Survives: lock.FaultClock,
	}
}

// Close does nothing: the store may have other users.
func (b backend) Close() error { return nil }

type lease struct {
	s        *Store
	name, id string
}

// Renew moves the end of a lease that is still there.
func (l lease) Renew(_ context.Context, ttl time.Duration) error {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	e := l.s.live(l.name)
	if e == nil || e.id != l.id {
		return lock.ErrLost
	}
	until := lock.Now().Add(ttl)
	if e.until.Sub(until) > 0 {
		for _, w := range e.queue {
			select {
			case w.look <- struct{}{}:
			default:
			}
		}
	}
	e.until = until
	return nil
}

// Release gives the lock to the next.
func (l lease) Release(context.Context) error {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	e := l.s.live(l.name)
	if e == nil || e.id != l.id {
		return lock.ErrLost
	}
	l.s.pass(l.name, e)
	return nil
}
