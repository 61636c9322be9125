package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/internal/urltls"
)

func init() { lock.Register(open, "etcd", "etcds") }

const dialTimeout = 2 * time.Second

// open makes a Backend from a URL: see the package comment.
func open(ctx context.Context, u *lock.URL) (lock.Backend, error) {
	config, o := parse(u)
	if err := u.Check(); err != nil {
		return nil, err
	}
	client, err := connect(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(config.Endpoints, ","), mapped(err))
	}
	b, err := newBackend(ctx, client, o, true)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", strings.Join(config.Endpoints, ","), err), client.Close())
	}
	return b, nil
}

func parse(u *lock.URL) (clientv3.Config, Options) {
	config := clientv3.Config{
		Endpoints: u.Addrs("2379"), Username: u.User, DialTimeout: dialTimeout,
		DialKeepAliveTime: 5 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		Logger: zap.NewNop(), // what matters of it is in the errors
		TLS:    urltls.Config(u, "etcds"),
		DialOptions: []grpc.DialOption{
			// The usual pause before a second dial, 1 s and growing, is longer than
			// the outages that a short TTL survives.
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
				MinConnectTimeout: dialTimeout,
			}),
			// Fixed windows: answers are small, and to measure what would be best
			// takes messages of its own.
			grpc.WithInitialWindowSize(1 << 20), grpc.WithInitialConnWindowSize(1 << 20),
		},
	}
	config.Password, _ = u.Password()
	switch {
	case len(u.Hosts) == 0:
		u.Mistake("no host (as in: %s://localhost:2379)", u.Scheme)
	case u.User != "" && config.Password == "":
		u.Mistake("a user without a password (as in: %s://user:password@host)", u.Scheme)
	case u.User == "" && config.Password != "":
		u.Mistake("a password without a user (as in: %s://user:password@host)", u.Scheme)
	}
	o := Options{Prefix: u.Path}
	if err := o.check(); err != nil {
		u.Mistake("%s", strings.TrimPrefix(err.Error(), lock.ErrInvalid.Error()+": "))
	}
	return config, o
}

// connect makes the client, which with a user asks the servers for a token, and
// for that does not obey ctx.
func connect(ctx context.Context, config clientv3.Config) (*clientv3.Client, error) {
	type made struct {
		client *clientv3.Client
		err    error
	}
	done := make(chan made, 1)
	go func() {
		client, err := clientv3.New(config)
		done <- made{client, err}
	}()
	select {
	case m := <-done:
		return m.client, m.err
	case <-ctx.Done():
		go func() {
			if m := <-done; m.client != nil {
				_ = m.client.Close()
			}
		}()
		return nil, ctx.Err()
	}
}
