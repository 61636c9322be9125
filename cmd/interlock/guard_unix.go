//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// The guard is interlock, executed again, and COMMAND's parent. It kills
// COMMAND's process group at the deadline that interlock moves with each renewal,
// and at once when interlock is gone. Neither a kill -9 nor a SIGSTOP of
// interlock can keep it from that: the end of a process closes its pipes, and a
// stopped one sends no new deadline.
//
// It is in a process group of its own, so that what is sent to interlock's group
// does not reach it, and in the same session, so that COMMAND keeps its terminal.
type guard struct {
	group    int // COMMAND's
	grace    time.Duration
	deadline time.Duration // 0: none
	told     bool          // SIGTERM was sent because of the lock
	killed   bool          // SIGKILL was
}

// addGuard adds the hidden command that run starts the guard with.
func addGuard(root *cobra.Command, code *int) {
	var control, status int
	var grace time.Duration
	cmd := &cobra.Command{
		Use:    "guard",
		Short:  "What run starts to watch over COMMAND",
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if control < 3 || status < 3 || len(args) == 0 {
				return misuse{cmd, errors.New("this is for interlock run alone")}
			}
			unix.CloseOnExec(control)
			unix.CloseOnExec(status)
			*code = runGuard(os.NewFile(uintptr(control), "control"), os.NewFile(uintptr(status), "status"), grace, args)
			return nil
		},
	}
	cmd.Flags().IntVar(&control, "control", 0, "descriptor of orders")
	cmd.Flags().IntVar(&status, "status", 0, "descriptor of news")
	cmd.Flags().DurationVar(&grace, "grace", 0, "from SIGTERM to SIGKILL")
	root.AddCommand(cmd)
}

func runGuard(control, status *os.File, grace time.Duration, argv []string) int {
	// The parent-death signal of COMMAND is bound to the thread that made it.
	runtime.LockOSThread()
	swallow()
	tell := func(n news) { _ = json.NewEncoder(status).Encode(n) } // interlock may be gone

	orders := make(chan order)
	go func() {
		defer close(orders)
		for from := json.NewDecoder(control); ; {
			var o order
			if from.Decode(&o) != nil {
				return
			}
			orders <- o
		}
	}()
	first, ok := <-orders
	if !ok {
		return exitOS
	}
	g := guard{grace: grace, deadline: first.Deadline}
	if left, ends := g.left(); ends && left <= 0 {
		tell(news{Ended: true, Told: true, Err: "the lock ended before COMMAND was started"})
		return exitOS
	}
	var err error
	if g.group, err = startCommand(argv); err != nil {
		code := exitNotExecutable
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			code = exitNotFound
		}
		tell(news{Ended: true, Code: code, Err: err.Error()})
		return code
	}
	tell(news{Started: g.group})

	states := make(chan unix.WaitStatus)
	go func() {
		for {
			var s unix.WaitStatus
			switch _, err := unix.Wait4(g.group, &s, unix.WUNTRACED, nil); {
			case err == nil:
				states <- s
				if !s.Stopped() {
					return
				}
			case !errors.Is(err, unix.EINTR):
				os.Exit(exitOS) // interlock then kills the group
			}
		}
	}()
	for {
		timer := time.NewTimer(g.act())
		select {
		case o, ok := <-orders:
			switch {
			case !ok:
				orders = nil
				g.kill()
			case o.Signal != 0:
				g.send(syscall.Signal(o.Signal))
			default:
				g.deadline = o.Deadline
				if o.End {
					g.tell()
				}
			}
		case s := <-states:
			if s.Stopped() {
				tell(news{Stopped: int(s.StopSignal())})
				break
			}
			if g.told || g.killed {
				g.kill() // what COMMAND left behind must not go on either
			}
			n := news{Ended: true, Told: g.told || g.killed}
			if s.Signaled() {
				n.Signal = int(s.Signal())
			} else {
				n.Code = s.ExitStatus()
			}
			tell(n)
			return 0
		case <-timer.C:
		}
		timer.Stop()
	}
}

// act does what is due by the deadline, and returns when to look again. That is
// soon enough to find the clock ahead after a suspend, during which timers stand
// still.
func (g *guard) act() time.Duration {
	const look = time.Second
	left, ends := g.left()
	switch {
	case !ends || g.killed:
		return look
	case left <= 0:
		g.kill()
		return look
	case left <= g.grace:
		g.tell()
		return min(left, look)
	}
	return min(left-g.grace, look)
}

// left is the time to the deadline. A clock that cannot be read ends it.
func (g *guard) left() (left time.Duration, ends bool) {
	if g.deadline == 0 {
		return 0, false
	}
	now, err := elapsed()
	if err != nil {
		return 0, true
	}
	return g.deadline - now, true
}

// tell asks the group to end, once.
func (g *guard) tell() {
	if g.told {
		return
	}
	g.told = true
	g.send(syscall.SIGTERM)
	g.send(syscall.SIGCONT) // a stopped process would not hear it
}

func (g *guard) kill() {
	g.killed = true
	g.send(syscall.SIGKILL)
}

func (g *guard) send(s syscall.Signal) { _ = syscall.Kill(-g.group, s) } // it may be gone

// startCommand starts COMMAND at the head of a new process group and returns its
// pid. It inherits what the guard inherited: terminal, standard files and, on the
// file backend, the descriptors of the lock.
func startCommand(argv []string) (int, error) {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return 0, err
	}
	sys := &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(sys)
	p, err := os.StartProcess(path, argv, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   sys,
	})
	if err != nil {
		return 0, err
	}
	return p.Pid, nil
}

// swallow takes the signals that would end or stop the guard. It does not ignore
// them, since COMMAND would inherit that.
func swallow() {
	c := make(chan os.Signal, 1)
	for _, s := range []os.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGPIPE, syscall.SIGALRM, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU,
	} {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
}
