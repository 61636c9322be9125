package benchmarks

import (
	"context"
	"testing"
	"time"

	"github.com/interlock-go/lock/internal/testserver"
)

// entry is a contestant with clients of its own.
type entry struct {
	contestant
	clients []client
	wire    wire
}

// server starts a Redis for one benchmark.
func server(b *testing.B) string {
	return testserver.NeedRedis(b, testserver.RedisOptions{Own: true}).Addr()
}

// enter opens n clients of each contestant. If they are counted, what they send
// is.
func enter(b *testing.B, addr string, rows []contestant, n int, counted bool) []*entry {
	b.Helper()
	var entries []*entry
	for _, row := range rows {
		e := &entry{contestant: row}
		o := options{ttl: defaultTTL}
		if counted {
			o.dial = e.wire.dial
		}
		for range n {
			c, err := row.open(context.Background(), addr, o)
			if err != nil {
				b.Fatalf("%s: %v", row.name, err)
			}
			b.Cleanup(func() {
				if err := c.close(); err != nil {
					b.Errorf("%s: close: %v", row.name, err)
				}
			})
			e.clients = append(e.clients, c)
		}
		entries = append(entries, e)
	}
	return entries
}

// prepare makes what a contestant's lock of that name needs beforehand.
func (e *entry) prepare(b *testing.B, name string) {
	if c, ok := e.clients[0].(*batonClient); ok {
		if err := c.prepare(context.Background(), name); err != nil {
			b.Fatal(err)
		}
	}
}

// pair acquires and releases with the contestant's first client.
func (e *entry) pair(ctx context.Context, name string) error {
	if e.endless {
		ctx = context.Background()
	}
	h, err := e.clients[0].acquire(ctx, name)
	if err != nil {
		return err
	}
	return h.Release(ctx)
}

// patience bounds what a contestant may do in one go: some that poll, or miss a
// word, would wait for ever.
const patience = 10 * time.Second

// inTurns runs rounds until the benchmark has had enough, and enters what slice
// measured; who begins changes from one to the next. That another library
// failed is told and leaves a gap.
func inTurns(b *testing.B, t *table, entries []*entry, slice func(ctx context.Context, e *entry) ([]float64, error)) {
	for first := 0; b.Loop(); first++ {
		for i := range entries {
			e := entries[(first+i)%len(entries)]
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			values, err := slice(ctx, e)
			cancel()
			switch {
			case err == nil:
				t.add(e.name, values...)
			case e.name == interlock.name:
				b.Fatalf("%s: %v", e.name, err)
			default:
				b.Logf("%s: %v", e.name, err)
				t.skip(e.name)
			}
		}
	}
	t.report(b)
}
