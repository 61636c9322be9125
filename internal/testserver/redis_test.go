package testserver

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// dial makes a plain client, for the test, that gives up soon.
func dial(t *testing.T, r *Redis) *redis.Client {
	t.Helper()
	o := &redis.Options{Addr: r.Addr(), DialTimeout: time.Second, ReadTimeout: time.Second, MaxRetries: -1, DialerRetries: 1}
	if r.Certs() != nil {
		cfg, err := r.Certs().Client()
		if err != nil {
			t.Fatal(err)
		}
		o.TLSConfig = cfg
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

// eventually polls until ok says true, for at most 10 s.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for end := time.After(10 * time.Second); !ok(); {
		select {
		case <-end:
			t.Fatalf("waited 10s for: %s", what)
		case <-poll.C:
		}
	}
}

func TestRedisLife(t *testing.T) {
	r := NeedRedis(t, RedisOptions{Own: true, Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	c, ctx := dial(t, r), t.Context()
	set := func(key string) {
		t.Helper()
		if err := c.Set(ctx, key, "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	has := func(key string) {
		t.Helper()
		if n, err := c.Exists(ctx, key).Result(); err != nil || n != 1 {
			t.Fatalf("key %q: found %d, %v", key, n, err)
		}
	}

	set("before a pause")
	if err := r.Pause(); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if err := r.probe(short); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a paused server answered: %v", err)
	}
	if err := r.Resume(); err != nil {
		t.Fatal(err)
	}
	has("before a pause")

	set("before a crash")
	port := r.Port()
	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := r.probe(ctx); err == nil {
		t.Error("a killed server answers")
	}
	if err := r.Kill(); !errors.Is(err, errStopped) {
		t.Errorf("second kill: %v", err)
	}
	if err := r.Restart(); err != nil {
		t.Fatal(err)
	}
	has("before a crash")

	if err := r.Restart(); err != nil {
		t.Fatalf("restart of a running server: %v", err)
	}
	has("before a crash")
	if r.Port() != port {
		t.Errorf("port %d became %d", port, r.Port())
	}
	if err := r.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Stop(), r.Stop()); err != nil {
		t.Errorf("stop a paused server, twice: %v", err)
	}
}

func TestRedisReplica(t *testing.T) {
	master := NeedRedis(t, RedisOptions{Own: true})
	replica := NeedRedis(t, RedisOptions{ReplicaOf: master})
	ctx := t.Context()
	eventually(t, "one replica in step", func() bool {
		n, err := dial(t, master).Wait(ctx, 1, 100*time.Millisecond).Result()
		return err == nil && n == 1
	})
	if err := dial(t, replica).Set(ctx, "k", "v", 0).Err(); err == nil || !strings.HasPrefix(err.Error(), "READONLY") {
		t.Errorf("a write to the replica: %v", err)
	}
}

func TestRedisTLS(t *testing.T) {
	r := NeedRedis(t, RedisOptions{TLS: true})
	if err := dial(t, r).Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
	if !strings.HasPrefix(r.URL(), "rediss://127.0.0.1:") {
		t.Errorf("URL %s", r.URL())
	}
	plain := redis.NewClient(&redis.Options{Addr: r.Addr(), MaxRetries: -1, DialerRetries: 1})
	defer plain.Close()
	if err := plain.Ping(t.Context()).Err(); err == nil {
		t.Error("a client without TLS got an answer")
	}
}

func TestRedisClockJumps(t *testing.T) {
	r := NeedRedis(t, RedisOptions{FakeClock: true})
	c, ctx := dial(t, r), t.Context()
	if err := c.Set(ctx, "k", "v", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.Jump(-30 * time.Second); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a longer life after a jump back", func() bool {
		left, err := c.PTTL(ctx, "k").Result()
		return err == nil && left > 85*time.Second
	})
	if err := r.Jump(61 * time.Second); err != nil {
		t.Fatal(err)
	}
	eventually(t, "expiry after a jump forward", func() bool {
		n, err := c.Exists(ctx, "k").Result()
		return err == nil && n == 0
	})
	if err := NeedRedis(t, RedisOptions{Own: true}).Jump(time.Second); err == nil {
		t.Error("a server on the true clock jumped")
	}
}

func TestRedisCluster(t *testing.T) {
	cluster := NeedRedisCluster(t, 3)
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	defer c.Close()
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		if err := c.Set(t.Context(), key, "v", 0).Err(); err != nil {
			t.Errorf("set %s: %v", key, err)
		}
	}
}

func TestRedisSentinelsFailOver(t *testing.T) {
	s := NeedRedisSentinels(t, 1, 3)
	c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: SentinelMaster, SentinelAddrs: s.Addrs()})
	defer c.Close()
	if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Wait(t.Context(), 1, 5*time.Second).Result(); err != nil || n != 1 {
		t.Fatalf("%d replicas have the key: %v", n, err)
	}
	if err := s.Master.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the replica is the master", func() bool { return c.Set(t.Context(), "k", "w", 0).Err() == nil })
}
