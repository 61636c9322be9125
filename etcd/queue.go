package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock"
)

// queued waits until the hold's key is the first of its queue. The key before it
// was before, if that is known.
func (b *backend) queued(ctx context.Context, req lock.Request, h *hold, held *lock.HeldError, before string) (lock.Grant, error) {
	req.Held(held)
	for found := before != ""; ; found = false {
		var err error
		if !found {
			before, found, err = b.before(ctx, h)
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return h.unfinished(), held
		case err != nil:
			return h.unfinished(), err
		case !found:
			// An administrator deleted it, or the lease ended.
			h.forget()
			return lock.Grant{Retry: time.Millisecond}, held
		case before == "":
			return h.grant(), nil
		}
		if err := b.watch(ctx, h, before); err != nil {
			if ctx.Err() != nil {
				return h.unfinished(), held
			}
			return h.unfinished(), err
		}
	}
}

// before reads, linearizably, whether the hold's key is still there, and which is
// next before it.
func (b *backend) before(ctx context.Context, h *hold) (key string, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	queue := h.key[:len(h.key)-len(h.id)]
	res, err := b.client.Txn(ctx).Then(
		clientv3.OpGet(h.key, clientv3.WithKeysOnly()),
		clientv3.OpGet(queue, clientv3.WithRange(queue[:len(queue)-1]+"\x7f"), clientv3.WithKeysOnly(), clientv3.WithMaxCreateRev(h.rev-1),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend), clientv3.WithLimit(1)),
	).Commit()
	if err != nil {
		return "", false, mapped(err)
	}
	if own := res.Responses[0].GetResponseRange().Kvs; len(own) == 0 || own[0].CreateRevision != h.rev {
		return "", false, nil
	}
	if kvs := res.Responses[1].GetResponseRange().Kvs; len(kvs) > 0 {
		key = string(kvs[0].Key)
	}
	return key, true, nil
}

// watch returns nil when it is time to look again: the key before ours went, or
// the watch ended. It keeps our lease alive meanwhile.
func (b *backend) watch(ctx context.Context, h *hold, before string) error {
	wctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	events := b.client.Watch(wctx, before, clientv3.WithCreatedNotify(), clientv3.WithFilterPut())
	tick := time.NewTimer(b.untilDue(h.s))
	defer tick.Stop()
	for looked := false; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			if err := b.keep(ctx, h.s); err != nil {
				return err
			}
			tick.Reset(b.untilDue(h.s))
		case res, ok := <-events:
			switch {
			case !ok || res.Canceled:
				return b.pause(ctx)
			case len(res.Events) > 0:
				return nil
			case res.Created && !looked:
				looked = true
				if now, found, err := b.before(ctx, h); err != nil || !found || now != before {
					return err
				}
			}
		}
	}
}

// pause keeps a watch that is refused from being opened again at once.
func (b *backend) pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(50 * time.Millisecond):
		return nil
	}
}

// untilDue is when a lease that carries waiters is to be renewed, at the latest.
func (b *backend) untilDue(s *session) time.Duration {
	b.leases.mu.Lock()
	defer b.leases.mu.Unlock()
	return max(s.ttl/3-lock.Now().Sub(s.confirmed), 10*time.Millisecond)
}

// keep renews a lease for its waiters, of whom one does it for all.
func (b *backend) keep(ctx context.Context, s *session) error {
	b.leases.mu.Lock()
	due := !s.renewing && lock.Now().Sub(s.confirmed) >= s.ttl/3-10*time.Millisecond
	over := s.over()
	if due {
		s.renewing = true
	}
	b.leases.mu.Unlock()
	if over {
		return fmt.Errorf("%w: the lease could not be renewed in time", lock.ErrUnavailable)
	}
	if !due {
		return b.pause(ctx)
	}
	defer func() {
		b.leases.mu.Lock()
		s.renewing = false
		b.leases.mu.Unlock()
	}()
	if err := b.confirm(ctx, s, nil); errors.Is(err, lock.ErrLost) {
		return fmt.Errorf("%w: the lease that the waiter's key is under has ended", lock.ErrUnavailable)
	} else if err != nil && !errors.Is(err, lock.ErrUnavailable) {
		return err
	}
	return nil // or it is tried again, until the lease is over
}
