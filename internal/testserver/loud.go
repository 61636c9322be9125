package testserver

import (
	"errors"
	"fmt"
	"os"
	"testing"
)

// skipOrFail ends a test that could not get its server: the Start function
// answered err.
func skipOrFail(t testing.TB, server, cure string, err error) {
	t.Helper()
	switch {
	case !errors.Is(err, ErrNone):
		t.Fatalf("%s needs %s, which is here and does not work: %v", t.Name(), server, err)
	case required(server):
		t.Fatalf("%s needs %s, and INTERLOCK_REQUIRE=%s demands it: %v", t.Name(), server, os.Getenv("INTERLOCK_REQUIRE"), err)
	}
	line := fmt.Sprintf("NOT RUN: %s needs %s (%s): %s", t.Name(), server, cure, reason(err))
	sayLoud(line)
	t.Skip(line)
}

// sayLoud prints a line where a person sees it although the test passes. The go
// command hides what a passing package's test prints, standard error included.
// It is a variable for the tests of this package.
var sayLoud = func(line string) {
	fmt.Fprintln(os.Stderr, line)
	if testing.Verbose() {
		return
	}
	if w := pastGoCommand(); w != nil {
		fmt.Fprintln(w, line)
		w.Close()
	}
}
