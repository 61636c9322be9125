package lock

import "time"

// Instant is a moment in elapsed time: it has nothing to do with the time of
// day. It reads two clocks, Go's monotonic one and one that goes on while the
// machine is suspended, and of two Instants the distance is the greater that
// either clock says. A deadline therefore passes as soon as either clock says
// so.
//
// The zero Instant is no moment; it is before all others.
type Instant struct{ mono, boot time.Duration }

// processStart is where mono counts from.
var processStart = time.Now()

// Now returns the present moment. It may be called from any goroutine.
func Now() Instant { return Instant{mono: time.Since(processStart), boot: bootClock()} }

// bootClock reads a clock that counts suspend. Tests replace it.
var bootClock = readBootClock

// IsZero reports whether i is the zero Instant.
func (i Instant) IsZero() bool { return i == Instant{} }

// Add returns the moment d later.
func (i Instant) Add(d time.Duration) Instant { return Instant{i.mono + d, i.boot + d} }

// Sub returns the time from j to i, as the clock says that shows more.
func (i Instant) Sub(j Instant) time.Duration { return max(i.mono-j.mono, i.boot-j.boot) }

// Reached reports whether the moment i has come by the time now, on either
// clock.
func (i Instant) Reached(now Instant) bool { return now.Sub(i) >= 0 }

// earlier returns the moment whose parts are the earlier of i's and j's.
func (i Instant) earlier(j Instant) Instant {
	return Instant{min(i.mono, j.mono), min(i.boot, j.boot)}
}

// wall is the moment as a time.Time, for people and for context deadlines.
func (i Instant) wall() time.Time { return time.Now().Add(-Now().Sub(i)) }
