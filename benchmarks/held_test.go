package benchmarks

import (
	"context"
	"runtime"
	"testing"
	"time"
)

var heldTable = &table{
	name: "Held",
	columns: []column{
		{title: "goroutines per lock", format: "%.2f"},
		{title: "heap per lock KiB", format: "%.2f"},
		{title: "stack per lock KiB", format: "%.2f"},
		{title: "requests per TTL/3", format: "%.0f"},
		{title: "writes per TTL/3", format: "%.0f"},
	},
	rows: []contestant{bareBatched, interlock, redislockPeer, redsyncPeer, rueidislockPeer},
}

// BenchmarkHeld is 2,000 locks of one client that renew themselves: what they
// cost this process, and what is sent for them in each third of a TTL. Requests
// that are written together are one flight.
func BenchmarkHeld(b *testing.B) {
	const (
		locks = 2000
		ttl   = 5 * time.Second
	)
	addr := server(b)
	names := manyNames("held", locks)
	var entries []*entry
	for _, row := range heldTable.rows {
		entries = append(entries, &entry{contestant: row})
	}
	inTurns(b, heldTable, entries, func(ctx context.Context, e *entry) ([]float64, error) {
		c, err := e.open(ctx, addr, options{ttl: ttl, renew: true, dial: e.wire.dial})
		if err != nil {
			return nil, err
		}
		e.clients = []client{c}
		defer func() {
			if err := c.close(); err != nil {
				b.Errorf("%s: close: %v", e.name, err)
			}
		}()
		if err := e.pair(ctx, "held:first"); err != nil { // connections and scripts
			return nil, err
		}
		held := make([]hold, 0, locks)
		before, goroutines := settled(), runtime.NumGoroutine()
		for _, name := range names {
			h, err := c.acquire(ctx, name)
			if err != nil {
				return nil, err
			}
			held = append(held, h)
		}
		after := settled()
		goroutines = runtime.NumGoroutine() - goroutines
		time.Sleep(ttl / 3) // the first renewals
		requests, writes := e.wire.requests.Load(), e.wire.writes.Load()
		time.Sleep(ttl / 3)
		values := []float64{
			float64(goroutines) / locks,
			float64(after.HeapAlloc-before.HeapAlloc) / 1024 / locks,
			float64(after.StackInuse-before.StackInuse) / 1024 / locks,
			float64(e.wire.requests.Load() - requests),
			float64(e.wire.writes.Load() - writes),
		}
		for _, h := range held {
			if err := h.Release(ctx); err != nil {
				return nil, err
			}
		}
		return values, nil
	})
}

// settled is the state of memory with no garbage in it.
func settled() (m runtime.MemStats) {
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}
