//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/file"
)

// watch is a job that runs: interlock's side of the guard.
type watch struct {
	*job
	guard    *exec.Cmd
	control  *os.File  // to the guard
	news     chan news // closed when the guard is gone
	group    int       // COMMAND's; 0 before it was started
	terminal terminal
	anchor   anchor
	sent     time.Time // the deadline that the guard was told
	lost     bool      // the lock was lost before COMMAND's end was known
}

// anchor is one moment on two clocks.
type anchor struct {
	mono    time.Time
	elapsed time.Duration
}

func (j *job) run() ending {
	w := &watch{job: j, terminal: openTerminal()}
	defer w.terminal.close()
	if err := w.start(); err != nil {
		return ending{code: exitOS, err: fmt.Errorf("start the guard of COMMAND: %w", err)}
	}
	defer w.terminal.takeBack()
	lost := j.handle.Context().Done()
	var tooLate <-chan time.Time // when the guard should have killed the group
	for {
		select {
		case n, ok := <-w.news:
			switch {
			case !ok:
				return w.guardDied()
			case n.Started != 0:
				w.group = n.Started
				j.report.note("started", "pid", n.Started)
			case n.Stopped != 0:
				w.stopped(syscall.Signal(n.Stopped))
			case n.Ended:
				return w.ended(n)
			}
		case <-j.renewed:
			w.sendDeadline()
		case <-lost:
			lost = nil
			tooLate = time.After(w.tellLost())
		case <-tooLate:
			w.killGroup()
		case s := <-j.signals:
			w.pass(s.(syscall.Signal))
		}
	}
}

// start starts the guard, with the pipes and, on the file backend, the
// descriptors of the lock. They get high numbers, so that those which COMMAND is
// to inherit from interlock's caller keep theirs.
func (w *watch) start() error {
	self, err := ownPath()
	if err != nil {
		return err
	}
	controlRead, control, err := os.Pipe()
	if err != nil {
		return err
	}
	defer controlRead.Close()
	status, statusWrite, err := os.Pipe()
	if err != nil {
		return err
	}
	defer statusWrite.Close()
	var inherited []int
	defer func() {
		for _, fd := range inherited {
			_ = unix.Close(fd)
		}
	}()
	for _, f := range append([]*os.File{controlRead, statusWrite}, file.Descriptors(w.handle.Name())...) {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD, 200)
		if err != nil {
			return err
		}
		inherited = append(inherited, fd)
	}
	w.guard = exec.Command(self, append([]string{
		"guard", "--control=" + strconv.Itoa(inherited[0]), "--status=" + strconv.Itoa(inherited[1]),
		"--grace=" + w.grace.String(), "--",
	}, w.argv...)...)
	w.guard.Args[0] = os.Args[0]
	w.guard.Env = w.env
	w.guard.Stdin, w.guard.Stdout, w.guard.Stderr = os.Stdin, os.Stdout, os.Stderr
	w.guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := w.guard.Start(); err != nil {
		return err
	}
	w.control = control
	w.news = make(chan news)
	go func() {
		defer close(w.news)
		for from := json.NewDecoder(status); ; {
			var n news
			if from.Decode(&n) != nil {
				return
			}
			w.news <- n
		}
	}()
	w.sendDeadline()
	return nil
}

// ownPath is the path of this program. On Linux it leads to the running program
// even if the file was replaced.
func ownPath() (string, error) {
	const link = "/proc/self/exe"
	if _, err := os.Stat(link); err == nil {
		return link, nil
	}
	return os.Executable()
}

// killMargin is how long before the end of trust the group gets SIGKILL, which
// takes a moment to do its work.
func killMargin(ttl time.Duration) time.Duration { return min(ttl/20, 500*time.Millisecond) }

// sendDeadline tells the guard until when the lock is surely ours, if that moved.
//
// Deadline is a moment of Go's clock, which stands still in a suspend, and it
// counts from the renewal's sending. It is therefore turned into the guard's
// clock by a moment of both that lies before that sending: a suspend in between
// makes the guard's deadline earlier, never later.
func (w *watch) sendDeadline() {
	deadline := w.handle.Deadline()
	if deadline.Equal(w.sent) && !w.anchor.mono.IsZero() {
		return
	}
	// elapsed first: what passes between the readings makes the deadline earlier.
	at, err := elapsed()
	now := anchor{time.Now(), at}
	if w.anchor.mono.IsZero() {
		w.anchor = now
	}
	var o order
	switch {
	case err != nil:
		o = order{Deadline: 1, End: true} // without a clock no deadline can be kept
	case !deadline.IsZero():
		o.Deadline = w.anchor.elapsed + deadline.Sub(w.anchor.mono) - killMargin(w.handle.TTL())
	}
	w.anchor, w.sent = now, deadline
	w.tell(o)
}

// tell sends an order. If the guard is gone, its news end; if it is stopped and
// the pipe is full, the order is dropped, which leaves it an earlier deadline. A
// pipe takes so few bytes whole or not at all.
func (w *watch) tell(o order) {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // there are only numbers in it
	}
	_ = w.control.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	_, _ = w.control.Write(append(text, '\n'))
}

// tellLost has the group ended, and returns after how long it must be dead.
func (w *watch) tellLost() time.Duration {
	w.lost = true
	var lostErr *lock.LostError
	var left time.Duration
	if errors.As(context.Cause(w.handle.Context()), &lostErr) && (lostErr.Cause == lock.CauseTaken || lostErr.Cause == lock.CauseSessionEnded) {
		left = takenGrace
		if !w.sent.IsZero() {
			left = max(0, min(left, time.Until(w.sent)-killMargin(w.handle.TTL())))
		}
	}
	now, err := elapsed()
	if err != nil {
		left = 0
	}
	w.tell(order{Deadline: max(1, now+left), End: true})
	return left
}

// killGroup is for a guard that does not, because it was stopped or killed.
func (w *watch) killGroup() {
	_ = w.guard.Process.Signal(syscall.SIGCONT) // to hear of COMMAND's end
	if w.group != 0 {
		_ = syscall.Kill(-w.group, syscall.SIGKILL)
	}
}

// pass passes a signal on to COMMAND's group. The guard sends it: it knows
// whether the group is still COMMAND's.
func (w *watch) pass(s syscall.Signal) {
	w.report.note("signal", "signal", s.String())
	w.tell(order{Signal: int(s)})
}

// stopped handles a stop of COMMAND: by the terminal because it wants the
// foreground, or by Ctrl-Z, in which interlock must follow it, so that the shell
// sees its job stopped.
func (w *watch) stopped(s syscall.Signal) {
	w.report.note("stopped", "signal", s.String())
	if !w.terminal.exists() || s == syscall.SIGSTOP {
		return
	}
	wantsForeground := s != syscall.SIGTSTP || w.terminal.given != 0
	if s == syscall.SIGTSTP || !w.terminal.ours() {
		w.terminal.takeBack()
		suspend()
	}
	if wantsForeground && w.terminal.ours() {
		w.terminal.give(w.group)
	}
	w.tell(order{Signal: int(syscall.SIGCONT)})
}

// suspend stops interlock's own process group, as the terminal would have done,
// and returns when it was continued.
//
// It sends SIGTTIN whatever stopped COMMAND: of the terminal's signals that stop,
// it is the one that interlock never catches, and the Go runtime does not give a
// caught one its default effect back. SIGSTOP would do, but would also stop a
// group that nobody is there to continue.
func suspend() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	_ = syscall.Kill(0, syscall.SIGTTIN)
	select {
	case <-continued:
	case <-time.After(200 * time.Millisecond): // the kernel stops no orphaned group
	}
}

// interruptGroup sends SIGINT to interlock's process group: a Ctrl-C that reached
// only COMMAND is to end the shell's script or loop around interlock too.
func interruptGroup() {
	signal.Reset(syscall.SIGINT)
	_ = syscall.Kill(0, syscall.SIGINT)
	time.Sleep(time.Second) // the signal ends this process, but perhaps on another thread
}

// ended is the usual end.
func (w *watch) ended(n news) ending {
	_ = w.guard.Wait()
	e := ending{code: n.Code, told: n.Told || w.lost}
	if n.Err != "" {
		e.err = errors.New(n.Err)
	}
	if n.Signal != 0 {
		e.code = exitSignal + n.Signal
		e.interrupted = syscall.Signal(n.Signal) == syscall.SIGINT && w.terminal.given != 0
	}
	return e
}

// guardDied kills the group that the guard left, and waits for its end.
func (w *watch) guardDied() ending {
	err := w.guard.Wait()
	e := ending{code: exitOS, err: fmt.Errorf("the guard of COMMAND ended (%v), so COMMAND was killed", err)}
	if w.group == 0 {
		return e
	}
	w.killGroup()
	for deadline := time.Now().Add(5 * time.Second); ; {
		// As process 1 of a container, interlock inherits them.
		_, _ = syscall.Wait4(-w.group, nil, syscall.WNOHANG, nil)
		if errors.Is(syscall.Kill(-w.group, 0), syscall.ESRCH) {
			return e
		}
		if time.Now().After(deadline) {
			e.survivors = true
			return e
		}
		time.Sleep(5 * time.Millisecond)
	}
}
