package benchmarks

import (
	"context"
	"testing"

	"github.com/interlock-go/lock/memory"
)

// BenchmarkEngine is Acquire and Release on memory: what the library itself
// costs, with a store that costs next to nothing.
func BenchmarkEngine(b *testing.B) {
	ctx := context.Background()
	l, err := memory.New(ctx, memory.NewStore())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		h, err := l.Acquire(ctx, "n")
		if err != nil {
			b.Fatal(err)
		}
		if err := h.Release(ctx); err != nil {
			b.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
}
