package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/interlock-go/lock"
)

// Options are of Verify.
type Options struct {
	// Only names the checks to run; none means all.
	Only []string

	// Args are the arguments with which this program, run again, calls [Child]
	// with the same Subject. Nil means that there can be no child processes.
	Args []string

	// Done is told of each check when it has ended, from any goroutine.
	Done func(Outcome)
}

// Outcome is what came of one check.
type Outcome struct {
	Check   Check
	Err     error  // why it failed
	Skipped string // why it was not run
	Took    time.Duration
	Log     []string
}

// Result is what came of a run.
type Result struct {
	Outcomes []Outcome
}

// Err returns the failures, each with the rule that was broken.
func (r *Result) Err() error {
	var errs []error
	for _, o := range r.Outcomes {
		if o.Err != nil {
			errs = append(errs, fmt.Errorf("%s: %w\nthe rule: %s", o.Check.Name, o.Err, o.Check.Rule))
		}
	}
	return errors.Join(errs...)
}

// String counts the checks.
func (r *Result) String() string {
	var passed, failed, skipped int
	for _, o := range r.Outcomes {
		switch {
		case o.Skipped != "":
			skipped++
		case o.Err != nil:
			failed++
		default:
			passed++
		}
	}
	return fmt.Sprintf("%d checks passed, %d failed, %d not run", passed, failed, skipped)
}

// Verify runs the suite without package testing. It returns an error only if it
// could not run; what the checks found is in the Result.
func Verify(ctx context.Context, s Subject, o Options) (*Result, error) {
	r, err := newRunner(s, o)
	if err != nil {
		return nil, err
	}
	if err := r.start(ctx); err != nil {
		return nil, err
	}
	for _, p := range []phase{together, alone, disturbing} {
		var running sync.WaitGroup
		for _, c := range checks {
			if c.phase != p || len(o.Only) > 0 && !slices.Contains(o.Only, c.Name) {
				continue
			}
			if reason := r.skip(c); reason != "" {
				r.record(Outcome{Check: c, Skipped: reason})
				continue
			}
			if p == together {
				running.Go(func() { r.record(r.perform(ctx, c)) })
			} else {
				r.record(r.perform(ctx, c))
			}
		}
		running.Wait()
	}
	return &r.result, r.stop()
}

// runner runs checks against one server.
type runner struct {
	subject Subject
	options Options
	server  *Server
	promise lock.Guarantees
	slots   chan struct{} // for the checks that run together
	prefix  string        // of all lock names of this run
	stalls  stallMeter

	mu     sync.Mutex
	result Result
}

// atOnce is how many checks run together: most of their time they wait.
const atOnce = 6

func newRunner(s Subject, o Options) (*runner, error) {
	if s.Start == nil {
		return nil, errors.New("conformance: Subject.Start is nil")
	}
	if s.Open == nil {
		s.Open = lock.Open
	}
	s.seam.fill()
	s.Long = s.Long || longByEnvironment()
	for _, w := range s.Without {
		if !slices.Contains(Abilities(), w) {
			return nil, fmt.Errorf("conformance: Subject.Without has %q (it may have %s)", w, strings.Join(Abilities(), ", "))
		}
	}
	for _, name := range o.Only {
		if !slices.ContainsFunc(checks, func(c Check) bool { return c.Name == name }) {
			return nil, fmt.Errorf("conformance: no check is called %q", name)
		}
	}
	return &runner{subject: s, options: o, slots: make(chan struct{}, atOnce), prefix: "conformance/" + randomText(6)}, nil
}

func (r *runner) start(ctx context.Context) error {
	server, err := r.subject.Start(ctx)
	if err != nil {
		return fmt.Errorf("conformance: starting the store: %w", err)
	}
	r.server = server
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	l, err := r.subject.Open(ctx, server.URL)
	if err != nil {
		return errors.Join(fmt.Errorf("conformance: opening the store: %w", err), r.stop())
	}
	r.promise = l.Guarantees()
	r.stalls.start()
	if err := l.Close(); err != nil {
		return errors.Join(fmt.Errorf("conformance: closing the first client: %w", err), r.stop())
	}
	return nil
}

func (r *runner) stop() error {
	if r.stalls.quit != nil {
		r.stalls.stop()
	}
	if r.server.Stop == nil {
		return nil
	}
	if err := r.server.Stop(); err != nil {
		return fmt.Errorf("conformance: stopping the store: %w", err)
	}
	return nil
}

func (r *runner) record(o Outcome) {
	r.mu.Lock()
	r.result.Outcomes = append(r.result.Outcomes, o)
	r.mu.Unlock()
	if r.options.Done != nil {
		r.options.Done(o)
	}
}

// without says why an ability is not there, or "" if it has to be.
func (r *runner) without(ability string) string {
	if slices.Contains(r.subject.Without, ability) {
		return "Subject.Without has " + ability
	}
	switch ability {
	case needPause, needRestart, needNetwork, needChildren, needPool, needLogin:
		if r.subject.InProcess {
			return "needs " + ability + ", and the store lives in this process"
		}
	}
	if ability == needChildren && !canSignal {
		return "needs to stop and continue processes, which " + runtime.GOOS + " cannot"
	}
	return ""
}

// skip says why a check is not run, or "" if it is.
func (r *runner) skip(c Check) string {
	for _, n := range c.needs {
		if reason := r.without(n); reason != "" {
			return reason
		}
	}
	if c.not != nil {
		return c.not(r.promise)
	}
	return ""
}

// missing returns an error for an ability that should be there and is not.
func (r *runner) missing(ability string) error {
	var there bool
	switch ability {
	case needSteal:
		there = r.server.Steal != nil
	case needResidue:
		there = r.server.Residue != nil
	case needPause:
		there = r.server.Pause != nil && r.server.Resume != nil
	case needRestart:
		there = r.server.Kill != nil && r.server.Restart != nil
	case needLogin:
		there = r.server.Login != nil
	case needPool:
		there = r.subject.SmallestPool != nil
	case needChildren:
		there = r.options.Args != nil
	default:
		there = true
	}
	if there {
		return nil
	}
	return fmt.Errorf("the check needs %s, which the Subject does not have: give it, or name it in Subject.Without", ability)
}

// perform runs one check within its bound.
func (r *runner) perform(ctx context.Context, c Check) Outcome {
	if c.phase == together {
		r.slots <- struct{}{}
		defer func() { <-r.slots }()
	}
	for _, n := range c.needs {
		if err := r.missing(n); err != nil {
			return Outcome{Check: c, Err: err}
		}
	}
	bound := c.bound
	if bound == 0 {
		bound = defaultBound
	}
	if r.subject.Long {
		bound *= 10
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	o := Outcome{Check: c}
	began := time.Now()
	for range 4 {
		start := time.Now()
		t := &T{runner: r, check: c, ctx: ctx}
		o.Err = r.attempt(t, bound)
		o.Log = append(o.Log, t.lines()...)
		if o.Err == nil || !r.stalls.excused(o.Err, start) {
			break
		}
		o.Log = append(o.Log, fmt.Sprintf("this process stood still for %v: %v", r.stalls.since(start).Round(time.Millisecond), o.Err))
	}
	o.Took = time.Since(began)
	return o
}

// attempt runs a check until it ends or ctx does.
func (r *runner) attempt(t *T, bound time.Duration) error {
	done := make(chan error, 1)
	go func() { done <- t.perform() }()
	select {
	case err := <-done:
		return err
	case <-t.ctx.Done():
	}
	// What obeys ctx ends now, and says more than we could.
	select {
	case err := <-done:
		return err
	case <-time.After(2 * time.Second):
		return fmt.Errorf("waited %v for %s\n%s", bound, t.doing(), goroutines())
	}
}

// perform calls the check and then cleans up after it.
func (t *T) perform() (err error) {
	defer func() {
		if cerr := t.cleanUp(); err == nil {
			err = cerr
		}
	}()
	defer func() {
		switch p := recover().(type) {
		case nil:
		case abort:
			err = p.err
		default:
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return t.check.run(t.ctx, t)
}

// goroutines is the part of the goroutine dump that concerns locks.
func goroutines() string {
	buf := make([]byte, 1<<20)
	var kept []string
	for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(g, "interlock-go/lock") && !strings.Contains(g, "conformance.goroutines") && !strings.Contains(g, "stallMeter") {
			kept = append(kept, g)
		}
	}
	const most = 6 << 10
	s := strings.Join(kept, "\n\n")
	if len(s) > most {
		s = s[:most] + "\n…"
	}
	return s
}

// program is this program's path, for child processes.
func program() (string, error) {
	p, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding this program for a child process: %w", err)
	}
	return p, nil
}
