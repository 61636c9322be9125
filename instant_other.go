//go:build !linux && !darwin && !windows

package lock

import "time"

// readBootClock reads Go's monotonic clock: whether it counts suspend is up to
// the system.
func readBootClock() time.Duration { return time.Since(processStart) }
