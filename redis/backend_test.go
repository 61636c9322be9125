package redis

import (
	"errors"
	"testing"
	"time"

	"github.com/interlock-go/lock"
)

func TestLockRenewRelease(t *testing.T) {
	s := startServer(t)
	ctx, b, admin := t.Context(), openBackend(t, s.url("")), s.admin()
	req, _ := request("sku:42", time.Second)
	req.Wait = false
	g, err := b.Acquire(ctx, req)
	if err != nil || g.Lease == nil || g.Token != 0 {
		t.Fatalf("Acquire: %+v, %v", g, err)
	}
	if v := admin.Get(ctx, "interlock:{sku:42}").Val(); v != req.ID+" 0 owner of sku:42" {
		t.Errorf("the lock's key holds %q", v)
	}
	if again, err := b.Acquire(ctx, req); err != nil || again.Lease == nil {
		t.Errorf("the same request again: %+v, %v", again, err)
	}
	other, _ := request("sku:42", time.Second)
	other.Wait = false
	var held *lock.HeldError
	g2, err := b.Acquire(ctx, other)
	if !errors.As(err, &held) || g2.Lease != nil || held.Owner != req.Owner || held.Left < 900*time.Millisecond || held.Left > time.Second {
		t.Errorf("another's request: %+v, %v", g2, err)
	}
	if err := g.Lease.Renew(ctx, time.Minute); err != nil {
		t.Errorf("Renew: %v", err)
	}
	if left := admin.PTTL(ctx, "interlock:{sku:42}").Val(); left < 59*time.Second {
		t.Errorf("%v left after Renew of a minute", left)
	}
	if err := g.Lease.Release(ctx); err != nil {
		t.Errorf("Release: %v", err)
	}
	if err := g.Lease.Release(ctx); !errors.Is(err, lock.ErrLost) {
		t.Errorf("second Release: %v", err)
	}
	if err := g.Lease.Renew(ctx, time.Second); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Renew after Release: %v", err)
	}
	if left := residue(t, admin, "*"); len(left) > 0 {
		t.Errorf("left at the server: %q", left)
	}
}

func TestRenewDoesNotCutAnExtension(t *testing.T) {
	s := startServer(t)
	ctx, b, admin := t.Context(), openBackend(t, s.url("")), s.admin()
	req, _ := request("n", time.Second)
	g, err := b.Acquire(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	l := g.Lease.(*lease)
	late := l.renewal(time.Second) // made, and then held up by the network
	if err := l.Renew(ctx, time.Minute); err != nil {
		t.Fatal(err)
	}
	if reply, err := b.run(ctx, &renewScript, late); err != nil || reply != int64(1) {
		t.Fatalf("%v, %v", reply, err)
	}
	left := func() time.Duration { return admin.PTTL(ctx, "interlock:{n}").Val() }
	if d := left(); d < 59*time.Second {
		t.Errorf("a late renewal left %v of a minute", d)
	}
	if err := l.Renew(ctx, 2*time.Second); err != nil {
		t.Fatal(err)
	}
	if d := left(); d > 2*time.Second {
		t.Errorf("%v left after it was shortened to 2s", d)
	}
}

func TestHandOff(t *testing.T) {
	s := startServer(t)
	ctx, admin := t.Context(), s.admin()
	first, second, third := openBackend(t, s.url("")), openBackend(t, s.url("")), openBackend(t, s.url(""))
	r1, _ := request("n", time.Minute)
	g1, err := first.Acquire(ctx, r1)
	if err != nil {
		t.Fatal(err)
	}
	wait := func(b *backend, r lock.Request) lock.Grant {
		t.Helper()
		g, err := b.Acquire(ctx, r)
		if !errors.Is(err, lock.ErrHeld) || g.Lease == nil || g.Retry < 59*time.Second {
			t.Fatalf("a waiter: %+v, %v", g, err)
		}
		return g
	}
	r2, woken2 := request("n", time.Minute)
	wait(second, r2)
	r3, woken3 := request("n", time.Minute)
	g3 := wait(third, r3)
	wait(second, r2) // again: it keeps its place
	if err := g1.Lease.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if after := wake(t, woken2); after != 0 {
		t.Errorf("the first waiter was told to wait %v", after)
	}
	if after := wake(t, woken3); after != offerTTL {
		t.Errorf("the second waiter was told to look after %v", after)
	}
	if left := admin.PTTL(ctx, "interlock:{n}").Val(); left > offerTTL || left <= 0 {
		t.Errorf("the offer has %v left", left)
	}
	g2, err := second.Acquire(ctx, r2)
	if err != nil {
		t.Fatalf("take the offer: %v", err)
	}
	if left := admin.PTTL(ctx, "interlock:{n}").Val(); left < 59*time.Second {
		t.Errorf("the lock has %v left once taken", left)
	}
	// The third gives up; nobody is left.
	if err := g3.Lease.Release(ctx); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Release of a queued lease: %v", err)
	}
	if err := g2.Lease.Release(ctx); err != nil {
		t.Error(err)
	}
	if left := residue(t, admin, "*"); len(left) > 0 {
		t.Errorf("left at the server: %q", left)
	}
	for _, b := range []*backend{first, second, third} {
		if n := len(b.sub.waiters); n != 0 {
			t.Errorf("%d waiters still noted", n)
		}
	}
}

func TestGivenUpOfferIsPassedOn(t *testing.T) {
	s := startServer(t)
	ctx := t.Context()
	b1, b2, b3 := openBackend(t, s.url("")), openBackend(t, s.url("")), openBackend(t, s.url(""))
	r1, _ := request("n", time.Minute)
	r2, woken2 := request("n", time.Minute)
	r3, woken3 := request("n", time.Minute)
	g1, _ := b1.Acquire(ctx, r1)
	g2, _ := b2.Acquire(ctx, r2)
	b3.Acquire(ctx, r3)
	g1.Lease.Release(ctx)
	wake(t, woken2)
	wake(t, woken3) // to look later
	if err := g2.Lease.Release(ctx); err != nil {
		t.Errorf("Release of a lease that was offered the lock: %v", err)
	}
	if after := wake(t, woken3); after != 0 {
		t.Errorf("the next was told to wait %v", after)
	}
	if _, err := b3.Acquire(ctx, r3); err != nil {
		t.Error(err)
	}
}

func TestDeadWaiterCostsNothing(t *testing.T) {
	s := startServer(t)
	ctx := t.Context()
	b1, dead, b3 := openBackend(t, s.url("")), openBackend(t, s.url("")), openBackend(t, s.url(""))
	r1, _ := request("n", time.Minute)
	r2, _ := request("n", time.Minute)
	r3, woken3 := request("n", time.Minute)
	g1, _ := b1.Acquire(ctx, r1)
	dead.Acquire(ctx, r2)
	b3.Acquire(ctx, r3)
	dead.sub.close() // as a kill does
	g1.Lease.Release(ctx)
	if after := wake(t, woken3); after != 0 {
		t.Errorf("the waiter behind a dead one was told to wait %v", after)
	}
}

func TestQueueEntryHasADeadline(t *testing.T) {
	s := startServer(t)
	ctx, admin := t.Context(), s.admin()
	b1, b2, b3 := openBackend(t, s.url("")), openBackend(t, s.url("")), openBackend(t, s.url(""))
	r1, _ := request("n", time.Minute)
	r2, woken2 := request("n", time.Minute)
	r3, woken3 := request("n", time.Minute)
	r3.Owner = "the third"
	g1, _ := b1.Acquire(ctx, r1)
	b2.Acquire(ctx, r2)
	b3.Acquire(ctx, r3)
	if ttl := admin.PTTL(ctx, "interlock:{n}:queue").Val(); ttl < time.Minute || ttl > 70*time.Second {
		t.Errorf("the queue's key has %v left", ttl)
	}
	entry := admin.HGet(ctx, "interlock:{n}:queue:waiters", r2.ID).Val()
	admin.HSet(ctx, "interlock:{n}:queue:waiters", r2.ID, "1000"+entry[13:]) // long ago
	g1.Lease.Release(ctx)
	if after := wake(t, woken3); after != 0 {
		t.Errorf("the waiter behind one past its deadline was told to wait %v", after)
	}
	wake(t, woken2) // to look, if it is there after all
	var held *lock.HeldError
	if _, err := b2.Acquire(ctx, r2); !errors.As(err, &held) || held.Owner != r3.Owner {
		t.Errorf("a waiter past its deadline was offered the lock: %v", err)
	}
}

func TestReleaseDoesNotTouchAnothers(t *testing.T) {
	s := startServer(t)
	ctx, b, admin := t.Context(), openBackend(t, s.url("")), s.admin()
	r1, _ := request("n", time.Minute)
	g1, _ := b.Acquire(ctx, r1)
	admin.Del(ctx, "interlock:{n}")
	r2, _ := request("n", time.Minute)
	if _, err := b.Acquire(ctx, r2); err != nil {
		t.Fatal(err)
	}
	if err := g1.Lease.Release(ctx); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Release of a stolen lock: %v", err)
	}
	if admin.Exists(ctx, "interlock:{n}").Val() != 1 {
		t.Error("the next holder's lock is gone")
	}
}

func TestForeignKeys(t *testing.T) {
	s := startServer(t)
	ctx, b, admin := t.Context(), openBackend(t, s.url("")), s.admin()
	admin.Set(ctx, "interlock:{bare}", "a value that nobody gave a TTL", 0)
	r, _ := request("bare", time.Minute)
	var held *lock.HeldError
	g, err := b.Acquire(ctx, r)
	if !errors.As(err, &held) || held.Left != 0 || g.Retry < 100*time.Millisecond || g.Retry > 10*time.Second {
		t.Errorf("a key without TTL: %+v, %v", g, err)
	}
	admin.RPush(ctx, "interlock:{list}", "x")
	r, _ = request("list", time.Minute)
	if _, err := b.Acquire(ctx, r); err == nil || errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrHeld) {
		t.Errorf("a key of another type: %v", err)
	} else {
		t.Log(err)
	}
}

func TestRenewAll(t *testing.T) {
	s := startServer(t)
	ctx, b, admin := t.Context(), openBackend(t, s.url("")), s.admin()
	var batch []lock.Renewal
	for i := range 5 {
		r, _ := request(string(rune('a'+i)), time.Second)
		g, err := b.Acquire(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		batch = append(batch, lock.Renewal{Lease: g.Lease, TTL: time.Minute})
	}
	admin.Del(ctx, "interlock:{c}")
	admin.ScriptFlush(ctx)
	b.RenewAll(ctx, batch)
	for i, r := range batch {
		if want := map[bool]error{true: lock.ErrLost}[i == 2]; !errors.Is(r.Err, want) {
			t.Errorf("lease %d: %v, want %v", i, r.Err, want)
		}
	}
	if left := admin.PTTL(ctx, "interlock:{e}").Val(); left < 59*time.Second {
		t.Errorf("%v left", left)
	}
}

func wake(t *testing.T, woken <-chan time.Duration) time.Duration {
	t.Helper()
	select {
	case d := <-woken:
		return d
	case <-time.After(5 * time.Second):
		t.Fatal("waited 5s for a wake-up")
		return 0
	}
}
