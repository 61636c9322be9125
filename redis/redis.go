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
