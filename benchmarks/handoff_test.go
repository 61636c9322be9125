package benchmarks

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"
)

// ping is a round trip and nothing else, by which hand-offs are measured.
var ping = contestant{name: "bare: a round trip (PING)", open: func(_ context.Context, addr string, o options) (client, error) {
	return &bareClient{c: newGoRedis(addr, o), o: o}, nil
}}

var handOffTable = &table{
	name: "HandOff",
	columns: []column{
		{title: "p50 µs", format: "%.0f"},
		{title: "round trips", format: "%.1f", of: ping.name},
	},
	rows: []contestant{ping, baton, interlock, redislockPeer, redsyncPeer, rueidislockPeer},
}

// BenchmarkHandOff is the time from the start of a Release to the return of
// Acquire in the one other client, which waits.
func BenchmarkHandOff(b *testing.B) {
	const perRound = 5
	entries := enter(b, server(b), handOffTable.rows, 2, false)
	for _, e := range entries {
		e.prepare(b, "hand-off:"+e.name)
	}
	inTurns(b, handOffTable, entries, func(ctx context.Context, e *entry) ([]float64, error) {
		once := handOver
		if e.name == ping.name {
			once = pingOnce
		}
		took := make([]float64, perRound)
		for i := range took {
			d, err := once(ctx, e, i%2)
			if err != nil {
				return nil, err
			}
			took[i] = micros(d)
		}
		return []float64{median(took)}, nil
	})
}

// pingOnce comes after a rest, as the hand-off does: a connection and a machine
// that have just been used are faster.
func pingOnce(ctx context.Context, e *entry, from int) (time.Duration, error) {
	rest()
	c := e.clients[from].(*bareClient).c //nolint:forcetypeassert // ping's
	began := time.Now()
	err := c.Ping(ctx).Err()
	return time.Since(began), err
}

// rest is long enough for the other client to have queued, and lets those that
// poll be anywhere in their pause.
func rest() { time.Sleep(2*pollEvery + rand.N(pollEvery)) }

func handOver(ctx context.Context, e *entry, from int) (time.Duration, error) {
	name := "hand-off:" + e.name
	type got struct {
		hold hold
		at   time.Time
		err  error
	}
	h, err := e.clients[from].acquire(ctx, name)
	if err != nil {
		return 0, err
	}
	waiter := make(chan got, 1)
	go func() {
		next, err := e.clients[1-from].acquire(ctx, name)
		waiter <- got{next, time.Now(), err}
	}()
	rest()
	began := time.Now()
	if err := h.Release(ctx); err != nil {
		return 0, err
	}
	next := <-waiter
	if next.err != nil {
		return 0, next.err
	}
	return next.at.Sub(began), next.hold.Release(ctx)
}
