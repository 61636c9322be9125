//go:build unix

package main

import "time"

// interlock and its guard talk through two pipes, in JSON, one value after the
// other.

// order is what interlock tells the guard.
type order struct {
	// Deadline is when the process group must be dead, on elapsed's clock, which
	// both processes read. 0 is never.
	Deadline time.Duration `json:"deadline,omitempty"`
	// End says that the lock is lost: the group is to get SIGTERM at once.
	End bool `json:"end,omitempty"`
	// Signal is to be sent to the group; the other fields then mean nothing.
	Signal int `json:"signal,omitempty"`
}

// news is what the guard tells interlock.
type news struct {
	Started int    `json:"started,omitempty"` // COMMAND's pid, which is its group's too
	Stopped int    `json:"stopped,omitempty"` // the signal that stopped COMMAND
	Ended   bool   `json:"ended,omitempty"`   // COMMAND ended, or was not started
	Code    int    `json:"code,omitempty"`    // then: its exit code
	Signal  int    `json:"signal,omitempty"`  // then: the signal that ended it
	Told    bool   `json:"told,omitempty"`    // then: the guard had sent SIGTERM or SIGKILL because of the lock
	Err     string `json:"err,omitempty"`     // then: why it was not started
}
