package conformance_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock"
)

// over is closed when what flawed lockers leave behind has to go.
var over = make(chan struct{})

// flawed puts a broken Backend over a right one.
func flawed(b lock.Backend, flaw string) lock.Backend {
	f := &flawedBackend{Backend: b, flaw: flaw, held: make(map[string]int), one: make(chan struct{}, 1)}
	if flaw == "trusts its lock for too long" {
		return overconfident{f}
	}
	return f
}

// overconfident trusts a lock for ten times its TTL.
type overconfident struct{ *flawedBackend }

func (overconfident) Margin(ttl time.Duration) time.Duration { return -9 * ttl }

type flawedBackend struct {
	lock.Backend
	flaw   string
	calls  atomic.Int64
	broken atomic.Bool
	one    chan struct{} // a pool of one connection

	mu   sync.Mutex
	held map[string]int
}

func (b *flawedBackend) Guarantees() lock.Guarantees {
	g := b.Backend.Guarantees()
	switch b.flaw {
	case "promises a TTL of 1 ms":
		g.MinTTL = time.Millisecond
	case "promises first come, first served":
		g.FIFO = true
	case "changes its guarantees":
		g.MaxTTL += time.Duration(rand.IntN(1000)) * time.Second
	case "says that only the process ends a lock":
		g.Ends = lock.EndsProcess
	case "promises no tokens":
		g.Fencing = lock.FencingNone
	}
	return g
}

func (b *flawedBackend) Acquire(ctx context.Context, req lock.Request) (lock.Grant, error) {
	n := b.calls.Add(1)
	switch b.flaw {
	case "is re-entrant in a client":
		b.mu.Lock()
		again := b.held[req.Name] > 0
		b.mu.Unlock()
		if again {
			return lock.Grant{Lease: flawedLease{nothing{}, b, req}, Token: lock.Token(1000 + n)}, nil
		}
	case "keeps a lost lock in its books":
		b.mu.Lock()
		again := b.held[req.Name] > 0
		b.mu.Unlock()
		if again {
			return lock.Grant{}, &lock.HeldError{Owner: "this client"}
		}
	case "never connects again":
		if b.broken.Load() {
			return lock.Grant{}, lock.ErrUnavailable
		}
	case "waits on its only connection":
		return b.waitOnOne(ctx, req)
	case "leaks a goroutine":
		go func() { <-over }()
	}

	g, err := b.Backend.Acquire(ctx, req)

	switch b.flaw {
	case "grants a held lock at times":
		if err != nil && errors.Is(err, lock.ErrHeld) && n%5 == 0 {
			return lock.Grant{Lease: flawedLease{nothing{}, b, req}, Token: lock.Token(1<<40 + n)}, nil
		}
	case "never wakes a waiter":
		g.Retry = time.Hour
	case "polls without rest":
		g.Retry = time.Millisecond
	case "promises first come, first served":
		g.Retry = time.Duration(50+rand.IntN(300)) * time.Millisecond
	case "calls a held lock an outage":
		if errors.Is(err, lock.ErrHeld) {
			return lock.Grant{}, lock.ErrUnavailable
		}
	case "calls an outage a held lock":
		if err != nil {
			return lock.Grant{Lease: g.Lease}, &lock.HeldError{}
		}
	case "does not tell the owner":
		if errors.Is(err, lock.ErrHeld) {
			err = &lock.HeldError{Left: time.Second}
		}
	case "does not tell the time left":
		if errors.Is(err, lock.ErrHeld) {
			err = &lock.HeldError{}
		}
	case "forgets a grant when ctx ends":
		time.Sleep(time.Millisecond)
		if err == nil && ctx.Err() != nil {
			return lock.Grant{}, ctx.Err()
		}
	case "forgets a grant without an answer":
		if err != nil {
			g.Lease = nil
		}
	case "trusts from the answer":
		g.Sent = lock.Now()
	case "gives no tokens":
		g.Token = 0
	case "cuts its tokens":
		g.Token = g.Token%3 + 1
	}
	if err != nil && !errors.Is(err, lock.ErrHeld) {
		b.broken.Store(true)
	}
	if g.Lease != nil {
		if err == nil {
			b.mu.Lock()
			b.held[req.Name]++
			b.mu.Unlock()
		}
		l := flawedLease{g.Lease, b, req}
		g.Lease = l
		if b.flaw == "has a goroutine for each lock" && err == nil {
			done := make(chan struct{})
			go func() { <-done }()
			g.Lease = &guardedLease{flawedLease: l, done: done}
		}
	}
	return g, err
}

// waitOnOne has a pool of one connection, and keeps it while it waits.
func (b *flawedBackend) waitOnOne(ctx context.Context, req lock.Request) (lock.Grant, error) {
	b.one <- struct{}{}
	defer func() { <-b.one }()
	for {
		g, err := b.Backend.Acquire(ctx, req)
		if g.Lease != nil {
			g.Lease = flawedLease{g.Lease, b, req}
		}
		if !errors.Is(err, lock.ErrHeld) || !req.Wait || ctx.Err() != nil {
			return g, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

type flawedLease struct {
	lock.Lease
	b   *flawedBackend
	req lock.Request
}

func (l flawedLease) Renew(ctx context.Context, ttl time.Duration) error {
	switch l.b.flaw {
	case "renews nothing":
		return nil
	case "waits on its only connection":
		l.b.one <- struct{}{}
		defer func() { <-l.b.one }()
	case "never connects again":
		if l.b.broken.Load() {
			return lock.ErrUnavailable
		}
	}
	err := l.Lease.Renew(ctx, ttl)
	if err == nil || errors.Is(err, lock.ErrLost) {
		return err
	}
	l.b.broken.Store(true)
	if l.b.flaw == "takes an outage for a loss" {
		return lock.ErrLost
	}
	return err
}

func (l flawedLease) Release(ctx context.Context) error {
	switch l.b.flaw {
	case "waits on its only connection":
		l.b.one <- struct{}{}
		defer func() { <-l.b.one }()
	case "never expires, and releases slowly":
		time.Sleep(20 * time.Millisecond)
	}
	err := l.Lease.Release(ctx)
	if err == nil || l.b.flaw != "keeps a lost lock in its books" {
		l.b.mu.Lock()
		l.b.held[l.req.Name]--
		l.b.mu.Unlock()
	}
	switch l.b.flaw {
	case "takes every release for a loss":
		return lock.ErrLost
	case "takes every release for done":
		return nil
	case "fails the first release":
		if !l.b.broken.Swap(true) {
			return lock.ErrUnavailable
		}
	}
	return err
}

// nothing is a lease that the store knows nothing of.
type nothing struct{}

func (nothing) Renew(context.Context, time.Duration) error { return nil }
func (nothing) Release(context.Context) error              { return nil }

// guardedLease has a goroutine.
type guardedLease struct {
	flawedLease
	done chan struct{}
	once sync.Once
}

func (l *guardedLease) Release(ctx context.Context) error {
	l.once.Do(func() { close(l.done) })
	return l.flawedLease.Release(ctx)
}
