//go:build !linux

package file

import "time"

// waiters tells nobody anything here: each tries again by itself.
type waiters struct{}

func (*waiters) add(path, id string, wake func(time.Duration)) {}
func (*waiters) remove(id string)                              {}
func (*waiters) retry(id string) time.Duration                 { return pollInterval }
func (*waiters) close() error                                  { return nil }
