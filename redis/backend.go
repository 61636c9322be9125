package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock"
)

const (
	// offerTTL is how long a waiter that was offered the lock has to take it.
	offerTTL = 500 * time.Millisecond
	// queueSlack is how long a waiter stays queued past the moment at which it
	// means to look again.
	queueSlack = 2 * time.Second
	// deadSlack is added to a TTL before an entry that the server does not
	// speak of counts as dead: the server starts the TTL when the request
	// arrives, and its clock may be slower.
	deadSlack = 100 * time.Millisecond

	// leaveQueue stands for a channel where there is none to name, but an
	// earlier attempt may have queued.
	leaveQueue = "-"
)

var slackMS = queueSlack.Milliseconds()

// backend is package redis's lock.Backend.
type backend struct {
	client   goredis.UniversalClient
	owned    bool // the opener made client
	prefix   string
	cluster  bool
	counters *counters // nil: no tokens
	sub      *subscription
	channels string // what the names of channels begin with
	countOK  string // "1": PUBLISH counts all who listen
	mute     bool   // the user may not publish, so its Lockers look for themselves

	evicts      atomic.Pointer[error] // what the last look at a server of the caller's found
	replicas    int                   // how many must confirm a lock
	replicaWait time.Duration         // and within what time
}

var (
	_ lock.Backend      = (*backend)(nil)
	_ lock.BatchRenewer = (*backend)(nil)
)

func (b *backend) Guarantees() lock.Guarantees {
	g := lock.Guarantees{
		Backend: "redis",
		Ends:    lock.EndsClock,
		MinTTL:  100 * time.Millisecond,
		MaxTTL:  30 * 24 * time.Hour,
		Extend:  true,
	}
	if b.counters != nil {
		g.Fencing = lock.FencingVolatile
	}
	return g
}

// Acquire sends the script once; twice for the first wait that finds the lock
// held, which brings up the subscription in between, so that a Locker that never
// waits has none.
func (b *backend) Acquire(ctx context.Context, req lock.Request) (lock.Grant, error) {
	if evicts := b.evicts.Load(); evicts != nil && *evicts != nil {
		return lock.Grant{}, *evicts
	}
	channel := ""
	if req.Wait && !b.mute {
		channel = b.sub.join(req.ID, req.Wake)
	}
	g, err := b.try(ctx, &req, channel)
	var held *lock.HeldError
	isHeld := errors.As(err, &held)
	if isHeld && req.Wait && g.Lease == nil {
		if !b.mute && b.sub.start(ctx) {
			channel = b.sub.join(req.ID, req.Wake)
			again := lock.Now()
			g, err = b.try(ctx, &req, channel)
			g.Sent = again
			isHeld = errors.Is(err, lock.ErrHeld)
		} else {
			g.Retry = lookOften(held.Left)
		}
	}
	if channel != "" && !isHeld && (err == nil || g.Lease == nil) {
		b.sub.leave(req.ID)
	}
	return g, err
}

// try sends the script. Channel is [subscription.join]'s answer.
func (b *backend) try(ctx context.Context, req *lock.Request, channel string) (lock.Grant, error) {
	l := &lease{b: b, keys: b.keysOf(req.Name), id: req.ID, owner: req.Owner, channel: channel, ttl: req.TTL}
	l.ttlMS, l.offerMS = req.TTL.Milliseconds(), min(offerTTL, req.TTL).Milliseconds()
	c := make(call, 2, 13)
	c = append(c, 3, &l.keys.lock, &l.keys.queue, &l.keys.waiters)
	if b.counters != nil {
		c[2] = 4
		c = append(c, b.counters.key(l.keys.lock))
	}
	c = append(c, &l.id, &l.owner, &l.ttlMS, &l.channel, &l.offerMS, &slackMS)

	sent := time.Now()
	l.dead = sent.Add(req.TTL + deadSlack)
	reply, err := b.run(ctx, &acquireScript, c)
	if err != nil {
		if unsent(err) {
			return lock.Grant{}, mapped(err)
		}
		l.unsure = !answered(err)
		return lock.Grant{Lease: l}, mapped(err)
	}
	if token, granted := reply.(int64); granted {
		return lock.Grant{Lease: l, Token: lock.Token(token)}, nil
	}
	held, rank, err := heldBy(req.Name, reply)
	if err != nil {
		return lock.Grant{Lease: l}, err
	}
	if !l.queues() {
		return lock.Grant{}, held
	}
	l.dead = sent.Add(held.Left + offerTTL + queueSlack + deadSlack)
	return lock.Grant{Lease: l, Retry: lookAgain(held.Left, rank)}, held
}

func (b *backend) Close() error {
	b.sub.close()
	if b.owned {
		return b.client.Close()
	}
	return nil
}

// lease is one acquisition at the store: held, queued, or unknown.
type lease struct {
	b         *backend
	keys      keys
	id, owner string
	unsure    bool // Acquire had no answer

	channel        string // this and the next two as Acquire sent them
	ttlMS, offerMS int64

	mu   sync.Mutex
	ttl  time.Duration // what the store was last asked for
	dead time.Time     // from when on nothing of it can be there; Go's clock, which is late after a suspend, does for that
}

// queues reports whether Acquire asked for a place in the queue.
func (l *lease) queues() bool { return l.channel != "" && l.channel != leaveQueue }

// Renew sets the time to live if the lock is still the lease's.
func (l *lease) Renew(ctx context.Context, ttl time.Duration) error {
	reply, err := l.b.run(ctx, &renewScript, l.renewal(ttl))
	return renewed(reply, err)
}

// RenewAll renews in one flight to each server.
func (b *backend) RenewAll(ctx context.Context, batch []lock.Renewal) {
	calls := make([]call, len(batch))
	for i, r := range batch {
		calls[i] = r.Lease.(*lease).renewal(r.TTL) //nolint:forcetypeassert // this backend's, by contract
	}
	b.runAll(ctx, &renewScript, calls, func(i int, reply any, err error) { batch[i].Err = renewed(reply, err) })
}

// renewal makes the script's arguments, and notes what it may do.
func (l *lease) renewal(ttl time.Duration) call {
	l.mu.Lock()
	defer l.mu.Unlock()
	shorter := ttl < l.ttl
	l.ttl = ttl
	if shorter {
		return newCall(3, &l.keys.lock, &l.keys.queue, &l.keys.waiters, &l.id, ttl.Milliseconds(), 1, &l.b.channels)
	}
	l.dead = time.Now().Add(ttl + deadSlack)
	return newCall(1, &l.keys.lock, &l.id, ttl.Milliseconds(), 0)
}

func renewed(reply any, err error) error {
	switch {
	case err != nil:
		return mapped(err)
	case reply == int64(1):
		return nil
	}
	return lock.ErrLost
}

// Release takes the lease off the lock or the queue, and passes on what it was
// offered meanwhile. After an Acquire that had no answer it is repeated until a
// late copy of that request could no longer live.
func (l *lease) Release(ctx context.Context) error {
	if l.channel != "" {
		l.b.sub.leave(l.id)
	}
	c := newCall(3, &l.keys.lock, &l.keys.queue, &l.keys.waiters, &l.id, &l.b.channels, &l.b.countOK)
	reply, err := l.b.run(ctx, &releaseScript, c)
	l.mu.Lock()
	defer l.mu.Unlock()
	over := func() bool { return !time.Now().Before(l.dead) }
	switch {
	case err != nil && over():
		return lock.ErrLost
	case err != nil:
		return mapped(err)
	case l.unsure && !over():
		return fmt.Errorf("%w: freed, but a late copy of the request may still arrive", lock.ErrUnavailable)
	case reply == int64(1):
		return nil
	}
	return lock.ErrLost
}
