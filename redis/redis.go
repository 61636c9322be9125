// Package redis keeps locks in Redis 6 or newer, over
// github.com/redis/go-redis/v9: on one server, on a master that Sentinels watch,
// or in a Cluster.
//
//	import _ "github.com/interlock-go/lock/redis"
//
//	locker, err := lock.Open(ctx, "redis://user:password@host:6379/0")
//
// # How it works
//
// A lock is one key with a time to live: interlock:{name} holds the id of its
// holder. Each operation is one Lua script, sent by its digest, in one round
// trip: take a free key or one's own, renew it, free it or hand it on. Nothing is
// sent twice, not even by a client of the caller's that is set to retry.
//
// With fencing=counter each new holder gets a token: the counter's next number,
// but at least the server's time in microseconds, so that tokens go on growing if
// the counter is lost with the server's memory. They go back only if the counter
// is lost and the clock set back as well, hence [lock.FencingVolatile]. There is
// one counter for the prefix, in a Cluster one for each hash slot in use; it is
// all that stays of a lock.
//
// # How it waits
//
// A waiter is queued by the script that finds the lock held. A release offers the
// lock to the waiter that came first: it writes the waiter's id into the key, with
// half a second to live, and tells it by PUBLISH; the waiter makes the offer a
// lock with its own script. The waiter behind is told to look when the offer has
// run out. So a release wakes one or two waiters, however many there are. A
// Locker has one connection for these messages, made when it first waits.
//
// A waiter that died is passed over at once, since nobody hears the message; in a
// Cluster, where that cannot be counted, it costs half a second, as one does that
// was stopped. Nobody polls: a waiter looks by itself only when the holder's time
// has run out, or was told so. Where the user may not subscribe, it looks every
// 100 to 200 ms; where the holder may not publish, at the end of the holder's
// time to live at the latest.
//
// Hand-offs go in the order in which the waiters came. After a holder's death the
// lock goes to whoever asks first, so there is no promise of FIFO.
//
// # What breaks it
//
// Two can hold a lock
//
//   - after a fail-over to a replica that did not have it yet. With replicas=n a
//     lock counts only once n replicas have it, which makes this rare and not
//     impossible: the promoted one may be another;
//   - after a restart of a server that keeps nothing on disk, or not each write
//     (appendfsync always keeps them);
//   - when the server's wall clock jumps forward, which ends times to live early;
//   - when somebody deletes the key, or the server evicts it. A server whose
//     maxmemory-policy is not noeviction is refused, at the opening and on each
//     new connection; eviction=allow accepts it. This is not seen where the user
//     may not call INFO.
//
// A holder learns of a loss from its next renewal, and before its time to live
// has passed in any case. Use it where a second holder is a nuisance; where it
// would corrupt data, use tokens that the storage checks, from a backend whose
// Fencing is better.
//
// # URL and options
//
//	redis://user:password@host:6379/0        one server, database 0
//	rediss://…                               the same over TLS
//	redis://h1,h2,h3                         a Cluster; cluster=true if one host is named
//	redis://s1,s2,s3/0?sentinel=NAME         Sentinels, port 26379, and their name for the master
//
//	prefix=interlock:       what each key and channel begins with
//	fencing=none|counter    tokens
//	replicas=0              how many replicas must have a lock before it counts
//	replica_timeout=1s      and within what time; below 3s
//	eviction=refuse|allow   a server that may evict locks
//	pool_size=              connections for each server; 10 for each processor
//	ca= cert= key=          PEM files, for rediss: who signed the server; a client's certificate
//	sentinel_user= sentinel_password=
//
// and those of every Locker: see [lock.Open]. The time to live is from 100 ms to
// 30 days.
//
// On a client of your own, [New] has the same settings as [Options]. The client
// may be set up in any way; ctx is obeyed even where the client would not. A
// time-out that is far longer than the locks' time to live only makes an outage
// look longer.
//
// # Rights
//
// An ACL user needs, for the prefix app:
//
//	~app:* &app:* +eval +evalsha +get +set +del +pttl +pexpire +time
//	+zadd +zrem +zrange +zrank +hset +hget +hdel +publish +subscribe
//
// +incr as well for fencing=counter, +wait for replicas, and in a Cluster
// +cluster|slots and +command. +info is for the look at the eviction policy and
// at the server's kind; without it neither is checked. Without the channels,
// +publish or +subscribe, waiters have to look by themselves. What else is missing
// is said when the Locker is opened.
package redis

import (
	"context"
	"fmt"
	"reflect"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock"
)

// Options are the settings of a Backend. The zero value is ready.
type Options struct {
	// Prefix is what each key and channel begins with; "interlock:" if empty. At
	// most 128 bytes. Lockers exclude each other only under the same Prefix.
	Prefix string

	// Replicas is how many replicas must have a lock before it counts, and each
	// renewal; 0 asks for none.
	Replicas int

	// ReplicaTimeout is how long to wait for them; 1 s if 0. Whole milliseconds.
	ReplicaTimeout time.Duration

	// Counter turns fencing tokens on.
	Counter bool

	// AllowEviction accepts a server that may evict locks when its memory is
	// full.
	AllowEviction bool
}

func (o *Options) check() error {
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if o.ReplicaTimeout == 0 {
		o.ReplicaTimeout = time.Second
	}
	switch {
	case o.Replicas < 0:
		return fmt.Errorf("%w: Replicas %d is negative", lock.ErrInvalid, o.Replicas)
	case o.ReplicaTimeout < time.Millisecond || o.ReplicaTimeout%time.Millisecond != 0:
		return fmt.Errorf("%w: ReplicaTimeout %v is not a positive number of milliseconds", lock.ErrInvalid, o.ReplicaTimeout)
	}
	return checkPrefix(o.Prefix)
}

// New returns a Locker over a client of the caller's. See [NewBackend].
func New(ctx context.Context, client goredis.UniversalClient, o Options, opts ...lock.SetupOption) (lock.Locker, error) {
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

// NewBackend returns a Backend over a client of the caller's: a Client, also one
// with Sentinels, or a ClusterClient. The client stays the caller's, who closes
// it after the Backend; its options are not changed, and its retries are not
// used for locks.
//
// It asks the server for its settings, within ctx. A nil client, a client that
// spreads keys over independent servers (a Ring) and bad Options are
// [lock.ErrInvalid]; a server that may evict locks, or a Cluster's member behind
// a plain Client, is [lock.ErrUnsupported]; one that does not answer is
// [lock.ErrUnavailable].
func NewBackend(ctx context.Context, client goredis.UniversalClient, o Options) (lock.Backend, error) {
	b, err := newBackend(ctx, client, o, false)
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	return b, nil
}

func newBackend(ctx context.Context, client goredis.UniversalClient, o Options, owned bool) (*backend, error) {
	if ctx == nil {
		return nil, fmt.Errorf("%w: a nil context", lock.ErrInvalid)
	}
	if v := reflect.ValueOf(client); client == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("%w: a nil client", lock.ErrInvalid)
	}
	if _, ok := client.(*goredis.Ring); ok {
		return nil, fmt.Errorf("%w: a Ring moves keys between independent servers, so two could hold one lock: use a Client or a ClusterClient", lock.ErrInvalid)
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	b := &backend{
		client: client, owned: owned, prefix: o.Prefix, channels: o.Prefix + "wake:", countOK: "1",
		replicas: o.Replicas, replicaWait: o.ReplicaTimeout,
	}
	if err := inTime(ctx, func() error { return b.inspect(ctx, o) }); err != nil {
		return nil, err
	}
	if b.cluster {
		b.countOK = "0"
	}
	if o.Counter {
		b.counters = &counters{prefix: o.Prefix, cluster: b.cluster}
	}
	b.sub = newSubscription(client, b.channels)
	if !owned && !o.AllowEviction {
		b.sub.reconnected = b.lookAgainForEviction
	}
	return b, nil
}

// inTime returns when ctx ends even if f does not: a client of the caller's may
// obey no deadline.
func inTime(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", lock.ErrUnavailable, ctx.Err())
	}
}
