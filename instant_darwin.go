package lock

import (
	"time"

	"golang.org/x/sys/unix"
)

// readBootClock reads CLOCK_MONOTONIC, which on macOS counts sleep, as Go's own
// monotonic clock there does not.
func readBootClock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return time.Since(processStart)
	}
	return time.Duration(ts.Nano())
}
