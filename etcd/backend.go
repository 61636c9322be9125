package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock"
)

type backend struct {
	client *clientv3.Client
	owned  bool
	prefix string
	least  time.Duration // the servers' shortest lease
	leases leases

	mu      sync.Mutex
	waiting map[string]*hold // by ID: acquisitions whose key is or may be in a queue
}

// hold is one acquisition's key. Calls for one are made one after the other.
type hold struct {
	b       *backend
	s       *session
	id, key string
	rev     int64 // the key's create revision; 0: unknown, the key may come yet
	granted bool
	left    bool // s counts it no more
	gone    bool // the last renewal did not find the key
	asked   bool // a release had no answer
}

// Guarantees are those of a raft log.
func (b *backend) Guarantees() lock.Guarantees {
	return lock.Guarantees{
		Backend: "etcd", Fencing: lock.FencingConsensus, Ends: lock.EndsClock,
		MinTTL: b.least, MaxTTL: maxTTL, FIFO: true,
		Survives: lock.FaultRestart | lock.FaultServer | lock.FaultPartition | lock.FaultClock,
	}
}

// Margin is for the drift of the servers' clocks, and their timers.
func (b *backend) Margin(ttl time.Duration) time.Duration { return margin(ttl) }

// Acquire creates the request's key in its name's queue: only an empty one, if
// the request does not wait.
func (b *backend) Acquire(ctx context.Context, req lock.Request) (lock.Grant, error) {
	for range 3 {
		h, err := b.claim(ctx, req)
		if err != nil {
			return lock.Grant{}, err
		}
		g, err := b.ask(ctx, req, h)
		if !errors.Is(err, errAgain) {
			return g, err
		}
	}
	return lock.Grant{}, fmt.Errorf("%w: leases end as soon as they are made", lock.ErrUnavailable)
}

// errAgain says that nothing is at the servers, and that it is to be asked again
// under another lease.
var errAgain = errors.New("the lease is gone")

// claim finds or makes the request's hold, and a lease for it.
func (b *backend) claim(ctx context.Context, req lock.Request) (*hold, error) {
	b.mu.Lock()
	h := b.waiting[req.ID]
	b.mu.Unlock()
	if h != nil {
		b.leases.mu.Lock()
		usable := !h.s.over()
		b.leases.mu.Unlock()
		if usable {
			return h, nil
		}
		// Its lease is dead to us: so is the key, once it is deleted.
		if err := h.Release(ctx); err != nil && !errors.Is(err, lock.ErrLost) {
			return nil, fmt.Errorf("%w: an earlier attempt is not cleaned up yet: %w", lock.ErrUnavailable, err)
		}
		return nil, fmt.Errorf("%w: the lease ended while it waited", lock.ErrUnavailable)
	}
	s, err := b.enter(ctx, req.TTL)
	if err != nil {
		return nil, err
	}
	return &hold{b: b, s: s, id: req.ID, key: b.queue(req.Name) + req.ID}, nil
}

// ask sends the transaction.
func (b *backend) ask(ctx context.Context, req lock.Request, h *hold) (lock.Grant, error) {
	var (
		from, end = b.queue(req.Name), b.queueEnd(req.Name)
		all       = clientv3.WithRange(end)
		value     = strconv.FormatInt(req.TTL.Milliseconds(), 10) + " " + req.Owner
		notVoid   = clientv3.Compare(clientv3.CreateRevision(b.void(req.ID)), "=", 0)
		put       = clientv3.OpPut(h.key, value, clientv3.WithLease(h.s.id))
		own       = clientv3.OpGet(h.key, clientv3.WithKeysOnly())
		last      = clientv3.OpGet(from, all, clientv3.WithKeysOnly(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend), clientv3.WithLimit(2))
		first     = clientv3.OpGet(from, all, clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend), clientv3.WithLimit(1))
	)
	rctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	txn := b.client.Txn(rctx)
	if req.Wait {
		txn = txn.If(notVoid, clientv3.Compare(clientv3.CreateRevision(h.key), "=", 0)).Then(put, first, last)
	} else {
		txn = txn.If(notVoid, clientv3.Compare(clientv3.CreateRevision(from), "=", 0).WithRange(end)).Then(put)
	}
	res, err := txn.Else(own, first).Commit()
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		b.leases.mu.Lock()
		b.retire(h.s)
		b.leases.mu.Unlock()
		h.forget()
		return lock.Grant{}, errAgain
	case err != nil && refused(err):
		h.forget()
		return lock.Grant{}, mapped(err)
	case err != nil:
		return h.unfinished(), mapped(err)
	}
	kvs := res.Responses[1%len(res.Responses)].GetResponseRange().GetKvs()
	if res.Succeeded {
		h.rev = res.Header.Revision
	} else if k := res.Responses[0].GetResponseRange().Kvs; len(k) > 0 {
		h.rev = k[0].CreateRevision // an earlier copy of this request came before
	} else if len(kvs) == 0 {
		return h.unfinished(), fmt.Errorf("%w: this acquisition was given up", lock.ErrUnavailable)
	}
	if res.Succeeded && !req.Wait || len(kvs) > 0 && string(kvs[0].Key) == h.key {
		return h.grant(), nil
	}
	held := heldBy(req.Name, kvs[0])
	if !req.Wait {
		if h.rev == 0 {
			h.forget()
			return lock.Grant{}, held
		}
		return h.unfinished(), held
	}
	before := ""
	if res.Succeeded {
		before = string(res.Responses[2].GetResponseRange().Kvs[1].Key) // behind ours, since the queue has another first
	}
	return b.queued(ctx, req, h, held, before)
}

// grant makes the hold a lock.
func (h *hold) grant() lock.Grant {
	h.granted = true
	h.b.mu.Lock()
	delete(h.b.waiting, h.id)
	h.b.mu.Unlock()
	h.b.leases.mu.Lock()
	defer h.b.leases.mu.Unlock()
	return lock.Grant{Lease: h, Token: lock.Token(h.rev), TTL: h.s.ttl, Sent: h.s.confirmed}
}

// unfinished is the grant that comes with an error, and names what is or may be
// at the servers.
func (h *hold) unfinished() lock.Grant {
	h.b.mu.Lock()
	defer h.b.mu.Unlock()
	h.b.waiting[h.id] = h
	return lock.Grant{Lease: h, Retry: 50 * time.Millisecond}
}

// forget takes a hold of which nothing is at the servers off its lease.
func (h *hold) forget() {
	h.b.mu.Lock()
	delete(h.b.waiting, h.id)
	left := h.left
	h.left = true
	h.b.mu.Unlock()
	if !left {
		h.b.leave(h.s)
	}
}

func heldBy(name string, kv *mvccpb.KeyValue) *lock.HeldError {
	held := &lock.HeldError{Name: name}
	if ms, owner, ok := strings.Cut(string(kv.Value), " "); ok {
		if n, err := strconv.ParseInt(ms, 10, 64); err == nil {
			held.Owner, held.Left = owner, time.Duration(n)*time.Millisecond
		}
	}
	return held
}

// Renew confirms the lease, and that the key is still there.
func (h *hold) Renew(ctx context.Context, ttl time.Duration) error {
	batch := []lock.Renewal{{Lease: h, TTL: ttl}}
	h.b.RenewAll(ctx, batch)
	return batch[0].Err
}

// RenewAll confirms each lease once, with all its keys.
func (b *backend) RenewAll(ctx context.Context, batch []lock.Renewal) {
	bySession := make(map[*session][]int)
	for i := range batch {
		s := batch[i].Lease.(*hold).s
		bySession[s] = append(bySession[s], i)
	}
	var wg sync.WaitGroup
	for s, at := range bySession {
		wg.Go(func() {
			holds := make([]*hold, len(at))
			for i, n := range at {
				h := batch[n].Lease.(*hold)
				holds[i] = &hold{key: h.key, rev: h.rev} // another renewal of it may be under way
			}
			err := b.confirm(ctx, s, holds)
			for i, n := range at {
				batch[n].Err = err
				if err == nil && holds[i].gone {
					batch[n].Err = lock.ErrLost
				}
			}
		})
	}
	wg.Wait()
}

// Release deletes the key. One that may come yet is forbidden first, by a key
// under the same lease.
func (h *hold) Release(ctx context.Context) error {
	b := h.b
	defer h.forget() // after the request: the lease may end with its last lock
	rctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	txn := b.client.Txn(rctx).Then(clientv3.OpPut(b.void(h.id), "", clientv3.WithLease(h.s.id)), clientv3.OpDelete(h.key))
	if h.rev != 0 {
		txn = b.client.Txn(rctx).If(clientv3.Compare(clientv3.CreateRevision(h.key), "=", h.rev)).Then(clientv3.OpDelete(h.key))
	}
	res, err := txn.Commit()
	if err != nil || h.rev == 0 {
		// What stays at the servers goes with the lease.
		b.leases.mu.Lock()
		b.retire(h.s)
		b.leases.mu.Unlock()
	}
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return lock.ErrLost // nor can a late request create it
	case err != nil:
		h.asked = true
		return mapped(err)
	case h.rev != 0 && !res.Succeeded && !h.asked:
		return lock.ErrLost
	}
	return nil
}

// Close ends the leases, and the client if it is ours.
func (b *backend) Close() error {
	b.closeLeases()
	if b.owned {
		return b.client.Close()
	}
	return nil
}
