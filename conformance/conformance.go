// Package conformance proves a backend: a table of checks, each with the rule
// that it guards, run against a real store with as many clients, processes and
// network faults as the check needs.
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Subject{Start: startServer})
//	}
//
// # How it works
//
// [Run] calls Subject.Start once, opens clients with Subject.Open, and runs each
// check on lock names of its own. Checks that only wait run together; those that
// measure, and those that stop the server, run alone, at the end. Where a check
// needs another process it runs the test's program again with an environment
// variable that Run reads first: Start must therefore do whatever starts a
// server, and nothing before Run may. Network faults come from a proxy that the
// suite puts before the server.
//
// # What is left out
//
// What a store cannot have by its nature follows from its Guarantees: no clock,
// no check of expiry. What the test cannot do to the store (see the fields of
// [Server]) fails the checks that need it, unless Subject.Without names it.
// Either way, a check that was not run is reported by name, with the reason.
package conformance

import (
	"context"
	"os"
	"strings"

	"github.com/interlock-go/lock"
)

// Subject is what the suite is run against.
type Subject struct {
	// Start makes the store ready. It is called once, on the goroutine of Run,
	// and never in a child process.
	Start func(ctx context.Context) (*Server, error)

	// Open makes a client that shares nothing with the others but the store;
	// nil stands for lock.Open. It is called in child processes too, so it may
	// use only what it is given.
	Open func(ctx context.Context, url string, opts ...lock.SetupOption) (lock.Locker, error)

	// WithAddr puts the address of a proxy into the URL; nil replaces the URL's
	// only host. ServerAddr is what the proxy dials; nil stands for that host.
	WithAddr   func(url, addr string) (string, error)
	ServerAddr func(url string) (string, error)

	// SmallestPool makes the URL of a client with the smallest connection pool
	// that the backend allows.
	SmallestPool func(url string) string

	// InProcess is set if the store lives in this process and ends with it: then
	// there are no child processes, no network and no server to stop.
	InProcess bool

	// Without names what this store's test cannot do; see [Abilities].
	Without []string

	// Long runs the loops at their full length, as INTERLOCK_LONG=1 does.
	Long bool

	seam seam // how the suite's own tests break what cannot be broken otherwise
}

// Server is a store that was started. The functions say what can be done to it;
// nil means that it cannot.
type Server struct {
	URL     string // for Subject.Open
	Stop    func() error
	Pause   func() error // the server goes on living but answers nothing
	Resume  func() error
	Kill    func() error                                 // as a crash does
	Restart func() error                                 // after Kill, on the same address
	Steal   func(ctx context.Context, name string) error // an administrator takes the lock's own entry away

	// Login makes a user who may do all that locks need.
	Login func(ctx context.Context, user, password string) error

	// Residue lists what the lock of that name has left at the store, without
	// what is documented to stay, such as a counter of tokens.
	Residue func(ctx context.Context, name string) ([]string, error)
}

// TestingT is the part of [testing.T] that Run needs.
type TestingT[T any] interface {
	Helper()
	Name() string
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Run(name string, f func(T)) bool
	Parallel()
}

// Run runs the suite as subtests of t. In a child process of the suite it plays
// the child's part and ends the process.
func Run[T TestingT[T]](t T, s Subject) {
	t.Helper()
	Child(s)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r, err := newRunner(s, Options{Args: []string{"-test.run=" + pattern(t.Name()), "-test.count=1", "-test.timeout=10m"}})
	if err != nil {
		t.Errorf("%v", err)
		return
	}
	if err := r.start(ctx); err != nil {
		t.Errorf("%v", err)
		return
	}
	defer func() {
		if err := r.stop(); err != nil {
			t.Errorf("%v", err)
		}
	}()
	for _, p := range []phase{together, alone, disturbing} {
		t.Run(p.String(), func(t T) { runPhase(ctx, t, r, p) })
	}
	for _, o := range r.result.Outcomes {
		if o.Skipped != "" {
			t.Logf("not run: %s: %s", o.Check.Name, o.Skipped)
		}
	}
	t.Logf("%v", &r.result)
}

// runPhase runs the checks of one phase that t's filter selects. A check of the
// first phase starts before its subtest waits in Parallel, since how many run at
// once is the suite's to say: they hardly use a processor.
func runPhase[T TestingT[T]](ctx context.Context, t T, r *runner, p phase) {
	for _, c := range checks {
		if c.phase != p {
			continue
		}
		if reason := r.skip(c); reason != "" {
			r.record(Outcome{Check: c, Skipped: reason})
			continue
		}
		t.Run(c.Name, func(t T) {
			done := make(chan Outcome, 1)
			go func() { done <- r.perform(ctx, c) }()
			if p == together {
				t.Parallel()
			}
			o := <-done
			r.record(o)
			for _, line := range o.Log {
				t.Logf("%s", line)
			}
			if o.Err != nil {
				t.Errorf("%s: %v\nthe rule: %s", c.Name, o.Err, c.Rule)
			}
		})
	}
}

// pattern is the -test.run that selects the test of that name alone.
func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + p + "$"
	}
	return strings.Join(parts, "/")
}

func longByEnvironment() bool { return os.Getenv("INTERLOCK_LONG") == "1" }
