package redis

import (
	"context"
	"strings"
	"testing"

	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/internal/testserver"
)

func TestConformance(t *testing.T) {
	for _, mode := range []struct {
		name, params string
		args         []string // of the server
	}{
		{"plain", "", nil},
		{"counter", "?fencing=counter", []string{"--appendonly", "yes", "--appendfsync", "always"}},
	} {
		t.Run(mode.name, func(t *testing.T) {
			conformance.Run(t, conformance.Subject{
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

func startForConformance(t *testing.T, params string, args []string) *conformance.Server {
	r := testserver.NeedRedis(t, testserver.RedisOptions{Own: true, Args: args})
	admin := adminOf(t, r)
	b := &backend{prefix: defaultPrefix}
	return &conformance.Server{
		URL: r.URL() + params, Pause: r.Pause, Resume: r.Resume, Kill: r.Kill, Restart: r.Restart,
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
