package testserver

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// fakeClockEnv makes a program take its wall clock from a file, through
// libfaketime.
func fakeClockEnv() ([]string, error) {
	fake, err := firstOf("libfaketime.so.1 (package faketime)",
		"/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib*/faketime/libfaketime.so.1", "/usr/local/lib/faketime/libfaketime.so.1")
	if err != nil {
		return nil, err
	}
	libc, err := firstOf("libc.so.6", "/lib/*/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6")
	if err != nil {
		return nil, err
	}
	return []string{
		// libc stands second: without it jemalloc and libfaketime wait for each
		// other at the start, for ever.
		"LD_PRELOAD=" + fake + ":" + libc,
		"FAKETIME_NO_CACHE=1",
		"FAKETIME_DONT_FAKE_MONOTONIC=1",
	}, nil
}

func clockFile(dir string) string    { return filepath.Join(dir, "clock") }
func clockFileEnv(dir string) string { return "FAKETIME_TIMESTAMP_FILE=" + clockFile(dir) }

// setClock writes the file by a rename: the server must not read half of it.
func setClock(dir string, d time.Duration) error {
	next := clockFile(dir) + ".new"
	if err := os.WriteFile(next, fmt.Appendf(nil, "%+.3f\n", d.Seconds()), 0o600); err != nil {
		return err
	}
	return os.Rename(next, clockFile(dir))
}

// firstOf is the first file that one of the patterns matches.
func firstOf(what string, patterns ...string) (string, error) {
	for _, p := range patterns {
		if found, err := filepath.Glob(p); err == nil && len(found) > 0 {
			return found[0], nil
		}
	}
	return "", unavailable("no %s for a clock that jumps", what)
}
