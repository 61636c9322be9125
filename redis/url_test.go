package redis

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/internal/testserver"
)

func TestURL(t *testing.T) {
	usual := Options{Prefix: "interlock:", ReplicaTimeout: time.Second}
	with := func(change func(*Options)) Options { o := usual; change(&o); return o }
	for url, want := range map[string]struct {
		address
		Options
	}{
		"redis://h": {address{addrs: []string{"h:6379"}}, usual},
		"redis://u:p%40+%25@[::1]:7/3": {
			address{addrs: []string{"[::1]:7"}, user: "u", password: "p@+%", db: 3}, usual,
		},
		"redis://:p@h:1?pool_size=1&eviction=allow&fencing=counter&prefix=a%20b": {
			address{addrs: []string{"h:1"}, password: "p", poolSize: 1},
			with(func(o *Options) { o.AllowEviction, o.Counter, o.Prefix = true, true, "a b" }),
		},
		"redis://h1,h2:7,[::1]?replicas=2&replica_timeout=250ms": {
			address{addrs: []string{"h1:6379", "h2:7", "[::1]:6379"}, cluster: true},
			with(func(o *Options) { o.Replicas, o.ReplicaTimeout = 2, 250*time.Millisecond }),
		},
		"redis://h?cluster=true": {address{addrs: []string{"h:6379"}, cluster: true}, usual},
		"redis://u:p@s1,s2:7/2?sentinel=main&sentinel_user=su&sentinel_password=sp": {
			address{addrs: []string{"s1:26379", "s2:7"}, master: "main", user: "u", password: "p", sentinelUser: "su", sentinelPassword: "sp", db: 2}, usual,
		},
	} {
		u, err := lock.ParseURL(url)
		must(t, err)
		a, o := parse(u)
		if err := u.Check(); err != nil || !reflect.DeepEqual(a, want.address) || o != want.Options {
			t.Errorf("%s: %+v, %+v, %v", url, a, o, err)
		}
	}
}

func TestBadURL(t *testing.T) {
	dir := t.TempDir()
	notPEM := filepath.Join(dir, "not.pem")
	must(t, os.WriteFile(notPEM, []byte("S3CR3T"), 0o600))
	for url, says := range map[string]string{
		"redis://":                                     "no host",
		"redis:///0":                                   "no host",
		"redis://h/one":                                "number of a database",
		"redis://h/-1":                                 "number of a database",
		"redis://h/01":                                 "number of a database",
		"redis://h/0/1":                                "number of a database",
		"redis://h?tll=5s":                             `"tll"`,
		"redis://h?pool_size=0":                        "pool_size",
		"redis://h?pool_size=-1":                       "pool_size",
		"redis://h?fencing=yes":                        "none, counter",
		"redis://h?eviction=yes":                       "refuse, allow",
		"redis://h?replicas=-1":                        "replicas",
		"redis://h?replica_timeout=500":                "unit",
		"redis://h?replica_timeout=0s":                 "replica_timeout",
		"redis://h?replica_timeout=1us":                "ReplicaTimeout",
		"redis://h?replica_timeout=5s":                 "replica_timeout",
		"redis://h1,h2/1":                              "database 0",
		"redis://h/1?cluster=true":                     "database 0",
		"redis://h1,h2?cluster=false":                  "Sentinels",
		"redis://h?cluster=true&sentinel=m":            "exclude",
		"redis://h?sentinel_password=S3CR3T":           "sentinel=NAME",
		"redis://S3CR3Tuser@h":                         "user without a password",
		"redis://h?ca=x":                               "rediss://",
		"rediss://h?ca=" + dir + "/none":               "no such file",
		"rediss://h?ca=" + notPEM:                      "no certificate",
		"rediss://h?cert=x":                            "go together",
		"rediss://h?cert=" + notPEM + "&key=" + notPEM: "PEM",
		"redis://h?prefix=a%7B%7Db":                    "braces",
		"redis://h?prefix=" + strings.Repeat("x", 129): "prefix",
	} {
		_, err := lock.OpenBackend(t.Context(), url)
		if !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "S3CR3T") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func FuzzURL(f *testing.F) {
	for _, s := range []string{"redis://u:p@h:1/0?prefix=x&fencing=counter", "rediss://h?ca=x&cert=y&key=z", "redis://a,b?sentinel=m&sentinel_password=q", "redis://h/9?cluster=true&replicas=3&replica_timeout=1s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := lock.ParseURL(s)
		if err != nil || u.Scheme != "redis" { // rediss reads files
			return
		}
		a, o := parse(u)
		if err := u.Check(); err != nil {
			if !errors.Is(err, lock.ErrInvalid) {
				t.Errorf("%v", err)
			}
			return
		}
		if len(a.addrs) == 0 || o.check() != nil || a.db < 0 || a.cluster && a.db != 0 {
			t.Errorf("%q was accepted: %+v, %+v", s, a, o)
		}
		a.client(true).Close() //nolint:errcheck // it must not panic
	})
}

func TestBadArguments(t *testing.T) {
	ctx := t.Context()
	client := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1", Dialer: func(context.Context, string, string) (net.Conn, error) {
		t.Error("dialled")
		return nil, errors.New("no")
	}})
	defer client.Close()
	var typedNil *goredis.ClusterClient
	ring := goredis.NewRing(&goredis.RingOptions{})
	defer ring.Close()
	for what, make := range map[string]func() (lock.Backend, error){
		"nil":            func() (lock.Backend, error) { return NewBackend(ctx, nil, Options{}) },
		"a typed nil":    func() (lock.Backend, error) { return NewBackend(ctx, typedNil, Options{}) },
		"a Ring":         func() (lock.Backend, error) { return NewBackend(ctx, ring, Options{}) },
		"a nil context":  func() (lock.Backend, error) { return NewBackend(nil, client, Options{}) }, //nolint:staticcheck // that is the point
		"replicas":       func() (lock.Backend, error) { return NewBackend(ctx, client, Options{Replicas: -1}) },
		"ReplicaTimeout": func() (lock.Backend, error) { return NewBackend(ctx, client, Options{ReplicaTimeout: 1}) },
		"prefix":         func() (lock.Backend, error) { return NewBackend(ctx, client, Options{Prefix: "{}"}) },
	} {
		b, err := make()
		if !errors.Is(err, lock.ErrInvalid) || b != nil {
			t.Errorf("%s: %v, %v", what, b, err)
		}
	}
	if l, err := New(ctx, nil, Options{}); !errors.Is(err, lock.ErrInvalid) || l != nil {
		t.Errorf("New: %v, %v", l, err)
	}
}

// A message to a subscriber of a replica is not counted by the master.
func TestReaderOfReplicas(t *testing.T) {
	s := startServer(t)
	client := goredis.NewClusterClient(&goredis.ClusterOptions{
		RouteRandomly: true,
		ClusterSlots: func(context.Context) ([]goredis.ClusterSlot, error) {
			return []goredis.ClusterSlot{{Start: 0, End: slots - 1, Nodes: []goredis.ClusterNode{{Addr: s.Addr()}}}}, nil
		},
	})
	defer client.Close()
	if _, err := NewBackend(t.Context(), client, Options{}); !errors.Is(err, lock.ErrUnsupported) || !strings.Contains(err.Error(), "ReadOnly") {
		t.Errorf("%v", err)
	}
}

func TestNewRefusesOptionsAfterwards(t *testing.T) {
	s := startServer(t)
	if l, err := New(t.Context(), s.admin(), Options{}, lock.TTL(time.Millisecond)); !errors.Is(err, lock.ErrInvalid) || l != nil {
		t.Errorf("%v, %v", l, err)
	}
	l, err := New(t.Context(), s.admin(), Options{Counter: true}, lock.WithToken())
	must(t, err)
	h, err := l.TryAcquire(t.Context(), "n")
	must(t, err)
	if token, ok := h.Token(); !ok || token <= 0 {
		t.Errorf("token %d", token)
	}
	must(t, l.Close())
}

func TestTLS(t *testing.T) {
	r := testserver.NeedRedis(t, testserver.RedisOptions{TLS: true})
	c := r.Certs()
	b := openBackend(t, r.URL()+"?ca="+c.CA+"&cert="+c.Cert+"&key="+c.Key)
	req, _ := request("n", time.Minute)
	g, err := b.Acquire(t.Context(), req)
	must(t, err)
	other := openBackend(t, r.URL()+"?ca="+c.CA+"&cert="+c.Cert+"&key="+c.Key)
	req2, woken := request("n", time.Minute)
	if _, err := other.Acquire(t.Context(), req2); !errors.Is(err, lock.ErrHeld) {
		t.Fatal(err)
	}
	must(t, g.Lease.Release(t.Context()))
	wake(t, woken)
	for url, says := range map[string]string{
		r.URL(): "certificate",
		strings.Replace(r.URL(), "rediss", "redis", 1): "unavailable",
	} {
		_, err := lock.OpenBackend(t.Context(), url)
		if !errors.Is(err, lock.ErrUnavailable) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", url, err)
		} else {
			t.Log(err)
		}
	}
}

// A server that takes connections and says nothing.
func TestOpenObeysCtx(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	client := goredis.NewClient(&goredis.Options{Addr: l.Addr().String()})
	defer client.Close()
	for what, open := range map[string]func(context.Context) error{
		"redis": func(ctx context.Context) error {
			_, err := lock.OpenBackend(ctx, "redis://"+l.Addr().String())
			return err
		},
		"rediss": func(ctx context.Context) error {
			_, err := lock.OpenBackend(ctx, "rediss://"+l.Addr().String())
			return err
		},
		"client": func(ctx context.Context) error { _, err := NewBackend(ctx, client, Options{}); return err },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		began := time.Now()
		err := open(ctx)
		if !errors.Is(err, lock.ErrUnavailable) || !errors.Is(err, context.Canceled) || time.Since(began) > time.Second {
			t.Errorf("%s: %v after %v", what, err, time.Since(began))
		}
		cancel()
	}
}
