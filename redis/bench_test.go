package redis_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/internal/testserver"
	_ "github.com/interlock-go/lock/redis"
)

// bareRelease is the least that a correct release needs.
var bareRelease = goredis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

// BenchmarkUncontended is an acquisition and a release on one connection, beside
// the plain client's SET NX PX and script call, taken in turns so that both see
// the same machine. It reports their ratio.
func BenchmarkUncontended(b *testing.B) {
	addr := testserver.NeedRedis(b, testserver.RedisOptions{Own: true}).Addr()
	ctx := context.Background()
	l, err := lock.Open(ctx, "redis://"+addr)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	bare := goredis.NewClient(&goredis.Options{Addr: addr, MaxRetries: -1})
	defer bare.Close()

	ours := func() {
		h, err := l.TryAcquire(ctx, "bench")
		if err != nil {
			b.Fatal(err)
		}
		if err := h.Release(ctx); err != nil {
			b.Fatal(err)
		}
	}
	theirs := func() {
		if ok, err := bare.SetNX(ctx, "bare", "owner", 30*time.Second).Result(); !ok || err != nil { //nolint:staticcheck // the plain command
			b.Fatal(ok, err)
		}
		if err := bareRelease.Run(ctx, bare, []string{"bare"}, "owner").Err(); err != nil {
			b.Fatal(err)
		}
	}
	const batch = 20
	var ourTime, bareTime time.Duration
	for b.Loop() {
		began := time.Now()
		for range batch {
			ours()
		}
		middle := time.Now()
		for range batch {
			theirs()
		}
		ourTime += middle.Sub(began)
		bareTime += time.Since(middle)
	}
	b.ReportMetric(float64(ourTime)/float64(bareTime), "×bare")
	b.ReportMetric(float64(ourTime.Microseconds())/float64(b.N)/batch, "µs/pair")
	b.ReportMetric(testing.AllocsPerRun(1000, ours), "our-allocs")
	b.ReportMetric(testing.AllocsPerRun(1000, theirs), "bare-allocs")
}

// BenchmarkContended lets 8 clients take one name with no hold, and reports
// Jain's index of their shares, the longest wait and the requests for each
// acquisition.
func BenchmarkContended(b *testing.B) {
	addr := testserver.NeedRedis(b, testserver.RedisOptions{Own: true}).Addr()
	ctx := context.Background()
	const clients = 8
	lockers := make([]lock.Locker, clients)
	for i := range lockers {
		l, err := lock.Open(ctx, "redis://"+addr)
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close()
		lockers[i] = l
	}
	for b.Loop() {
		admin := goredis.NewClient(&goredis.Options{Addr: addr})
		h, err := lockers[0].Acquire(ctx, "bench")
		if err != nil {
			b.Fatal(err)
		}
		var wg sync.WaitGroup
		for _, l := range lockers[1:] { // each waits once, and so has its subscription
			wg.Go(func() {
				h, err := l.Acquire(ctx, "bench")
				if err != nil {
					b.Error(err)
					return
				}
				h.Release(ctx) //nolint:errcheck // not what is measured
			})
		}
		for admin.ZCard(ctx, "interlock:{bench}:queue").Val() < clients-1 { //nolint:revive // until they all wait
		}
		h.Release(ctx) //nolint:errcheck // not what is measured
		wg.Wait()
		admin.ConfigResetStat(ctx)
		took, longest := make([]float64, clients), make([]time.Duration, clients)
		end := time.Now().Add(2 * time.Second)
		for i, l := range lockers {
			wg.Go(func() {
				for began := time.Now(); began.Before(end); began = time.Now() {
					h, err := l.Acquire(ctx, "bench")
					if err != nil {
						b.Error(err)
						return
					}
					longest[i] = max(longest[i], time.Since(began))
					took[i]++
					if err := h.Release(ctx); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		var sum, squares float64
		var worst time.Duration
		for i, n := range took {
			sum += n
			squares += n * n
			worst = max(worst, longest[i])
		}
		info := admin.Info(ctx, "commandstats").Val()
		admin.Close()
		b.ReportMetric(sum/2, "acquisitions/s")
		b.ReportMetric(sum*sum/clients/squares, "Jain")
		b.ReportMetric(float64(worst.Microseconds())/1000, "ms-longest-wait")
		b.ReportMetric(requests(info)/sum, "requests/acquisition")
	}
}

// BenchmarkHandOff is the time from the start of Release to the return of the
// waiter's Acquire in another client, at the median, in round trips of PING.
func BenchmarkHandOff(b *testing.B) {
	addr := testserver.NeedRedis(b, testserver.RedisOptions{Own: true}).Addr()
	ctx := context.Background()
	one, err := lock.Open(ctx, "redis://"+addr)
	if err != nil {
		b.Fatal(err)
	}
	defer one.Close()
	two, err := lock.Open(ctx, "redis://"+addr)
	if err != nil {
		b.Fatal(err)
	}
	defer two.Close()
	bare := goredis.NewClient(&goredis.Options{Addr: addr, MaxRetries: -1})
	defer bare.Close()
	var handOffs, pings []time.Duration
	for b.Loop() {
		h, err := one.Acquire(ctx, "bench")
		if err != nil {
			b.Fatal(err)
		}
		got := make(chan time.Time)
		go func() {
			h, err := two.Acquire(ctx, "bench")
			now := time.Now()
			if err != nil {
				b.Error(err)
			} else if err := h.Release(ctx); err != nil {
				b.Error(err)
			}
			got <- now
		}()
		for bare.ZCard(ctx, "interlock:{bench}:queue").Val() == 0 { //nolint:revive // until it waits
		}
		began := time.Now()
		if err := h.Release(ctx); err != nil {
			b.Fatal(err)
		}
		handOffs = append(handOffs, (<-got).Sub(began))
		began = time.Now()
		bare.Ping(ctx)
		pings = append(pings, time.Since(began))
	}
	b.ReportMetric(float64(median(handOffs))/float64(median(pings)), "round-trips")
	b.ReportMetric(float64(median(handOffs).Microseconds()), "µs-p50")
}

// requests counts the calls that clients sent, of INFO commandstats.
func requests(info string) (n float64) {
	for line := range strings.Lines(info) {
		name, rest, _ := strings.Cut(line, ":calls=")
		switch name {
		case "cmdstat_evalsha", "cmdstat_eval", "cmdstat_ping", "cmdstat_subscribe":
			calls, _, _ := strings.Cut(rest, ",")
			f, err := strconv.ParseFloat(calls, 64)
			if err != nil {
				panic(err)
			}
			n += f
		}
	}
	return n
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
