package lock

import (
	mathrand "math/rand/v2"
	"time"
)

// backoff counts growing pauses, each shortened at random so that callers do
// not march in step.
type backoff struct{ least, most, now time.Duration }

func (b *backoff) reset() { b.now = 0 }

func (b *backoff) next() time.Duration {
	b.now = min(max(2*b.now, b.least), b.most)
	return b.now/2 + jitter(b.now/2)
}

// jitter is a random time from 0 to below d.
func jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return mathrand.N(d)
}
