package lock

import (
	"time"

	"golang.org/x/sys/windows"
)

// readBootClock reads the tick count, which counts sleep, to about 16 ms.
func readBootClock() time.Duration { return windows.DurationSinceBoot() }
