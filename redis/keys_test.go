package redis

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/internal/testserver"
)

func TestKeys(t *testing.T) {
	for name, want := range map[string]string{
		"sku:42":        "interlock:{sku:42}",
		"a b":           "interlock:{a%20b}",
		"{}":            "interlock:{%7B%7D}",
		"100%":          "interlock:{100%25}",
		"ü\x00":         "interlock:{%C3%BC%00}",
		"-_.:/@+=,~":    "interlock:{-_.:/@+=,%7E}",
		"report:2026-1": "interlock:{report:2026-1}",
	} {
		b := &backend{prefix: defaultPrefix}
		k := b.keysOf(name)
		if k.lock != want || k.queue != want+":queue" || k.waiters != want+":queue:waiters" {
			t.Errorf("%q: %q", name, k)
		}
	}
}

func TestSlotOf(t *testing.T) {
	c := testserver.NeedRedisCluster(t, 1)
	admin := adminOf(t, c.Nodes[0])
	for _, key := range []string{"123456789", "", "a", "{}a", "{a}b", "a{b}c{d}", "{{a}}", "}{", "a{", "{}{a}", "ünï"} {
		want, err := admin.ClusterKeySlot(t.Context(), key).Result()
		must(t, err)
		if got := slotOf(key); int64(got) != want {
			t.Errorf("slot of %q: %d, the server says %d", key, got, want)
		}
	}
}

// FuzzKeys looks for two names that meet, and for keys of one lock in two slots.
func FuzzKeys(f *testing.F) {
	for i, n := range oddNames {
		f.Add("interlock:", n, oddNames[(i+1)%len(oddNames)])
		f.Add(n, n, "x")
	}
	f.Fuzz(func(t *testing.T, prefix, one, two string) {
		if prefix == "" || checkPrefix(prefix) != nil || one == "" || two == "" {
			return
		}
		b := &backend{prefix: prefix}
		k1, k2 := b.keysOf(one), b.keysOf(two)
		seen := make(map[string]bool)
		for _, k := range []string{k1.lock, k1.queue, k1.waiters, k2.lock, k2.queue, k2.waiters} {
			if !strings.HasPrefix(k, prefix) {
				t.Errorf("%q is outside of the prefix %q", k, prefix)
			}
			seen[k] = true
		}
		if want := map[bool]int{true: 3, false: 6}[one == two]; len(seen) != want {
			t.Errorf("%q and %q have %d keys together: %q, %q", one, two, len(seen), k1, k2)
		}
		c := counters{prefix: prefix, cluster: true}
		if slot := slotOf(k1.lock); slotOf(k1.queue) != slot || slotOf(k1.waiters) != slot || hasOwnTag(prefix) && slotOf(c.key(k1.lock)) != slot {
			t.Errorf("the keys of %q under %q are in several slots", one, prefix)
		}
	})
}

// hasOwnTag keeps the fuzzer from filling a table for each prefix.
func hasOwnTag(prefix string) bool {
	_, after, opened := strings.Cut(prefix, "{")
	return opened && strings.Contains(after, "}")
}

func TestCounterKeys(t *testing.T) {
	for _, prefix := range []string{"interlock:", "app{", "}{", "{tag}", "a{b}c{"} {
		c := counters{prefix: prefix, cluster: true}
		b := &backend{prefix: prefix}
		for _, name := range oddNames {
			k := b.keysOf(name).lock
			if got := c.key(k); slotOf(got) != slotOf(k) || !strings.HasPrefix(got, prefix) {
				t.Fatalf("counter %q of %q is in another slot", got, k)
			}
		}
	}
	if k := (&counters{prefix: "interlock:"}).key("interlock:{x}"); k != "interlock:token" {
		t.Errorf("on a single server: %q", k)
	}
}

// Every name is a lock of its own, also at the server.
func TestOddNames(t *testing.T) {
	s := startServer(t)
	ctx, b := t.Context(), openBackend(t, s.url("?prefix=app:%7Bx%7D/v1%20"))
	var leases []lock.Lease
	for _, name := range oddNames {
		r, _ := request(name, time.Minute)
		r.Wait = false
		g, err := b.Acquire(ctx, r)
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		leases = append(leases, g.Lease)
		r, _ = request(name, time.Minute)
		r.Wait, r.Owner = false, ""
		if _, err := b.Acquire(ctx, r); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("%q again: %v", name, err)
		}
	}
	for _, l := range leases {
		must(t, l.Release(ctx))
	}
}

// An owner's label may be any bytes.
func TestOwner(t *testing.T) {
	s := startServer(t)
	ctx := t.Context()
	b1, b2, b3 := openBackend(t, s.url("")), openBackend(t, s.url("")), openBackend(t, s.url(""))
	for _, owner := range []string{"", "a b  c ", "\x00\xff\n", "1 2 3", strings.Repeat("o", lock.MaxOwnerLen)} {
		r1, _ := request("n", time.Minute)
		r2, woken := request("n", time.Minute)
		r3, _ := request("n", time.Minute)
		r1.Owner, r2.Owner, r3.Wait = owner, owner, false
		g1, err := b1.Acquire(ctx, r1)
		must(t, err)
		_, err = b2.Acquire(ctx, r2)
		var held *lock.HeldError
		if !errors.As(err, &held) || held.Owner != owner {
			t.Errorf("%q: %v", owner, err)
		}
		must(t, g1.Lease.Release(ctx))
		wake(t, woken)
		if _, err = b3.Acquire(ctx, r3); !errors.As(err, &held) || held.Owner != owner { // the offer
			t.Errorf("%q, offered: %v", owner, err)
		}
		g2, err := b2.Acquire(ctx, r2)
		must(t, err)
		must(t, g2.Lease.Release(ctx))
	}
}
