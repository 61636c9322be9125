package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/internal/testserver"
)

// oddNames are names that a store may take for something else.
var oddNames = []string{
	"{}", "a{", "}a", "{a}{b}", "a{b", "{", "}", "}{", "{a}", "%7B", "%", "a b", "a/b", "a//b", "/", ".", "..", "*", "?", "[x]",
	"a\nb", "a\x00b", "\xff", "ünï", "🔒", "a:queue", "a}:queue", ":token", "~", strings.Repeat("x", 512), strings.Repeat("{", 512),
}

func clusterURL(c *testserver.RedisCluster, query string) string {
	return "redis://" + strings.Join(c.Addrs(), ",") + query
}

func TestCluster(t *testing.T) {
	c := testserver.NeedRedisCluster(t, 3)
	ctx := t.Context()
	admin := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: c.Addrs()})
	t.Cleanup(func() { admin.Close() })

	t.Run("any name", func(t *testing.T) {
		for _, query := range []string{"?fencing=counter", "?fencing=counter&prefix=app:%7Bx%7D/v1%20", "?fencing=counter&prefix=half%7B"} {
			b := openBackend(t, clusterURL(c, query))
			names := oddNames
			for i := range 300 {
				names = append(names, "name-"+strconv.Itoa(i))
			}
			for _, name := range names {
				r, _ := request(name, time.Minute)
				g, err := b.Acquire(ctx, r)
				if err != nil || g.Token <= 0 {
					t.Fatalf("Acquire %q with %s: %+v, %v", name, query, g, err)
				}
				must(t, g.Lease.Renew(ctx, time.Minute))
				must(t, g.Lease.Release(ctx))
			}
		}
	})

	t.Run("hand-off and tokens", func(t *testing.T) {
		b1, b2 := openBackend(t, clusterURL(c, "?fencing=counter")), openBackend(t, "redis://"+c.Addrs()[0]+"?cluster=true&fencing=counter")
		var last lock.Token
		for i := range 30 { // of each node's slots some
			name := fmt.Sprint("handed ", i)
			r1, _ := request(name, time.Minute)
			r2, woken := request(name, time.Minute)
			g1, err := b1.Acquire(ctx, r1)
			must(t, err)
			g2, err := b2.Acquire(ctx, r2)
			if !errors.Is(err, lock.ErrHeld) || g2.Lease == nil {
				t.Fatalf("%+v, %v", g2, err)
			}
			must(t, g1.Lease.Release(ctx))
			wake(t, woken)
			g2, err = b2.Acquire(ctx, r2)
			must(t, err)
			if again, err := b2.Acquire(ctx, r2); err != nil || again.Token != g2.Token {
				t.Errorf("asked again: token %d after %d, %v", again.Token, g2.Token, err)
			}
			if g2.Token <= g1.Token {
				t.Errorf("token %d after %d", g2.Token, g1.Token)
			}
			must(t, g2.Lease.Release(ctx))
			last = max(last, g2.Token)
		}
		if now := lock.Token(time.Now().UnixMicro()); last > now+lock.Token(time.Minute.Microseconds()) || last < now-lock.Token(time.Hour.Microseconds()) {
			t.Errorf("the token %d is far from the time in µs, %d", last, now)
		}
	})

	t.Run("a batch over all nodes", func(t *testing.T) {
		b := openBackend(t, clusterURL(c, ""))
		var batch []lock.Renewal
		for i := range 40 {
			r, _ := request(fmt.Sprint("batch ", i), time.Second)
			g, err := b.Acquire(ctx, r)
			must(t, err)
			batch = append(batch, lock.Renewal{Lease: g.Lease, TTL: time.Minute})
		}
		must(t, admin.ForEachMaster(ctx, func(ctx context.Context, node *goredis.Client) error { return node.ScriptFlush(ctx).Err() }))
		must(t, admin.Del(ctx, "interlock:{batch%207}").Err())
		b.RenewAll(ctx, batch)
		for i, r := range batch {
			if want := map[bool]error{true: lock.ErrLost}[i == 7]; !errors.Is(r.Err, want) {
				t.Errorf("lease %d: %v, want %v", i, r.Err, want)
			}
			if err := r.Lease.Release(ctx); i != 7 && err != nil {
				t.Error(err)
			}
		}
	})

	t.Run("a slot moves under a lock", func(t *testing.T) {
		b1, b2 := openBackend(t, clusterURL(c, "?fencing=counter")), openBackend(t, clusterURL(c, "?fencing=counter"))
		name := "moved"
		slot := slotOf(b1.keysOf(name).lock)
		from := c.Nodes[int(slot)*3/slots]
		to := c.Nodes[(int(slot)*3/slots+1)%3]
		fromID, toID := nodeID(t, from), nodeID(t, to)
		r1, _ := request(name, time.Minute)
		g1, err := b1.Acquire(ctx, r1)
		must(t, err)
		r2, woken := request(name, time.Minute)
		_, err = b2.Acquire(ctx, r2)
		if !errors.Is(err, lock.ErrHeld) {
			t.Fatal(err)
		}
		source, target := adminOf(t, from), adminOf(t, to)
		must(t, target.Do(ctx, "cluster", "setslot", slot, "importing", fromID).Err())
		must(t, source.Do(ctx, "cluster", "setslot", slot, "migrating", toID).Err())
		// The keys go one by one: with some here and some there, the server
		// answers TRYAGAIN, which passes.
		keys := source.ClusterGetKeysInSlot(ctx, int(slot), 100).Val()
		if len(keys) != 4 { // lock, queue, waiters, counter
			t.Fatalf("the slot has the keys %q", keys)
		}
		must(t, source.Migrate(ctx, to.Host(), strconv.Itoa(to.Port()), keys[0], 0, time.Second).Err())
		if err := g1.Lease.Renew(ctx, time.Minute); err != nil && !errors.Is(err, lock.ErrUnavailable) {
			t.Errorf("Renew in the middle: %v", err)
		}
		for _, k := range keys[1:] {
			must(t, source.Migrate(ctx, to.Host(), strconv.Itoa(to.Port()), k, 0, time.Second).Err())
		}
		must(t, g1.Lease.Renew(ctx, time.Minute)) // ASK
		for _, node := range c.Nodes {
			must(t, adminOf(t, node).Do(ctx, "cluster", "setslot", slot, "node", toID).Err())
		}
		must(t, g1.Lease.Renew(ctx, time.Minute)) // MOVED
		must(t, g1.Lease.Release(ctx))
		wake(t, woken)
		g2, err := b2.Acquire(ctx, r2)
		must(t, err)
		if g2.Token <= g1.Token {
			t.Errorf("token %d after %d", g2.Token, g1.Token)
		}
		must(t, g2.Lease.Release(ctx))
	})

	t.Run("a plain client", func(t *testing.T) {
		_, err := lock.OpenBackend(ctx, "redis://"+c.Addrs()[0])
		if !errors.Is(err, lock.ErrUnsupported) || !strings.Contains(err.Error(), "cluster=true") {
			t.Errorf("%v", err)
		}
	})

	t.Run("rights", func(t *testing.T) {
		rules := append([]any{"acl", "setuser", "u", "reset", "on", ">pw", "~app:*", "&app:*", "+cluster|slots", "+command"}, asAny(rights)...)
		must(t, admin.ForEachMaster(ctx, func(ctx context.Context, node *goredis.Client) error { return node.Do(ctx, rules...).Err() }))
		lifeCycle(t, strings.Replace(clusterURL(c, "?prefix=app:"), "://", "://u:pw@", 1), true)
	})

	t.Run("residue", func(t *testing.T) {
		must(t, admin.ForEachMaster(ctx, func(ctx context.Context, node *goredis.Client) error {
			for _, k := range residue(t, node, "*") {
				if !strings.HasSuffix(k, "token") {
					t.Errorf("left at %v: %q", node, k)
				}
			}
			return nil
		}))
	})

	t.Run("CLUSTERDOWN", func(t *testing.T) {
		b := openBackend(t, clusterURL(c, ""))
		must(t, c.Nodes[2].Kill())
		defer func() { must(t, c.Nodes[2].Restart()) }()
		within(t, 30*time.Second, "the cluster to be down", func() bool {
			r, _ := request("n", time.Minute)
			g, err := b.Acquire(ctx, r)
			if err == nil {
				err = g.Lease.Release(ctx)
			}
			if err == nil {
				return false
			}
			if !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrHeld) {
				t.Errorf("%v", err)
			}
			return strings.Contains(err.Error(), "CLUSTERDOWN")
		})
	})
}

func nodeID(t *testing.T, r *testserver.Redis) string {
	t.Helper()
	id, err := adminOf(t, r).ClusterMyID(t.Context()).Result()
	must(t, err)
	return id
}

func asAny(words []string) (all []any) {
	for _, w := range words {
		all = append(all, w)
	}
	return all
}
