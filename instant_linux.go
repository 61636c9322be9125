package lock

import (
	"time"

	"golang.org/x/sys/unix"
)

// readBootClock reads CLOCK_BOOTTIME, which counts suspend.
func readBootClock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Since(processStart)
	}
	return time.Duration(ts.Nano())
}
