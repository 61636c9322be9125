//go:build !unix

package conformance

import "time"

// commonClock is a clock that all processes of a machine read alike. Here it is
// the time of day: somebody may set it.
func commonClock() time.Duration { return time.Duration(time.Now().UnixNano()) }

// cpuTime is how much processor time this process has used, which is not known
// here.
func cpuTime() (time.Duration, bool) { return 0, false }
