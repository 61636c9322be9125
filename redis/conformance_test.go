package redis

import (
	"context"
	"errors"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/internal/testserver"
)

func TestConformance(t *testing.T) {
	for _, mode := range []struct {
		name, params string
		args         []string // of the server
		open         func(context.Context, string, ...lock.SetupOption) (lock.Locker, error)
		without      []string
	}{
		{"plain", "", nil, nil, nil},
		{"counter", "?fencing=counter", []string{"--appendonly", "yes", "--appendfsync", "always"}, nil, nil},
		{"client", "", nil, onUsersClient, []string{"URL"}},
	} {
		t.Run(mode.name, func(t *testing.T) {
			conformance.Run(t, conformance.Subject{
				Open:    mode.open,
				Without: mode.without,
				Start: func(context.Context) (*conformance.Server, error) {
					return startForConformance(t, mode.params, mode.args), nil
				},
				SmallestPool: func(url string) string {
					if strings.Contains(url, "?") {
						return url + "&pool_size=1"
					}
					return url + "?pool_size=1"
				},
			})
		})
	}
}

// onUsersClient opens a Locker on a client with go-redis' own settings, which
// retries, dials five times and obeys no deadline.
func onUsersClient(ctx context.Context, url string, opts ...lock.SetupOption) (lock.Locker, error) {
	u, err := lock.ParseURL(url)
	if err != nil {
		return nil, err
	}
	client := goredis.NewClient(&goredis.Options{Addr: u.Hosts[0], PoolSize: u.Int("pool_size", 0, 1, 100)})
	l, err := New(ctx, client, Options{}, opts...)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return withClient{l, client}, nil
}

type withClient struct {
	lock.Locker
	client *goredis.Client
}

func (w withClient) Unwrap() lock.Locker { return w.Locker }
func (w withClient) Close() error        { return errors.Join(w.Locker.Close(), w.client.Close()) }

func startForConformance(t *testing.T, params string, args []string) *conformance.Server {
	r := testserver.NeedRedis(t, testserver.RedisOptions{Own: true, Args: args})
	admin := adminOf(t, r)
	b := &backend{prefix: defaultPrefix}
	return &conformance.Server{
		URL: r.URL() + params, Pause: r.Pause, Resume: r.Resume, Kill: r.Kill, Restart: r.Restart,
		Login: func(ctx context.Context, user, password string) error {
			return admin.Do(ctx, "ACL", "SETUSER", user, "reset", "on", ">"+password, "~*", "&*", "+@all").Err()
		},
		Steal: func(ctx context.Context, name string) error { return admin.Del(ctx, b.keysOf(name).lock).Err() },
		Residue: func(ctx context.Context, name string) (left []string, err error) {
			k := b.keysOf(name)
			for _, key := range []string{k.lock, k.queue, k.waiters} {
				n, err := admin.Exists(ctx, key).Result()
				if err != nil {
					return nil, err
				}
				if n > 0 {
					left = append(left, key)
				}
			}
			return left, nil
		},
	}
}
