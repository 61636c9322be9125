//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/interlock-go/lock"
)

// The tests run the program as users do: built, as a process of its own.
var (
	program    string
	buildFlags []string
)

// heedSignals has the programs under test not inherit that a signal is ignored,
// as under nohup.
func heedSignals() {
	for _, s := range passedOnSignals {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

func TestMain(m *testing.M) {
	// The race detector lets each process sleep for a second before it ends.
	os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	heedSignals()
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "interlock-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "interlock")
		build := exec.Command("go", append(append([]string{"build", "-o", program}, buildFlags...), ".")...)
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		if err := build.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "build interlock:", err)
			return 1
		}
		return m.Run()
	}())
}

// patience bounds every wait for something that must come.
const patience = 20 * time.Second

// process is an interlock that runs.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	input  *os.File    // to COMMAND's standard input
	lines  chan string // of COMMAND's standard output
	stderr *bytes.Buffer
	ended  chan struct{}
}

// fileURL is a store of the test's own.
func fileURL(t *testing.T) string { return "file://" + t.TempDir() }

// start runs interlock run with the store and the arguments.
func start(t *testing.T, url string, args ...string) *process {
	t.Helper()
	return startWith(t, func(*exec.Cmd) {}, url, args...)
}

func startWith(t *testing.T, change func(*exec.Cmd), url string, args ...string) *process {
	t.Helper()
	p := &process{
		t: t, cmd: exec.Command(program, append([]string{"run", "--url", url}, args...)...),
		lines: make(chan string, 1000), stderr: new(bytes.Buffer), ended: make(chan struct{}),
	}
	p.cmd.Stderr = p.stderr
	out, outWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout = outWrite
	p.cmd.WaitDelay = time.Second // a process left behind may hold standard error open
	in, inWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdin, p.input = in, inWrite
	change(p.cmd)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = outWrite.Close(), in.Close()
	go func() {
		defer close(p.lines)
		defer out.Close()
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.input.Close()
		_ = p.cmd.Process.Kill()
		p.wait()
	})
	return p
}

// wait waits for interlock's end and returns its exit code.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("interlock %q has not ended within %v", p.cmd.Args[1:], patience)
	}
	return p.cmd.ProcessState.ExitCode()
}

// expect waits for a line of COMMAND's output.
func (p *process) expect(want string) {
	p.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				p.t.Fatalf("COMMAND's output ended before the line %q; interlock says: %s", want, p.errors())
			}
			if line == want {
				return
			}
		case <-timeout:
			p.t.Fatalf("no line %q from COMMAND within %v", want, patience)
		}
	}
}

// line waits for the next line of COMMAND's output.
func (p *process) line() string {
	p.t.Helper()
	select {
	case line := <-p.lines:
		return line
	case <-time.After(patience):
		p.t.Fatalf("no line from COMMAND within %v", patience)
		return ""
	}
}

// errors is what interlock and COMMAND wrote to standard error.
func (p *process) errors() string {
	p.t.Helper()
	p.wait()
	return p.stderr.String()
}

func (p *process) closeInput() {
	p.t.Helper()
	if err := p.input.Close(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("send %v to interlock: %v", s, err)
	}
}

func (p *process) mustEnd(code int) {
	p.t.Helper()
	if got := p.wait(); got != code {
		p.t.Errorf("exit code %d, want %d; interlock says: %s", got, code, p.errors())
	}
}

// run runs interlock run to its end and returns its exit code and what it wrote
// to standard error.
func run(t *testing.T, url string, args ...string) (code int, stderr string) {
	t.Helper()
	p := start(t, url, args...)
	return p.wait(), p.errors()
}

// poll waits until ok reports true.
func poll(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// rival is a Locker of the test's own on the same store.
func rival(t *testing.T, url string) lock.Locker {
	t.Helper()
	l, err := lock.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil && !errors.Is(err, lock.ErrClosed) {
			t.Errorf("close the rival's Locker: %v", err)
		}
	})
	return l
}

// take waits for the lock.
func take(t *testing.T, l lock.Locker, name string) *lock.Handle {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	h, err := l.Acquire(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// busy is a COMMAND that does work without a pause, in two processes, each of
// which shows it by making a file grow. They ignore SIGTERM.
type busy struct {
	t     *testing.T
	files []string
}

func newBusy(t *testing.T) busy {
	base := filepath.Join(t.TempDir(), "work")
	return busy{t, []string{base + ".command", base + ".grandchild"}}
}

func (b busy) argv() []string {
	return []string{"sh", "-c", `trap "" TERM
work() { while :; do echo x >>"$1"; done; }
work "$2" & work "$1"`, "sh", b.files[0], b.files[1]}
}

func (b busy) sizes() [2]int64 {
	var s [2]int64
	for i, f := range b.files {
		if info, err := os.Stat(f); err == nil {
			s[i] = info.Size()
		}
	}
	return s
}

// mustWork waits until both processes have worked.
func (b busy) mustWork() {
	b.t.Helper()
	from := b.sizes()
	poll(b.t, "COMMAND and its child do their work", func() bool {
		now := b.sizes()
		return now[0] > from[0] && now[1] > from[1]
	})
}

// mustRest fails the test if a process does work from now on.
func (b busy) mustRest(what string) {
	b.t.Helper()
	from := b.sizes()
	// Without a pause, each process writes many times in this time.
	time.Sleep(50 * time.Millisecond)
	if now := b.sizes(); now != from {
		b.t.Errorf("%s: %d bytes of work by COMMAND and %d by its child", what, now[0]-from[0], now[1]-from[1])
	}
}

func oneHumanLine(t *testing.T, stderr string, parts ...string) {
	t.Helper()
	if strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "interlock: ") {
		t.Errorf("standard error is not one line of interlock's: %q", stderr)
	}
	for _, part := range parts {
		if !strings.Contains(stderr, part) {
			t.Errorf("standard error %q does not say %q", stderr, part)
		}
	}
}
