//go:build unix && !linux

package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// elapsed reads CLOCK_MONOTONIC, which is one for all processes, and on macOS
// goes on while the machine sleeps.
func elapsed() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, err
	}
	return time.Duration(ts.Nano()), nil
}
