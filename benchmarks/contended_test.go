package benchmarks

import (
	"context"
	"sync"
	"testing"
	"time"
)

var (
	contendedTable = &table{name: "Contended", columns: contendedColumns, rows: contenders}
	crowdTable     = &table{name: "Crowd", columns: contendedColumns, rows: contenders}

	contenders       = []contestant{baton, interlock, redislockPeer, redsyncPeer, rueidislockPeer}
	contendedColumns = []column{
		{title: "acquisitions/s", format: "%.0f"},
		{title: "× baton", format: "%.2f", of: baton.name},
		{title: "longest wait ms", format: "%.0f"},
		{title: "longest ever ms", format: "%.0f", worst: true},
		{title: "Jain's index", format: "%.3f"},
		{title: "requests each", format: "%.1f"},
	}
)

// BenchmarkContended is 8 clients that take one name again and again and hold it
// for no time.
func BenchmarkContended(b *testing.B) { contend(b, contendedTable, 8) }

// BenchmarkCrowd is the same with 32, to show what grows with their number.
func BenchmarkCrowd(b *testing.B) { contend(b, crowdTable, 32) }

func contend(b *testing.B, t *table, clients int) {
	const slice = 300 * time.Millisecond
	entries := enter(b, server(b), t.rows, clients, true)
	for _, e := range entries {
		e.prepare(b, "contended:"+e.name)
	}
	inTurns(b, t, entries, func(ctx context.Context, e *entry) ([]float64, error) {
		before := e.wire.requests.Load()
		s, err := e.scramble(ctx, slice)
		requests := e.wire.requests.Load() - before
		longest := micros(s.longest) / 1e3
		return []float64{s.total / s.took.Seconds(), longest, longest, s.jain(clients), float64(requests) / s.total}, err
	})
}

// giveUpAfter bounds a wait that began before a slice's end.
const giveUpAfter = 2 * time.Second

// scramble is what came of one slice.
type scramble struct {
	total, squares float64 // of the clients' shares
	longest        time.Duration
	took           time.Duration
}

// jain is 1 if all had the same share, and 1/n if one had all.
func (s scramble) jain(clients int) float64 {
	return s.total * s.total / (float64(clients) * s.squares)
}

func (e *entry) scramble(ctx context.Context, slice time.Duration) (scramble, error) {
	ctx, cancel := context.WithTimeout(ctx, slice+giveUpAfter)
	defer cancel()
	var (
		mu  sync.Mutex
		sum scramble
		bad error
		all sync.WaitGroup
	)
	start := time.Now()
	for _, c := range e.clients {
		all.Go(func() {
			var share float64
			var longest time.Duration
			var err error
			for began := start; began.Sub(start) < slice; began = time.Now() {
				var h hold
				h, err = c.acquire(ctx, "contended:"+e.name)
				longest = max(longest, time.Since(began))
				if err == nil {
					err = h.Release(context.WithoutCancel(ctx))
				}
				if err != nil {
					break
				}
				share++
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil && ctx.Err() == nil { // else it starved, as the longest wait tells
				bad = err
			}
			sum.total += share
			sum.squares += share * share
			sum.longest = max(sum.longest, longest)
		})
	}
	all.Wait()
	sum.took = time.Since(start)
	return sum, bad
}
