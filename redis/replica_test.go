package redis

import (
	"errors"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/internal/testserver"
)

// A lock counts only once all the replicas asked for have it, whoever else is
// in step, and however it was taken.
func TestReplicas(t *testing.T) {
	s := startServer(t)
	ctx, admin := t.Context(), s.admin()
	replicas := []*testserver.Redis{
		testserver.NeedRedis(t, testserver.RedisOptions{ReplicaOf: s.Redis}),
		testserver.NeedRedis(t, testserver.RedisOptions{ReplicaOf: s.Redis}),
	}
	within(t, 10*time.Second, "the replicas to be in step", func() bool {
		return admin.Wait(ctx, 2, 100*time.Millisecond).Val() == 2
	})
	b, b2 := openBackend(t, s.url("?replicas=2&replica_timeout=600ms")), openBackend(t, s.url("?replicas=2&replica_timeout=600ms"))
	r, _ := request("n", time.Minute)
	g, err := b.Acquire(ctx, r)
	must(t, err)
	must(t, g.Lease.Renew(ctx, time.Minute))
	for _, rep := range replicas {
		if v := adminOf(t, rep).Get(ctx, "interlock:{n}").Val(); !strings.HasPrefix(v, r.ID+" ") {
			t.Errorf("a replica has %q", v)
		}
	}
	waiter, woken := request("n", time.Minute)
	if _, err := b2.Acquire(ctx, waiter); !errors.Is(err, lock.ErrHeld) {
		t.Fatal(err)
	}

	must(t, replicas[0].Pause())
	if err := g.Lease.Renew(ctx, time.Minute); !errors.Is(err, lock.ErrUnavailable) || !strings.Contains(err.Error(), "1 of 2 replicas") {
		t.Errorf("Renew with a replica stopped: %v", err)
	}
	batch := []lock.Renewal{{Lease: g.Lease, TTL: time.Minute}}
	if b.RenewAll(ctx, batch); !errors.Is(batch[0].Err, lock.ErrUnavailable) {
		t.Errorf("RenewAll with a replica stopped: %v", batch[0].Err)
	}
	must(t, g.Lease.Release(ctx)) // needs nobody's consent
	wake(t, woken)
	g2, err := b2.Acquire(ctx, waiter)
	if !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrHeld) || g2.Lease == nil || !strings.Contains(err.Error(), "1 of 2 replicas") {
		t.Errorf("an offer taken with a replica stopped: %+v, %v", g2, err)
	}
	must(t, admin.ScriptFlush(ctx).Err())
	if _, err = b2.Acquire(ctx, waiter); !errors.Is(err, lock.ErrUnavailable) {
		t.Errorf("asked again: %v", err)
	}
	other, _ := request("n", time.Minute)
	other.Wait = false
	if _, err := b.Acquire(ctx, other); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("a held lock needs no replicas to be seen: %v", err)
	}
	must(t, g2.Lease.Release(ctx))

	must(t, replicas[0].Resume())
	within(t, 10*time.Second, "the replica to be in step again", func() bool {
		g, err = b.Acquire(ctx, other)
		return err == nil
	})
	must(t, g.Lease.Release(ctx))
	if left := residue(t, admin, "*"); len(left) > 0 {
		t.Errorf("left at the server: %q", left)
	}
}

func TestReplicasInACluster(t *testing.T) {
	c := testserver.NeedRedisCluster(t, 3)
	b := openBackend(t, clusterURL(c, "?replicas=1&replica_timeout=50ms"))
	ctx := t.Context()
	var batch []lock.Renewal
	for _, name := range []string{"a", "b", "c", "d"} {
		r, _ := request(name, time.Minute)
		g, err := b.Acquire(ctx, r)
		if !errors.Is(err, lock.ErrUnavailable) || !strings.Contains(err.Error(), "0 of 1 replicas") || g.Lease == nil {
			t.Errorf("%q on masters without replicas: %+v, %v", name, g, err)
		}
		batch = append(batch, lock.Renewal{Lease: g.Lease, TTL: time.Minute})
	}
	b.RenewAll(ctx, batch)
	for i, r := range batch {
		if !errors.Is(r.Err, lock.ErrUnavailable) || !strings.Contains(r.Err.Error(), "0 of 1 replicas") {
			t.Errorf("renewal %d: %v", i, r.Err)
		}
		must(t, r.Lease.Release(ctx))
	}
}

// TestSentinel loses a master under a holder and a waiter.
func TestSentinel(t *testing.T) {
	s := testserver.NeedRedisSentinels(t, 1, 3)
	url := "redis://" + strings.Join(s.Addrs(), ",") + "?sentinel=" + testserver.SentinelMaster
	ctx := t.Context()
	one, err := lock.Open(ctx, url, lock.TTL(20*time.Second))
	must(t, err)
	defer one.Close()
	two, err := lock.Open(ctx, url, lock.TTL(20*time.Second))
	must(t, err)
	defer two.Close()
	holder, err := one.Acquire(ctx, "n")
	must(t, err)
	got := make(chan error, 1)
	go func() {
		h, err := two.Acquire(ctx, "n")
		if err == nil {
			err = h.Release(ctx)
		}
		got <- err
	}()
	admin := adminOf(t, s.Master)
	within(t, 5*time.Second, "the waiter to queue", func() bool { return admin.ZCard(ctx, "interlock:{n}:queue").Val() == 1 })
	replica := adminOf(t, s.Replicas[0])
	within(t, 5*time.Second, "the replica to have it", func() bool { return replica.ZCard(ctx, "interlock:{n}:queue").Val() == 1 })

	must(t, s.Master.Kill())
	within(t, 30*time.Second, "the replica to be the master", func() bool {
		return infoField(replica.Info(ctx, "replication").Val(), "role") == "master"
	})
	within(t, 15*time.Second, "the holder to reach the new master", func() bool { return holder.Extend(ctx, 20*time.Second) == nil })
	must(t, holder.Err())
	must(t, holder.Release(ctx))
	select {
	case err := <-got:
		must(t, err)
	case <-time.After(25 * time.Second):
		t.Fatal("waited 25s for the waiter to have the lock")
	}
}

func TestSentinelUnknownMaster(t *testing.T) {
	s := testserver.NeedRedisSentinels(t, 0, 1)
	_, err := lock.OpenBackend(t.Context(), "redis://"+s.Addrs()[0]+"?sentinel=nobody")
	if !errors.Is(err, lock.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	t.Log(err)
}

// A demoted node is left for the one that an address leads to now: a client that
// holds on to its connections would get READONLY for ever.
func TestDemoted(t *testing.T) {
	s := startServer(t)
	ctx, admin := t.Context(), s.admin()
	client := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	defer client.Close()
	l, err := New(ctx, client, Options{})
	must(t, err)
	defer l.Close()
	must(t, admin.SlaveOf(ctx, "127.0.0.1", "1").Err())
	before := infoField(admin.Info(ctx, "stats").Val(), "total_connections_received")
	for range 3 {
		if _, err := l.TryAcquire(ctx, "n"); !errors.Is(err, lock.ErrUnavailable) || !strings.Contains(err.Error(), "READONLY") {
			t.Errorf("%v", err)
		}
	}
	if after := infoField(admin.Info(ctx, "stats").Val(), "total_connections_received"); after == before {
		t.Error("connections to a demoted node were kept")
	}
	must(t, admin.SlaveOf(ctx, "NO", "ONE").Err())
	h, err := l.TryAcquire(ctx, "n")
	must(t, err)
	must(t, h.Release(ctx))
}
