package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock"
)

// leases are the leases of a Locker, one for each TTL in use and those that are
// on their way out.
type leases struct {
	mu      sync.Mutex
	classes map[time.Duration]*class
	ending  map[*session]bool // retired, and carrying locks still
	bg      sync.WaitGroup    // revocations
	closed  bool
}

// class is a TTL in use.
type class struct {
	making chan struct{} // holds one: a lease is being made or confirmed
	cur    *session      // nil: none
}

// session is a lease, with the locks and waiters that it carries.
type session struct {
	id  clientv3.LeaseID
	ttl time.Duration

	// Under leases.mu:
	confirmed lock.Instant // when the last request was sent that surely renewed it
	live      int          // locks and waiters whose release has not begun
	retired   bool         // takes no new ones
	renewing  bool         // by one of its waiters
}

// margin is for what the servers' clocks run faster than ours, and their timers'
// granularity.
func margin(ttl time.Duration) time.Duration { return ttl/100 + 100*time.Millisecond }

// over reports whether the lease can no longer be trusted: then it never is
// again, even if the servers still have it. leases.mu is held.
func (s *session) over() bool { return s.confirmed.Add(s.ttl - margin(s.ttl)).Reached(lock.Now()) }

// enter returns a lease that was confirmed a moment ago, and counts one more on
// it.
func (b *backend) enter(ctx context.Context, ttl time.Duration) (*session, error) {
	c, err := b.class(ttl)
	if err != nil {
		return nil, err
	}
	select {
	case c.making <- struct{}{}:
		defer func() { <-c.making }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	l := &b.leases
	l.mu.Lock()
	if s := c.cur; s != nil {
		if s.over() {
			b.retire(s)
		} else if lock.Now().Sub(s.confirmed) <= ttl/10 {
			s.live++
			l.mu.Unlock()
			return s, nil
		} else if s.live == 0 { // to make a new one is one round trip, to confirm it two
			b.retire(s)
		} else {
			s.live++
			l.mu.Unlock()
			err := b.confirm(ctx, s, nil)
			if err == nil {
				return s, nil
			}
			b.leave(s)
			if !errors.Is(err, lock.ErrLost) {
				return nil, err
			}
			l.mu.Lock()
		}
	}
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	sent := lock.Now()
	grant, err := b.client.Grant(ctx, int64(ttl/time.Second))
	if err != nil {
		return nil, mapped(err)
	}
	s := &session{id: grant.ID, ttl: time.Duration(grant.TTL) * time.Second, confirmed: sent, live: 1}
	l.mu.Lock()
	c.cur = s
	l.mu.Unlock()
	if s.ttl != ttl {
		b.leave(s)
		return nil, fmt.Errorf("%w: the servers make %v of a TTL of %v, which would block others for longer: ask for %v or more", lock.ErrUnsupported, s.ttl, ttl, s.ttl)
	}
	return s, nil
}

// class finds the TTL's class, and refuses too many.
func (b *backend) class(ttl time.Duration) (*class, error) {
	if ttl%time.Second != 0 {
		up := ttl.Truncate(time.Second) + time.Second
		return nil, fmt.Errorf("%w: etcd counts a TTL (and Grace) in whole seconds: %v is between %v and %v", lock.ErrInvalid, ttl, up-time.Second, up)
	}
	l := &b.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.classes[ttl]
	if c != nil {
		return c, nil
	}
	if len(l.classes) >= maxClasses {
		for other, c := range l.classes { // forget one that is not in use
			if len(c.making) == 0 && (c.cur == nil || c.cur.live == 0) {
				if c.cur != nil {
					b.retire(c.cur)
				}
				delete(l.classes, other)
				break
			}
		}
	}
	if len(l.classes) >= maxClasses {
		return nil, fmt.Errorf("%w: a TTL of %v would be the %dth different one in use, and each costs a lease: use another Locker", lock.ErrInvalid, ttl, maxClasses+1)
	}
	c = &class{making: make(chan struct{}, 1)}
	l.classes[ttl] = c
	return c, nil
}

// leave counts one less on a lease.
func (b *backend) leave(s *session) {
	b.leases.mu.Lock()
	defer b.leases.mu.Unlock()
	s.live--
	if s.live == 0 && s.retired {
		b.revoke(s)
	}
}

// retire keeps new locks off a lease, which ends with its last lock. leases.mu
// is held.
func (b *backend) retire(s *session) {
	if s.retired {
		return
	}
	s.retired = true
	if c := b.leases.classes[s.ttl]; c != nil && c.cur == s {
		c.cur = nil
	}
	if s.live == 0 {
		b.revoke(s)
		return
	}
	if b.leases.ending == nil {
		b.leases.ending = make(map[*session]bool)
	}
	b.leases.ending[s] = true
}

// revoke ends a lease, in the background; if that fails, the lease ends by
// itself, as nobody keeps it alive. leases.mu is held.
func (b *backend) revoke(s *session) {
	delete(b.leases.ending, s)
	if b.leases.closed {
		return
	}
	b.leases.bg.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_, _ = b.client.Revoke(ctx, s.id)
	})
}

// closeLeases ends the leases that carry nothing. One that carries a lock which was not
// released, since work under it may go on, is left to its clock.
func (b *backend) closeLeases() {
	l := &b.leases
	l.mu.Lock()
	for _, c := range l.classes {
		if c.cur != nil {
			b.retire(c.cur)
		}
	}
	l.closed = true
	l.mu.Unlock()
	l.bg.Wait()
}

// errElection says that a renewal may have been confirmed by a leader that was
// deposed.
var errElection = fmt.Errorf("%w: the cluster's leader changed during the renewal", lock.ErrUnavailable)

// chunk is how many keys are read in a transaction, of which etcd allows 128
// operations.
const chunk = 100

// confirm renews a lease and looks at the keys of holds, whose answers it puts in
// errs. It returns ErrLost if the lease is gone, and another error if nothing is
// known.
func (b *backend) confirm(ctx context.Context, s *session, holds []*hold) error {
	// An attempt on a connection that went silent must leave time for others.
	ctx, cancel := context.WithTimeout(ctx, min(max(s.ttl/8, 250*time.Millisecond), patience))
	defer cancel()
	for range 3 {
		b.leases.mu.Lock()
		over := s.over()
		if over {
			b.retire(s)
		}
		b.leases.mu.Unlock()
		if over {
			return lock.ErrLost
		}
		sent := lock.Now()
		alive, err := b.client.KeepAliveOnce(ctx, s.id)
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			b.leases.mu.Lock()
			b.retire(s)
			b.leases.mu.Unlock()
			return lock.ErrLost
		}
		if err != nil {
			return mapped(err)
		}
		same, err := b.look(ctx, alive.RaftTerm, holds)
		if err != nil {
			return err
		}
		if same {
			b.leases.mu.Lock()
			s.confirmed = sent
			b.leases.mu.Unlock()
			return nil
		}
	}
	return errElection
}

// look reads the holds' keys with linearizable reads, and reports whether all of
// these had the raft term.
func (b *backend) look(ctx context.Context, term uint64, holds []*hold) (bool, error) {
	for first := true; first || len(holds) > 0; first = false {
		part := holds[:min(len(holds), chunk)]
		holds = holds[len(part):]
		if len(part) == 0 { // any linearizable read will do
			res, err := b.client.Get(ctx, b.void(""), clientv3.WithCountOnly())
			if err != nil {
				return false, mapped(err)
			}
			return res.Header.RaftTerm == term, nil
		}
		ops := make([]clientv3.Op, len(part))
		for i, h := range part {
			ops[i] = clientv3.OpGet(h.key, clientv3.WithKeysOnly())
		}
		res, err := b.client.Txn(ctx).Then(ops...).Commit()
		if err != nil {
			return false, mapped(err)
		}
		if res.Header.RaftTerm != term {
			return false, nil
		}
		for i, h := range part {
			kvs := res.Responses[i].GetResponseRange().Kvs
			h.gone = len(kvs) == 0 || kvs[0].CreateRevision != h.rev
		}
	}
	return true, nil
}
