package benchmarks

import (
	"context"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var pairTable = &table{
	name: "Pair",
	columns: []column{
		{title: "p50 µs", format: "%.0f"},
		{title: "× bare", format: "%.2f", of: bare.name},
		{title: "allocations", format: "%.0f"},
	},
	rows: []contestant{bare, interlock, interlockEndless, redislockPeer, redsyncPeer, rueidislockPeer},
}

// BenchmarkPair is Acquire and Release by one caller, of a name that nobody else
// wants; each time another name.
func BenchmarkPair(b *testing.B) {
	const slice = 30 * time.Millisecond
	entries := enter(b, server(b), pairTable.rows, 1, false)
	names := manyNames("pair", 1024)
	took := make([]time.Duration, 0, 1<<16)
	inTurns(b, pairTable, entries, func(ctx context.Context, e *entry) ([]float64, error) {
		for _, n := range names[:32] { // connections, scripts, caches
			if err := e.pair(ctx, n); err != nil {
				return nil, err
			}
		}
		took = took[:0]
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for last, end := time.Now(), time.Now().Add(slice); last.Before(end); {
			if err := e.pair(ctx, names[len(took)%len(names)]); err != nil {
				return nil, err
			}
			now := time.Now()
			took = append(took, now.Sub(last))
			last = now
		}
		runtime.ReadMemStats(&after)
		slices.Sort(took)
		return []float64{micros(took[len(took)/2]), float64(after.Mallocs-before.Mallocs) / float64(len(took))}, nil
	})
}

var callersTable = &table{
	name: "Callers",
	columns: []column{
		{title: "pairs/s", format: "%.0f"},
		{title: "× bare", format: "%.2f", of: bare.name},
	},
	rows: []contestant{bare, interlock, interlockEndless, redislockPeer, redsyncPeer, rueidislockPeer},
}

// BenchmarkCallers is the same by 32 callers of one client at once.
func BenchmarkCallers(b *testing.B) {
	const (
		slice   = 60 * time.Millisecond
		callers = 32
	)
	entries := enter(b, server(b), callersTable.rows, 1, false)
	names := manyNames("callers", callers)
	inTurns(b, callersTable, entries, func(ctx context.Context, e *entry) ([]float64, error) {
		var (
			pairs  atomic.Int64
			failed atomic.Pointer[error]
			all    sync.WaitGroup
		)
		began := time.Now()
		for _, name := range names {
			all.Go(func() {
				for time.Since(began) < slice {
					if err := e.pair(ctx, name); err != nil {
						failed.Store(&err)
						return
					}
					pairs.Add(1)
				}
			})
		}
		all.Wait()
		if err := failed.Load(); err != nil {
			return nil, *err
		}
		return []float64{float64(pairs.Load()) / time.Since(began).Seconds()}, nil
	})
}

func manyNames(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = prefix + ":" + strconv.Itoa(i)
	}
	return names
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
