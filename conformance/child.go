package conformance

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/interlock-go/lock"
)

// childEnv tells a process that it is a child of the suite; its value is the
// server's URL.
const childEnv = "INTERLOCK_CONFORMANCE_CHILD"

// replyMark begins each line of a child that is for the suite, since the test's
// program may print others.
const replyMark = "interlock-conformance:"

// order is a line that the suite sends to a child.
type order struct {
	Op      string
	As      string // the handle's name in the child
	Name    string
	TTL     time.Duration
	NoRenew bool
	Wait    bool
	Within  time.Duration
	Dir     string // of a dirGuard
}

// reply is the child's answer.
type reply struct {
	Err    string
	Is     []string // what errors.Is says of it
	Token  int64
	LastOK time.Duration // commonClock before the last time that Handle.Err said nil
	Ended  time.Duration // commonClock when Handle.Context had ended
	Cycles int
}

// sentinels are the errors that a reply can tell apart.
var sentinels = map[string]error{
	"held": lock.ErrHeld, "lost": lock.ErrLost, "released": lock.ErrReleased, "unavailable": lock.ErrUnavailable,
	"no token": lock.ErrNoToken, "invalid": lock.ErrInvalid, "unsupported": lock.ErrUnsupported, "closed": lock.ErrClosed,
}

// remoteError is an error of a child.
type remoteError struct{ r reply }

func (e *remoteError) Error() string { return "in a child process: " + e.r.Err }

func (e *remoteError) Is(target error) bool {
	for _, name := range e.r.Is {
		if sentinels[name] == target {
			return true
		}
	}
	return false
}

// child is another process with a client of its own. Its methods are for one
// goroutine at a time.
type child struct {
	t       *T
	cmd     *exec.Cmd
	orders  io.WriteCloser
	replies chan reply // closed at the process's end
	gone    bool
}

// child starts a process that is killed after the check.
func (t *T) child() *child {
	path, err := program()
	t.must(err)
	cmd := exec.Command(path, t.runner.options.Args...)
	cmd.Env = append(os.Environ(), childEnv+"="+t.runner.server.URL)
	var noise tail
	cmd.Stderr = &noise
	orders, err := cmd.StdinPipe()
	t.must(err)
	lines, err := cmd.StdoutPipe()
	t.must(err)
	t.must(cmd.Start())
	c := &child{t: t, cmd: cmd, orders: orders, replies: make(chan reply, 16)}
	t.cleanup(func() error {
		_ = c.cmd.Process.Kill()
		orders.Close()
		for range c.replies {
		}
		_ = cmd.Wait()
		if s := noise.String(); strings.Contains(s, "DATA RACE") {
			return fmt.Errorf("a child process reported: %s", s)
		}
		return nil
	})
	go func() {
		defer close(c.replies)
		for s := bufio.NewScanner(lines); s.Scan(); {
			line, ok := strings.CutPrefix(s.Text(), replyMark)
			if !ok {
				fmt.Fprintln(&noise, s.Text())
				continue
			}
			var r reply
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				r = reply{Err: "unreadable reply: " + err.Error()}
			}
			c.replies <- r
		}
	}()
	if _, err := c.answer(10*time.Second, "a child process to open its client"); err != nil {
		t.fail("%w\n%s", err, noise.String())
	}
	return c
}

// send gives an order, without waiting for the answer.
func (c *child) send(o order) {
	b, err := json.Marshal(o)
	c.t.must(err)
	if _, err := c.orders.Write(append(b, '\n')); err != nil {
		c.t.fail("giving %q to a child process: %w", o.Op, err)
	}
}

// answer waits for the next reply.
func (c *child) answer(bound time.Duration, what string) (reply, error) {
	c.t.note("%s", what)
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case r, ok := <-c.replies:
		if !ok {
			return r, errors.New("a child process ended by itself")
		}
		if r.Err != "" {
			return r, &remoteError{r}
		}
		return r, nil
	case <-timer.C:
		return reply{}, fmt.Errorf("waited %v for %s", bound, what)
	}
}

// do gives an order and waits for the answer.
func (c *child) do(o order) (reply, error) {
	c.send(o)
	return c.answer(opBound+o.Within, fmt.Sprintf("a child process's answer to %q", o.Op))
}

// take makes the child acquire a lock, which it calls as.
func (c *child) take(as, name string, ttl time.Duration, noRenew bool) reply {
	r, err := c.do(order{Op: "take", As: as, Name: name, TTL: ttl, NoRenew: noRenew, Wait: true, Within: opBound})
	if err != nil {
		c.t.fail("acquiring in a child process: %w", err)
	}
	return r
}

// watch makes the child look at its handle all the time.
func (c *child) watch(as string) {
	if _, err := c.do(order{Op: "watch", As: as}); err != nil {
		c.t.fail("watching a handle in a child process: %w", err)
	}
}

// watched waits until the child's watched handle has ended.
func (c *child) watched(as string, within time.Duration) (reply, error) {
	return c.do(order{Op: "watched", As: as, Within: within})
}

func (c *child) stop() { c.t.must(stopProcess(c.cmd.Process)) }

func (c *child) cont() { c.t.must(continueProcess(c.cmd.Process)) }

// kill ends the process as a crash does, and waits until it is gone.
func (c *child) kill() {
	c.t.must(c.cmd.Process.Kill())
	c.t.note("the end of a killed child process")
	for range c.replies {
	}
	_ = c.cmd.Wait() // "signal: killed"
}

// tail keeps the last bytes written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	t.b = t.b[max(0, len(t.b)-4<<10):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}
