package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const prompt = "next? "

// shell is an interactive shell with job control on a terminal of its own.
type shell struct {
	t      *testing.T
	master *os.File
	run    string // the start of an interlock run

	mu   sync.Mutex
	seen string // what the terminal showed and was not yet expected
}

func newShell(t *testing.T) *shell {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := master.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	number := 0
	if cerr := raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	}); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-i")
	cmd.Env = append(os.Environ(), "PS1="+prompt, "ENV=")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = slave.Close()
	s := &shell{t: t, master: master, run: program + " run --url " + fileURL(t) + " n -- "}
	go func() {
		for buf := make([]byte, 4096); ; {
			n, err := master.Read(buf)
			s.mu.Lock()
			s.seen += string(buf[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = master.Close()
	})
	// From here on the terminal shows only what programs write.
	s.typed("stty -echo; echo quiet $((1+1))\n")
	s.expect("quiet 2")
	return s
}

// typed writes to the terminal what somebody types.
func (s *shell) typed(text string) {
	s.t.Helper()
	if _, err := s.master.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// shown is what the terminal showed after what was expected last.
func (s *shell) shown() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// expect waits until the terminal shows the text.
func (s *shell) expect(text string) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		_, after, ok := strings.Cut(s.seen, text)
		if ok {
			s.seen = after
		}
		seen := s.seen
		s.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the terminal has not shown %q within %v, but %q", text, patience, seen)
		}
	}
}

func TestTerminalInput(t *testing.T) {
	s := newShell(t)
	s.typed(s.run + `sh -c 'echo ask; read x; echo "got $x"; read y; echo "and $y"'; echo "code $?"` + "\n")
	s.expect("ask")
	s.typed("this\n")
	s.expect("got this")
	s.typed("that\n")
	s.expect("and that")
	s.expect("code 0")
}

func TestTerminalSettings(t *testing.T) {
	s := newShell(t)
	s.typed(s.run + `sh -c 'stty -icanon && stty icanon && echo set'; echo "code $?"` + "\n")
	s.expect("set")
	s.expect("code 0")
}

func TestTerminalInterrupt(t *testing.T) {
	s := newShell(t)
	// It never reads, so it is in the background and interlock passes the signal on.
	s.typed(s.run + `sh -c 'trap "echo told; exit 5" INT; echo ready; while :; do sleep 0.01; done'; echo "code $?"` + "\n")
	s.expect("ready")
	s.typed("\x03")
	s.expect("told")
	s.expect("code 5")
	// It reads, so the signal reaches it alone; the shell must learn of it all the
	// same, and leave its loop.
	s.typed(`for i in 1 2 3; do echo "round $i"; ` + s.run + `cat; done` + "\n")
	s.expect("round 1")
	s.typed("hello\n")
	s.expect("hello")
	s.typed("\x03")
	s.expect(prompt) // a loop that went on would not come to it
	s.typed("echo after $?\n")
	s.expect("after 130")
}

func TestTerminalStop(t *testing.T) {
	s := newShell(t)
	s.typed(s.run + "cat\n")
	s.typed("one\n")
	s.expect("one")
	s.typed("\x1a")
	s.expect("Stopped")
	s.typed("echo the shell is back\n")
	s.expect("the shell is back")
	s.typed(s.run + `true; echo "code $?"` + "\n") // the lock is still held
	s.expect("code 75")
	s.typed("fg\n")
	s.typed("two\n")
	s.expect("two")
	s.typed("\x04")
	s.typed(`echo "code $?"` + "\n")
	s.expect("code 0")
}

func TestTerminalStopOfACommandInTheBackground(t *testing.T) {
	s := newShell(t)
	s.typed(s.run + `sh -c 'trap "exit 6" USR1; echo ready; while :; do sleep 0.01; done'` + "\n")
	s.expect("ready")
	s.typed("\x1a")
	s.expect("Stopped")
	s.typed("bg; echo went on\n")
	s.expect("went on")
	s.typed(`kill -USR1 %1; wait %1; echo "code $?"` + "\n")
	s.expect("code 6")
}

func TestTerminalInputInTheBackground(t *testing.T) {
	s := newShell(t)
	s.typed(s.run + "cat &\n")
	// The shell tells of a stopped job before its next prompt.
	poll(t, "the job stops since it wants input", func() bool {
		s.typed("jobs\n")
		time.Sleep(20 * time.Millisecond)
		return strings.Contains(s.shown(), "Stopped")
	})
	s.typed("fg\n")
	s.typed("hello\n")
	s.expect("hello")
	s.typed("\x04")
	s.typed(`echo "code $?"` + "\n")
	s.expect("code 0")
}

func TestTerminalPipeline(t *testing.T) {
	s := newShell(t)
	// The last command of the job must keep the terminal, which interlock's COMMAND
	// does not want.
	s.typed(s.run + `sh -c 'echo from command' | sh -c 'cat; read x </dev/tty; echo "typed $x"'` + "\n")
	s.expect("from command")
	s.typed("hello\n")
	s.expect("typed hello")
}
