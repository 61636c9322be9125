package testserver

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// ErrNone is matched by an error of a Start function that found no way to give
// the server on this machine. An error that does not match it means that a
// server is here and does not work.
var ErrNone = errors.New("no server on this machine")

// A way is where servers come from.
type way string

const (
	wayEnv       way = "env"
	wayProcess   way = "process"
	wayContainer way = "container"
)

// ways lists the ways to try, in order.
func ways() ([]way, error) {
	forced := way(os.Getenv("INTERLOCK_SERVERS"))
	all := []way{wayEnv, wayProcess, wayContainer}
	switch {
	case forced == "":
		return all, nil
	case slices.Contains(all, forced):
		return []way{forced}, nil
	}
	return nil, fmt.Errorf("INTERLOCK_SERVERS=%q is none of env, process, container", forced)
}

// required tells whether a test that needs server must fail without it.
func required(server string) bool {
	for name := range strings.SplitSeq(os.Getenv("INTERLOCK_REQUIRE"), ",") {
		if name = strings.TrimSpace(name); name == "all" || name == server {
			return true
		}
	}
	return false
}

// unavailable is why one way cannot give a server.
func unavailable(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrNone, fmt.Errorf(format, args...))
}

// noneOf joins why each way could not give a server, in one line.
func noneOf(reasons []error) error {
	text := make([]string, len(reasons))
	for i, r := range reasons {
		text[i] = reason(r)
	}
	return fmt.Errorf("%w: %s", ErrNone, strings.Join(text, "; "))
}

// reason is an error's text without ErrNone's.
func reason(err error) string { return strings.TrimPrefix(err.Error(), ErrNone.Error()+": ") }
