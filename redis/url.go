package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/internal/urltls"
)

func init() { lock.Register(open, "redis", "rediss") }

// Time-outs of our own client. A deadline of the caller's that is nearer counts.
const (
	dialTimeout = 2 * time.Second
	ioTimeout   = 3 * time.Second
)

// address is what a URL says of the server, beside Options.
type address struct {
	addrs                          []string
	cluster                        bool
	master                         string // the Sentinels' name for it; "" without Sentinels
	user, password                 string
	sentinelUser, sentinelPassword string
	db, poolSize                   int
	tls                            *tls.Config
}

// open makes a Backend from a URL: see the package comment.
func open(ctx context.Context, u *lock.URL) (lock.Backend, error) {
	a, o := parse(u)
	if err := u.Check(); err != nil {
		return nil, err
	}
	client := a.client(!o.AllowEviction)
	b, err := newBackend(ctx, client, o, true)
	if err != nil {
		if host := strings.Join(a.addrs, ","); !strings.Contains(err.Error(), a.addrs[0]) {
			err = fmt.Errorf("%s: %w", host, err)
		}
		return nil, errors.Join(err, client.Close())
	}
	return b, nil
}

func parse(u *lock.URL) (address, Options) {
	a := address{user: u.User, master: u.Str("sentinel", "")}
	a.password, _ = u.Password()
	a.sentinelUser, a.sentinelPassword = u.Str("sentinel_user", ""), u.Secret("sentinel_password")
	a.cluster = u.Bool("cluster", len(u.Hosts) > 1 && a.master == "")
	a.poolSize = u.Int("pool_size", 0, 1, 10_000)
	a.db = database(u)
	a.tls = urltls.Config(u, "rediss")
	a.addrs = u.Addrs("6379")
	if a.master != "" {
		a.addrs = u.Addrs("26379")
	}
	switch {
	case len(u.Hosts) == 0:
		u.Mistake("no host (as in: %s://localhost:6379)", u.Scheme)
	case a.master != "" && a.cluster:
		u.Mistake("parameters %q and %q exclude each other: a Cluster has no Sentinels", "sentinel", "cluster")
	case a.master == "" && (a.sentinelUser != "" || a.sentinelPassword != ""):
		u.Mistake("sentinel_user and sentinel_password need sentinel=NAME, the name that the Sentinels have for the master")
	case a.master == "" && !a.cluster && len(u.Hosts) > 1:
		u.Mistake("several hosts are a Cluster, or Sentinels with sentinel=NAME")
	case a.cluster && a.db != 0:
		u.Mistake("a Cluster has database 0 only")
	case a.user != "" && a.password == "":
		u.Mistake("a user without a password (as in: %s://user:password@host)", u.Scheme)
	}

	o := Options{
		Prefix:         u.Str("prefix", defaultPrefix),
		Replicas:       u.Int("replicas", 0, 0, 100),
		ReplicaTimeout: u.Duration("replica_timeout", time.Second),
		Counter:        u.Choice("fencing", "none", "none", "counter") == "counter",
		AllowEviction:  u.Choice("eviction", "refuse", "refuse", "allow") == "allow",
	}
	if o.ReplicaTimeout == 0 || o.ReplicaTimeout >= ioTimeout {
		u.Mistake("parameter %q must be above 0 and below %v", "replica_timeout", ioTimeout)
	} else if err := o.check(); err != nil {
		u.Mistake("%s", strings.TrimPrefix(err.Error(), lock.ErrInvalid.Error()+": "))
	}
	return a, o
}

// database reads the path: a number, or nothing for 0.
func database(u *lock.URL) int {
	if u.Path == "" {
		return 0
	}
	db, err := strconv.ParseUint(u.Path, 10, 31)
	if err != nil || u.Path != strconv.FormatUint(db, 10) {
		u.Mistake("the path must be the number of a database, as in /0")
	}
	return int(db) //nolint:gosec // 31 bits
}

// client makes the client: one attempt for each request, and deadlines obeyed.
func (a *address) client(lookForEviction bool) goredis.UniversalClient {
	o := goredis.UniversalOptions{
		Addrs: a.addrs, MasterName: a.master, IsClusterMode: a.cluster, DB: a.db,
		Username: a.user, Password: a.password,
		SentinelUsername: a.sentinelUser, SentinelPassword: a.sentinelPassword,
		Dialer:        a.dial,
		DialTimeout:   dialTimeout,
		DialerRetries: 1,
		ReadTimeout:   ioTimeout,
		WriteTimeout:  ioTimeout,
		MaxRetries:    -1,
		PoolSize:      a.poolSize,
		// Requests need nothing of RESP 3, and it looks for pushed messages
		// before each.
		Protocol:                 2,
		ContextTimeoutEnabled:    true,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if lookForEviction {
		o.OnConnect = refuseEviction
	}
	return goredis.NewUniversalClient(&o)
}

// dial obeys ctx also during the TLS handshake, which go-redis' own does not.
func (a *address) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}}
	if a.tls == nil {
		return dialer.DialContext(ctx, network, addr)
	}
	return (&tls.Dialer{NetDialer: dialer, Config: a.tls}).DialContext(ctx, network, addr)
}
