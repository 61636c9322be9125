package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// elapsed reads CLOCK_BOOTTIME: it goes on while the machine is suspended, and
// is one for all processes.
func elapsed() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0, err
	}
	return time.Duration(ts.Nano()), nil
}
