package redis

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock"
)

// TestStates puts a server into each state in which it refuses to serve, and
// looks at what an acquisition, a renewal and a release of a lock taken before
// say, and whether all is well again once the state has passed.
func TestStates(t *testing.T) {
	for _, c := range []struct {
		name           string
		enter, leave   func(t *testing.T, s *server, admin *goredis.Client)
		says           string
		release, renew error // what those of a lock taken before answer
	}{
		{
			name: "READONLY",
			enter: func(t *testing.T, _ *server, admin *goredis.Client) {
				must(t, admin.SlaveOf(t.Context(), "127.0.0.1", "1").Err())
			},
			leave: func(t *testing.T, _ *server, admin *goredis.Client) {
				must(t, admin.SlaveOf(t.Context(), "NO", "ONE").Err())
			},
			says: "READONLY", release: lock.ErrUnavailable, renew: lock.ErrUnavailable,
		},
		{
			name: "MASTERDOWN",
			enter: func(t *testing.T, _ *server, admin *goredis.Client) {
				must(t, admin.ConfigSet(t.Context(), "replica-serve-stale-data", "no").Err())
				must(t, admin.SlaveOf(t.Context(), "127.0.0.1", "1").Err())
			},
			leave: func(t *testing.T, _ *server, admin *goredis.Client) {
				must(t, admin.SlaveOf(t.Context(), "NO", "ONE").Err())
			},
			says: "MASTERDOWN", release: lock.ErrUnavailable, renew: lock.ErrUnavailable,
		},
		{
			name: "OOM",
			enter: func(t *testing.T, _ *server, admin *goredis.Client) {
				must(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
			},
			leave: func(t *testing.T, _ *server, admin *goredis.Client) {
				must(t, admin.ConfigSet(t.Context(), "maxmemory", "0").Err())
			},
			says: "OOM",
		},
		{
			name: "MISCONF",
			enter: func(t *testing.T, s *server, admin *goredis.Client) {
				must(t, os.Mkdir(filepath.Join(s.Dir(), "dump.rdb"), 0o755)) // so it cannot write that file
				must(t, admin.ConfigSet(t.Context(), "save", "3600 1").Err())
				must(t, admin.BgSave(t.Context()).Err())
				within(t, 5*time.Second, "the save to fail", func() bool {
					return infoField(admin.Info(t.Context(), "persistence").Val(), "rdb_last_bgsave_status") == "err"
				})
			},
			leave: func(t *testing.T, _ *server, admin *goredis.Client) {
				must(t, admin.ConfigSet(t.Context(), "save", "").Err())
			},
			says: "MISCONF", release: lock.ErrUnavailable, renew: lock.ErrUnavailable,
		},
		{
			name: "NOREPLICAS",
			enter: func(t *testing.T, _ *server, admin *goredis.Client) {
				must(t, admin.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
			},
			leave: func(t *testing.T, _ *server, admin *goredis.Client) {
				must(t, admin.ConfigSet(t.Context(), "min-replicas-to-write", "0").Err())
			},
			says: "NOREPLICAS", release: lock.ErrUnavailable, renew: lock.ErrUnavailable,
		},
		{
			name: "BUSY",
			enter: func(t *testing.T, s *server, admin *goredis.Client) {
				must(t, admin.ConfigSet(t.Context(), "busy-reply-threshold", "10").Err())
				go s.admin().Eval(context.Background(), "while true do end", nil)
				within(t, 5*time.Second, "the script to be slow", func() bool {
					return goredis.HasErrorPrefix(admin.Ping(t.Context()).Err(), "BUSY")
				})
			},
			leave: func(t *testing.T, _ *server, admin *goredis.Client) {
				must(t, admin.ScriptKill(t.Context()).Err())
				within(t, 5*time.Second, "the script to end", func() bool { return admin.Ping(t.Context()).Err() == nil })
			},
			says: "BUSY", release: lock.ErrUnavailable, renew: lock.ErrUnavailable,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			ctx, b, admin := t.Context(), openBackend(t, s.url("")), s.admin()
			before, _ := request("before", time.Minute)
			g, err := b.Acquire(ctx, before)
			must(t, err)

			c.enter(t, s, admin)
			during, _ := request("during", time.Minute)
			if g, err := b.Acquire(ctx, during); !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrHeld) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("Acquire: %+v, %v", g, err)
			} else if g.Lease != nil {
				t.Errorf("Acquire was turned away and left a Lease to clean up: %v", err)
			}
			if err := g.Lease.Renew(ctx, time.Minute); !errors.Is(err, c.renew) {
				t.Errorf("Renew: %v, want %v", err, c.renew)
			}
			if err := g.Lease.Release(ctx); !errors.Is(err, c.release) {
				t.Errorf("Release: %v, want %v", err, c.release)
			}
			c.leave(t, s, admin)
			if g, err := b.Acquire(ctx, during); err != nil {
				t.Errorf("Acquire afterwards: %v", err)
			} else if err := g.Lease.Release(ctx); err != nil {
				t.Errorf("its Release: %v", err)
			}
			if c.release != nil {
				if err := g.Lease.Release(ctx); err != nil {
					t.Errorf("Release again: %v", err)
				}
			}
			if left := residue(t, admin, "*"); len(left) > 0 {
				t.Errorf("left at the server: %q", left)
			}
		})
	}
}

func TestLoading(t *testing.T) {
	s := startServer(t, "--enable-debug-command", "yes", "--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024")
	ctx, b, admin := t.Context(), openBackend(t, s.url("")), s.admin()
	must(t, admin.Do(ctx, "debug", "populate", 2000, "filler", 100).Err())
	must(t, admin.Save(ctx).Err())
	must(t, s.Kill())
	restarted := make(chan error, 1)
	go func() { restarted <- s.Restart() }()
	r, _ := request("n", time.Minute)
	seen := false
	within(t, 30*time.Second, "the server to have loaded", func() bool {
		g, err := b.Acquire(ctx, r)
		if err != nil && strings.Contains(err.Error(), "LOADING") {
			seen = true
			if !errors.Is(err, lock.ErrUnavailable) || g.Lease != nil {
				t.Errorf("Acquire: %+v, %v", g, err)
			}
		}
		return err == nil
	})
	if !seen {
		t.Error("the server was never seen to load")
	}
	must(t, <-restarted)
}

func TestNoScript(t *testing.T) {
	s := startServer(t)
	ctx, admin := t.Context(), s.admin()
	b1, b2 := openBackend(t, s.url("")), openBackend(t, s.url(""))
	flush := func() { must(t, admin.ScriptFlush(ctx).Err()) }
	r1, _ := request("n", time.Minute)
	r2, woken := request("n", time.Minute)
	flush()
	g, err := b1.Acquire(ctx, r1)
	must(t, err)
	flush()
	if _, err := b2.Acquire(ctx, r2); !errors.Is(err, lock.ErrHeld) {
		t.Fatal(err)
	}
	flush()
	must(t, g.Lease.Renew(ctx, time.Minute))
	flush()
	must(t, g.Lease.Release(ctx))
	wake(t, woken)
	flush()
	g, err = b2.Acquire(ctx, r2)
	must(t, err)
	flush()
	must(t, g.Lease.Release(ctx))
}

func TestWrongPassword(t *testing.T) {
	s := startServer(t, "--requirepass", "right")
	for url, says := range map[string]string{
		"redis://" + s.Addr():                    "wants a password",
		"redis://:S3CR3T@" + s.Addr():            "wrong user or password",
		"redis://somebody:S3CR3T@" + s.Addr():    "wrong user or password",
		"redis://:right@" + s.Addr() + "/999999": "DB index",
	} {
		_, err := lock.OpenBackend(t.Context(), url)
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), s.Addr()) || strings.Contains(err.Error(), "S3CR3T") {
			t.Errorf("%s: %v", url, err)
		}
	}
	openBackend(t, "redis://:right@"+s.Addr())
	openBackend(t, "redis://default:right@"+s.Addr())
}

func TestPasswordChangedLater(t *testing.T) {
	s := startServer(t)
	ctx, b, admin := t.Context(), openBackend(t, s.url("")), s.admin()
	must(t, admin.ConfigSet(ctx, "requirepass", "new").Err())
	must(t, admin.Do(ctx, "auth", "new").Err())
	admin.ClientKillByFilter(ctx, "type", "normal", "skipme", "yes")
	r, _ := request("n", time.Minute)
	within(t, 5*time.Second, "the lost connections to be replaced", func() bool {
		g, err := b.Acquire(ctx, r)
		if errors.Is(err, lock.ErrUnavailable) {
			return false
		}
		if err == nil || !strings.Contains(err.Error(), "wants a password") || g.Lease != nil {
			t.Errorf("%+v, %v", g, err)
		}
		return true
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rights is what the package comment names.
var rights = []string{
	"+evalsha", "+eval", "+get", "+set", "+del", "+pttl", "+pexpire", "+time",
	"+zadd", "+zrem", "+zrange", "+zrank", "+hset", "+hget", "+hdel", "+publish", "+subscribe",
}

func TestRights(t *testing.T) {
	s := startServer(t)
	admin := s.admin()
	user := func(name string, rules ...any) string {
		must(t, admin.Do(t.Context(), append([]any{"acl", "setuser", name, "reset", "on", ">pw", "~app:*", "&app:*"}, rules...)...).Err())
		return "redis://" + name + ":pw@" + s.Addr() + "?prefix=app:"
	}
	all := func(leaveOut string, more ...any) (rules []any) {
		for _, r := range rights {
			if r != leaveOut {
				rules = append(rules, r)
			}
		}
		return append(rules, more...)
	}
	t.Run("enough", func(t *testing.T) {
		url := user("enough", all("")...)
		lifeCycle(t, url, true)
		counted := user("counted", all("", "+incr")...) + "&fencing=counter"
		lifeCycle(t, counted, true)
	})
	for _, r := range rights {
		t.Run("without "+r, func(t *testing.T) {
			url := user("less", all(r)...)
			b, err := lock.OpenBackend(t.Context(), url)
			if r == "+publish" || r == "+subscribe" {
				must(t, err)
				must(t, b.Close())
				lifeCycle(t, url, false) // it costs the wake-up only
				return
			}
			if err == nil || !strings.Contains(err.Error(), "rights") && !strings.Contains(err.Error(), "Rights") || !strings.Contains(strings.ToLower(err.Error()), r[1:]) {
				t.Errorf("%v", err)
			} else {
				t.Log(err)
			}
		})
	}
	t.Run("no channels", func(t *testing.T) {
		lifeCycle(t, user("mute", all("", "resetchannels")...), false)
	})
	t.Run("another prefix", func(t *testing.T) {
		url := user("elsewhere", all("")...)
		_, err := lock.OpenBackend(t.Context(), strings.Replace(url, "app:", "other:", 1))
		if err == nil {
			t.Error("opened with a prefix that the user may not touch")
		} else {
			t.Log(err)
		}
	})
	if left := residue(t, admin, "*"); len(left) > 1 || len(left) == 1 && left[0] != "app:token" {
		t.Errorf("left at the server: %q", left)
	}
}

// lifeCycle takes, waits, renews, hands over and releases.
func lifeCycle(t *testing.T, url string, told bool) {
	t.Helper()
	ctx := t.Context()
	b1, b2 := openBackend(t, url), openBackend(t, url)
	r1, _ := request("n", time.Minute)
	r2, woken := request("n", time.Minute)
	g, err := b1.Acquire(ctx, r1)
	must(t, err)
	g2, err := b2.Acquire(ctx, r2)
	if !errors.Is(err, lock.ErrHeld) {
		t.Fatal(err)
	}
	must(t, g.Lease.Renew(ctx, time.Minute))
	must(t, g.Lease.Release(ctx))
	if told {
		wake(t, woken)
	} else if g2.Lease == nil && g2.Retry > 250*time.Millisecond {
		t.Errorf("a waiter that cannot be told looks again only after %v", g2.Retry)
	}
	g, err = b2.Acquire(ctx, r2)
	must(t, err)
	must(t, g.Lease.Release(ctx))
}

func TestEviction(t *testing.T) {
	s := startServer(t, "--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl")
	ctx := t.Context()
	_, err := lock.OpenBackend(ctx, s.url(""))
	if !errors.Is(err, lock.ErrUnsupported) || !strings.Contains(err.Error(), "volatile-ttl") || !strings.Contains(err.Error(), "eviction=allow") {
		t.Errorf("by URL: %v", err)
	}
	client := s.admin()
	if _, err := NewBackend(ctx, client, Options{}); !errors.Is(err, lock.ErrUnsupported) {
		t.Errorf("on a client: %v", err)
	}
	openBackend(t, s.url("?eviction=allow"))
	if _, err := NewBackend(ctx, client, Options{AllowEviction: true}); err != nil {
		t.Error(err)
	}

	// A server that is set up wrongly later is found at the next connection.
	must(t, client.ConfigSet(ctx, "maxmemory-policy", "noeviction").Err())
	ours := openBackend(t, s.url(""))
	theirs, err := NewBackend(ctx, client, Options{})
	must(t, err)
	defer theirs.Close()
	r, _ := request("n", time.Minute)
	_, err = ours.Acquire(ctx, r)
	must(t, err)
	r2, _ := request("n", time.Minute)
	if _, err = theirs.Acquire(ctx, r2); !errors.Is(err, lock.ErrHeld) {
		t.Fatal(err)
	}
	must(t, client.ConfigSet(ctx, "maxmemory-policy", "allkeys-lru").Err())
	for _, kind := range []string{"normal", "pubsub"} {
		client.ClientKillByFilter(ctx, "type", kind)
	}
	for what, b := range map[string]lock.Backend{"by URL": ours, "on a client": theirs} {
		within(t, 10*time.Second, what+": the policy to be seen", func() bool {
			_, err := b.Acquire(ctx, r2)
			return errors.Is(err, lock.ErrUnsupported) && strings.Contains(err.Error(), "allkeys-lru")
		})
	}
}

func TestOpenNowhere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	addr := l.Addr().String()
	l.Close()
	began := time.Now()
	_, err = lock.OpenBackend(t.Context(), "redis://u:S3CR3T@"+addr)
	if !errors.Is(err, lock.ErrUnavailable) || !strings.Contains(err.Error(), addr) || strings.Contains(err.Error(), "S3CR3T") {
		t.Errorf("refused: %v", err)
	}
	if d := time.Since(began); d > 200*time.Millisecond {
		t.Errorf("a refused dial took %v: it was tried again", d)
	}
}
