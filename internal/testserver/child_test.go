//go:build linux

package testserver

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func shell(t *testing.T, script string) *child {
	t.Helper()
	dir := t.TempDir()
	c := &child{path: "/bin/sh", args: []string{"-c", script}, dir: dir, logFile: filepath.Join(dir, "log")}
	t.Cleanup(func() { c.stop() })
	return c
}

func TestChildThatEndedByItself(t *testing.T) {
	c := shell(t, "echo last words; exit 3")
	if err := c.start(); err != nil {
		t.Fatal(err)
	}
	<-c.ended()
	for verb, do := range map[string]func() error{"pause": c.pause, "resume": c.resume, "kill": c.kill} {
		if err := do(); !errors.Is(err, errStopped) || !strings.Contains(err.Error(), "last words") {
			t.Errorf("%s: %v", verb, err)
		}
	}
	if err := c.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func TestChildThatIgnoresTheRequestToStop(t *testing.T) {
	c := shell(t, "trap '' TERM; echo up; while :; do sleep 1; done")
	if err := c.start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the trap is set", func() bool { return strings.Contains(c.tail(), "up") })
	if err := c.start(); err == nil {
		t.Error("it was started twice")
	}
	if err := c.stop(); err != nil {
		t.Error(err)
	}
}

// A thread that ends must not take the server with it: the parent-death signal
// is bound to the thread that forked.
func TestChildOutlivesThreads(t *testing.T) {
	c := shell(t, "exec sleep 60")
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		started <- c.start()
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	for range 20 {
		gone := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(gone)
		}()
		<-gone
	}
	if err := c.pause(); err != nil {
		t.Errorf("the child is gone: %v", err)
	}
}

// TestChildDiesWithTest kills a test process that has a child.
func TestChildDiesWithTest(t *testing.T) {
	const role = "INTERLOCK_TESTSERVER_ROLE"
	if os.Getenv(role) == "parent" {
		c := shell(t, "exec sleep 60")
		if err := c.start(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(os.Getenv("PID_FILE"), []byte(strconv.Itoa(c.cmd.Process.Pid)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		select {}
	}
	file := filepath.Join(t.TempDir(), "pid")
	parent := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChildDiesWithTest$", "-test.timeout=1m")
	parent.Env = append(os.Environ(), role+"=parent", "PID_FILE="+file)
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	pid := 0
	eventually(t, "the child's process id", func() bool {
		text, err := os.ReadFile(file)
		if err != nil || !strings.HasSuffix(string(text), "\n") {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	parent.Wait()
	eventually(t, "the end of the child", func() bool { return !alive(t, pid) })
}

// alive tells a running process from one that is gone or not yet reaped.
func alive(t *testing.T, pid int) bool {
	t.Helper()
	if err := syscall.Kill(pid, 0); err != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}
