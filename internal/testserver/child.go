package testserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

// errStopped is the answer of a server that does not run.
var errStopped = errors.New("the server does not run")

// child is a server as a child process, in a process group of its own.
type child struct {
	path    string
	args    []string
	env     []string // added to the test's own
	dir     string
	logFile string
	as      *runAs // whom it runs as; nil: the test's own user
	polite  bool   // it ends at an interrupt; a request to terminate lets it wait for its clients
	spreads bool   // its children have process groups of their own

	mu   sync.Mutex
	cmd  *exec.Cmd     // nil: does not run
	done chan struct{} // closed when cmd was waited for
}

// start runs the program. It returns once the process exists.
func (c *child) start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd != nil {
		return errors.New("the server runs already")
	}
	log, err := os.Create(c.logFile)
	if err != nil {
		return err
	}
	defer log.Close()

	cmd := exec.Command(c.path, c.args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), c.env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = ownGroup()
	c.as.become(cmd.SysProcAttr)

	done := make(chan struct{})
	started := make(chan error, 1)
	go func() {
		// The parent-death signal is sent when the thread that forked ends, not
		// the process: that thread is kept until the child is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		_ = cmd.Wait() // how it ended stands in the log
		close(done)
	}()
	if err := <-started; err != nil {
		return err
	}
	c.cmd, c.done = cmd, done
	return nil
}

// ended is closed when the process that start made is gone.
func (c *child) ended() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.done
}

// signal sends one to the process group if the process still runs.
func (c *child) signal(send func(pid int) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd == nil {
		return errStopped
	}
	select {
	case <-c.done:
		return fmt.Errorf("%w: it ended by itself: %s", errStopped, c.tail())
	default:
		return send(c.cmd.Process.Pid)
	}
}

// everyone makes of a signal for a process group one for the groups of the
// process's children too.
func (c *child) everyone(send func(pid int) error) func(pid int) error {
	if !c.spreads {
		return send
	}
	return func(pid int) error {
		// Stopped, it makes no more children.
		if err := pauseGroup(pid); err != nil {
			return err
		}
		young, err := childrenOf(pid)
		if err != nil {
			return err
		}
		for _, y := range young {
			_ = send(y) // it may have ended this moment
		}
		return send(pid)
	}
}

func (c *child) pause() error  { return c.signal(c.everyone(pauseGroup)) }
func (c *child) resume() error { return c.signal(c.everyone(resumeGroup)) }

// kill ends the process as a crash does, and waits until it is gone.
func (c *child) kill() error {
	if err := c.signal(c.everyone(killGroup)); err != nil {
		return err
	}
	return c.reap(10 * time.Second)
}

// stop asks the process to end, and kills it if it has not after 3 s. A process
// that does not run is no error.
func (c *child) stop() error {
	c.mu.Lock()
	runs := c.cmd != nil
	c.mu.Unlock()
	if !runs {
		return nil
	}
	stop := stopGroup
	if c.polite {
		stop = c.everyone(resumeGroup) // paused, it would not see the request
		if c.signal(stop) == nil {
			stop = interruptGroup
		}
	}
	if c.signal(stop) == nil {
		select {
		case <-c.ended():
		case <-time.After(3 * time.Second):
			_ = c.signal(c.everyone(killGroup)) // it may have ended this moment
		}
	}
	return c.reap(10 * time.Second)
}

// reap waits for the end of a process that was told to end.
func (c *child) reap(atMost time.Duration) error {
	select {
	case <-c.ended():
	case <-time.After(atMost):
		return fmt.Errorf("%s was told to end and is still there after %v", c.path, atMost)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cmd = nil
	return nil
}

// tail is the end of what the process printed, for an error.
func (c *child) tail() string {
	text, err := os.ReadFile(c.logFile)
	if err != nil {
		return err.Error()
	}
	return lastLines(string(text))
}

// lastLines are the last five, as one.
func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], " | ")
}
