// Package etcd keeps locks in etcd 3.4 or newer, over go.etcd.io/etcd/client/v3,
// on one server or a cluster. Its fencing tokens are the strongest that there
// are: [lock.FencingConsensus].
//
//	import _ "github.com/interlock-go/lock/etcd"
//
//	locker, err := lock.Open(ctx, "etcd://h1:2379,h2:2379,h3:2379")
//
// # How it works
//
// Each acquisition has a key of its own, prefix name ~ id, under a lease. The
// keys of a name are its queue, in the order in which they were created, and the
// first is the holder. One transaction takes a free lock in one round trip: it
// creates the key if the name has none. The token is the key's create revision,
// which etcd's raft log orders over all names and never takes back.
//
// A Locker has one lease for each TTL in use, shared by all its locks with that
// TTL: to renew a thousand locks takes one keep-alive, and reads that look at
// their keys, a hundred in a request. A lease is made when it is needed, and
// ended when the Locker is closed, or when it was idle. A keep-alive counts only
// if a linearizable read which is sent after its answer shows the same raft
// term: a deposed leader goes on confirming leases by itself (seen with 3.4).
//
// A request whose answer was lost can still arrive. Its clean-up therefore
// writes a key that forbids it, and the lease that both are under takes no new
// locks and is revoked when its last lock has gone, so that nothing piles up.
//
// # How it waits
//
// A waiter creates its key too, and watches the one before its own. When that
// goes, one linearizable read tells whether it is the first; deleting a waiter's
// key lets nobody in. A release wakes one waiter, however many there are, in the
// order in which they came. The watch is opened without a revision and the read
// follows its opening, so that nothing is missed and etcd does not put it among
// the watches that it serves ten times a second only. A compaction, a lost
// leader or a changed endpoint opens it anew.
//
// # What breaks it
//
// Two can hold a lock, and tokens go back, only when etcd's data do: after a
// restore from a snapshot, or when most members lost their disks. Raise
// token_base then, above the highest token that the storage has seen. Clocks of
// the servers do not matter, but their rates do: a margin of 1 % of the TTL and
// 100 ms is taken from it.
//
// When somebody deletes the key of a holder, the next in the queue has the lock,
// and the holder learns of it at its next renewal, a third of the TTL later at
// most.
//
// # URL and options
//
//	etcd://user:password@h1:2379,h2:2379/prefix    port 2379 if none is named
//	etcds://…                                      the same over TLS
//
//	ca= cert= key=    PEM files, for etcds: who signed the servers; a client's certificate
//
// and those of every Locker: see [lock.Open]. The prefix is interlock if there is
// none. The time to live is in whole seconds, from 2 s (or what the servers'
// election time-out makes of it) to 30 days, and cannot be changed while a lock
// is held. A Locker has at most four different ones at a time.
//
// On a client of your own, [New] has the same settings as [Options].
//
// # Rights
//
// A user needs readwrite on the range of the prefix.
package etcd

import (
	"context"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/internal/percent"
)

// Options are the settings of a Backend.
type Options struct {
	// Prefix is what each key begins with, before a slash; "interlock" if empty.
	// Letters, digits and -_.:@+=,/ in any order, at most 128 bytes. Lockers
	// exclude each other only under the same Prefix.
	Prefix string
}

const (
	defaultPrefix = "interlock"
	maxPrefixLen  = 128
	maxTTL        = 30 * 24 * time.Hour
	maxClasses    = 4
	patience      = 5 * time.Second // for one request; the caller's ctx may be shorter
)

func (o *Options) check() error {
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if len(o.Prefix) > maxPrefixLen {
		return fmt.Errorf("%w: a prefix of %d bytes (at most %d)", lock.ErrInvalid, len(o.Prefix), maxPrefixLen)
	}
	if i := strings.IndexFunc(o.Prefix, func(r rune) bool { return r > 127 || !percent.Plain(byte(r), percent.Marks+"/") }); i >= 0 {
		return fmt.Errorf("%w: the prefix has %q (it may have letters, digits and -_.:@+=,/)", lock.ErrInvalid, o.Prefix[i:i+1])
	}
	return nil
}

// New returns a Locker over a client of the caller's. See [NewBackend].
func New(ctx context.Context, client *clientv3.Client, o Options, opts ...lock.SetupOption) (lock.Locker, error) {
	b, err := NewBackend(ctx, client, o)
	if err != nil {
		return nil, err
	}
	l, err := lock.New(b, opts...)
	if err != nil {
		b.Close() //nolint:errcheck // it has opened nothing yet
		return nil, err
	}
	return l, nil
}

// NewBackend returns a Backend over a client of the caller's, who closes it after
// the Backend. It asks the servers for their shortest lease, within ctx.
//
// A nil client and bad Options are [lock.ErrInvalid]; servers that do not answer
// are [lock.ErrUnavailable].
func NewBackend(ctx context.Context, client *clientv3.Client, o Options) (lock.Backend, error) {
	b, err := newBackend(ctx, client, o, false)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	return b, nil
}

func newBackend(ctx context.Context, client *clientv3.Client, o Options, owned bool) (*backend, error) {
	if ctx == nil {
		return nil, fmt.Errorf("%w: a nil context", lock.ErrInvalid)
	}
	if client == nil {
		return nil, fmt.Errorf("%w: a nil client", lock.ErrInvalid)
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	b := &backend{
		client: client, owned: owned, prefix: strings.Trim(o.Prefix, "/") + "/",
		waiting: make(map[string]*hold), leases: leases{classes: make(map[time.Duration]*class)},
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// The servers make the shortest lease of a request for less, and say so.
	least, err := client.Grant(ctx, 1)
	if err != nil {
		return nil, mapped(err)
	}
	b.least = time.Duration(least.TTL) * time.Second
	if _, err := client.Revoke(ctx, least.ID); err != nil {
		return nil, mapped(err)
	}
	return b, nil
}
