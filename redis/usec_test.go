package redis_test

import (
	"context"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock"
)

func TestUsec(t *testing.T) {
	addr := benchServer(t)
	ctx := context.Background()
	bk, _ := lock.OpenBackend(ctx, "redis://"+addr)
	bare := goredis.NewClient(&goredis.Options{Addr: addr, MaxRetries: -1})
	run := func(what string, f func()) {
		f()
		bare.ConfigResetStat(ctx)
		for range 5000 {
			f()
		}
		for line := range strings.Lines(bare.Info(ctx, "commandstats").Val()) {
			if strings.Contains(line, "eval") || strings.Contains(line, "cmdstat_set") {
				t.Log(what, strings.TrimSpace(line))
			}
		}
	}
	req := lock.Request{Name: "x", ID: "idididididididididididid", TTL: 30 * time.Second, Owner: "o"}
	var g lock.Grant
	run("acquire", func() { g, _ = bk.Acquire(ctx, req) })
	run("acq+rel", func() { g, _ = bk.Acquire(ctx, req); g.Lease.Release(ctx) })
	run("bare", func() {
		bare.SetNX(ctx, "bare", "owner", 30*time.Second)
		bareRelease.Run(ctx, bare, []string{"bare"}, "owner")
	})
}
