//go:build unix

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/interlock-go/lock"
)

// pids are the children of a process: by /proc, or by ps where there is none.
func pids(t *testing.T, parent int) []int {
	t.Helper()
	var lines [][]string // pid, parent
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, stat := range stats {
		text, _ := os.ReadFile(stat) // it may have ended
		if i := bytes.LastIndexByte(text, ')'); i > 0 {
			lines = append(lines, []string{filepath.Base(filepath.Dir(stat)), strings.Fields(string(text[i+1:]))[1]})
		}
	}
	if len(stats) == 0 {
		out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(out) {
			lines = append(lines, strings.Fields(string(line)))
		}
	}
	var children []int
	for _, f := range lines {
		if len(f) != 2 || f[1] != strconv.Itoa(parent) {
			continue
		}
		pid, err := strconv.Atoi(f[0])
		if err != nil {
			t.Fatal(err)
		}
		children = append(children, pid)
	}
	return children
}

// guardOf is the pid of an interlock's guard.
func guardOf(t *testing.T, p *process) int {
	t.Helper()
	children := pids(t, p.cmd.Process.Pid)
	if len(children) != 1 {
		t.Fatalf("interlock has the children %v", children)
	}
	return children[0]
}

func mustKill(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatalf("send %v to %d: %v", s, pid, err)
	}
}

func TestCommandIsDeadBeforeARivalHasTheLock(t *testing.T) {
	for _, test := range []struct {
		name   string
		rounds int
		kill   func(t *testing.T, p *process)
	}{
		{"interlock killed", 20, func(_ *testing.T, p *process) { p.signal(syscall.SIGKILL) }},
		{"guard killed", 10, func(t *testing.T, p *process) { mustKill(t, guardOf(t, p), syscall.SIGKILL) }},
		{"both killed", 3, func(t *testing.T, p *process) {
			guard := guardOf(t, p)
			p.signal(syscall.SIGSTOP)
			mustKill(t, guard, syscall.SIGKILL)
			p.signal(syscall.SIGKILL)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			url := fileURL(t)
			l := rival(t, url)
			for range test.rounds {
				work := newBusy(t)
				p := start(t, url, append([]string{"n", "--"}, work.argv()...)...)
				work.mustWork()
				group := -1
				if test.name == "both killed" {
					// The grandchild has the lock's descriptor and goes on, so the lock
					// stays its; end it by its group.
					group = pids(t, guardOf(t, p))[0]
				}
				test.kill(t, p)
				if group > 0 {
					if _, err := l.TryAcquire(t.Context(), "n"); !errors.Is(err, lock.ErrHeld) {
						t.Fatalf("while COMMAND's child lives: %v, want ErrHeld", err)
					}
					mustKill(t, -group, syscall.SIGKILL)
				}
				began := time.Now()
				h := take(t, l, "n")
				took := time.Since(began)
				work.mustRest("after a rival had the lock")
				if took > 3*time.Second { // a few ms on a machine that has nothing else to do
					t.Errorf("the lock was free after %v", took)
				}
				if err := h.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				if test.name == "guard killed" {
					p.mustEnd(exitOS)
				}
				p.wait()
			}
		})
	}
}

// A process that left the group is not killed, but on file it keeps the lock.
func TestDaemonKeepsTheLockOfAKilledInterlock(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Fatal("this test needs setsid: ", err)
	}
	url := fileURL(t)
	l := rival(t, url)
	p := start(t, url, "n", "--", "sh", "-c", `setsid sh -c 'echo $$; exec sleep 60' & wait`)
	daemon, err := strconv.Atoi(p.line())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(daemon, syscall.SIGKILL) })
	p.signal(syscall.SIGKILL)
	p.wait()
	time.Sleep(200 * time.Millisecond) // for the guard to do what it does
	if _, err := l.TryAcquire(t.Context(), "n"); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("while the daemon lives: %v, want ErrHeld", err)
	}
	mustKill(t, daemon, syscall.SIGKILL)
	take(t, l, "n")
}

// What COMMAND leaves behind goes on without the lock.
func TestBackgroundProcessDoesNotKeepTheLock(t *testing.T) {
	url := fileURL(t)
	p := start(t, url, "n", "--", "sh", "-c", `sleep 60 >/dev/null 2>&1 & echo $!`)
	left, err := strconv.Atoi(p.line())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(left, syscall.SIGKILL) })
	p.mustEnd(0)
	if code, stderr := run(t, url, "n", "--", "true"); code != 0 {
		t.Errorf("the next run: exit code %d: %s", code, stderr)
	}
	if err := syscall.Kill(left, 0); err != nil {
		t.Errorf("the process that COMMAND left: %v", err)
	}
}

func TestRemovedLockFileEndsCommand(t *testing.T) {
	dir := t.TempDir()
	work := newBusy(t)
	p := start(t, "file://"+dir, append([]string{"--ttl=600ms", "n", "--"}, work.argv()...)...)
	work.mustWork()
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("%v: %v", files, err)
	}
	if err := os.Remove(dir + "/" + files[0].Name()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	p.mustEnd(exitLost)
	if took := time.Since(began); took > takenGrace+3*time.Second {
		t.Errorf("COMMAND was ended %v after the file was removed", took)
	}
	work.mustRest("after interlock's end")
	oneHumanLine(t, p.errors(), "lost", `"n"`)
}

// A guard that is stopped does not keep COMMAND alive.
func TestStoppedGuard(t *testing.T) {
	dir := t.TempDir()
	work := newBusy(t)
	p := start(t, "file://"+dir, append([]string{"--ttl=600ms", "n", "--"}, work.argv()...)...)
	work.mustWork()
	mustKill(t, guardOf(t, p), syscall.SIGSTOP)
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("%v: %v", files, err)
	}
	if err := os.Remove(dir + "/" + files[0].Name()); err != nil {
		t.Fatal(err)
	}
	p.mustEnd(exitLost)
	work.mustRest("after interlock's end")
}
