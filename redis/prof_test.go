package redis_test

import (
	"context"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock"
)

func BenchmarkParts(b *testing.B) {
	addr := benchServer(b)
	ctx := context.Background()
	bk, err := lock.OpenBackend(ctx, "redis://"+addr)
	if err != nil {
		b.Fatal(err)
	}
	defer bk.Close()
	l, _ := lock.Open(ctx, "redis://"+addr)
	bare := goredis.NewClient(&goredis.Options{Addr: addr, MaxRetries: -1})
	bare2 := goredis.NewClient(&goredis.Options{Addr: addr, MaxRetries: -1, Protocol: 2, ContextTimeoutEnabled: true})
	b.Run("backend", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			g, err := bk.Acquire(ctx, lock.Request{Name: "x", ID: "idididididididididididid", TTL: 30 * time.Second, Owner: "o"})
			if err != nil {
				b.Fatal(err)
			}
			g.Lease.Release(ctx)
		}
	})
	b.Run("engine", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			h, err := l.TryAcquire(ctx, "bench")
			if err != nil {
				b.Fatal(err)
			}
			h.Release(ctx)
		}
	})
	for _, c := range []*goredis.Client{bare, bare2} {
		b.Run("bare", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.SetNX(ctx, "bare", "owner", 30*time.Second)
				bareRelease.Run(ctx, c, []string{"bare"}, "owner")
			}
		})
		b.Run("ping", func(b *testing.B) {
			for b.Loop() {
				c.Ping(ctx)
			}
		})
	}
}
