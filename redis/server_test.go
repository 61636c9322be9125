package redis

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/internal/testserver"
)

// server is a Redis of one test.
type server struct {
	*testserver.Redis
	t testing.TB
}

func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	return &server{testserver.NeedRedis(t, testserver.RedisOptions{Own: true, Args: args}), t}
}

// admin is a client that is not under test.
func (s *server) admin() *goredis.Client { return adminOf(s.t, s.Redis) }

func adminOf(t testing.TB, r *testserver.Redis) *goredis.Client {
	c := goredis.NewClient(&goredis.Options{Addr: r.Addr(), MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { c.Close() })
	return c
}

func (s *server) url(rest string) string { return s.URL() + rest }

// within polls until ok.
func within(t testing.TB, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(d); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s", d, what)
		}
	}
}

func openBackend(t testing.TB, url string) *backend {
	t.Helper()
	b, err := lock.OpenBackend(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b.(*backend)
}

// request makes a waiter's request whose wake-ups arrive on the channel.
func request(name string, ttl time.Duration) (lock.Request, chan time.Duration) {
	woken := make(chan time.Duration, 16)
	return lock.Request{
		Name: name, ID: fmt.Sprintf("ID%d", idCount.Add(1)), TTL: ttl, Owner: "owner of " + name, Wait: true,
		Wake: func(after time.Duration) { woken <- after },
	}, woken
}

var idCount atomic.Int64

func residue(t testing.TB, c *goredis.Client, pattern string) []string {
	t.Helper()
	keys, err := c.Keys(context.Background(), pattern).Result()
	if err != nil {
		t.Fatal(err)
	}
	return keys
}
