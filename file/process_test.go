//go:build unix

package file

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock"
)

// The test binary, run again with childRole set, is a process that takes locks.
const (
	childRole = "INTERLOCK_FILE_TEST_ROLE"
	childDir  = "INTERLOCK_FILE_TEST_DIR"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		if err := child(role, os.Getenv(childDir)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(role, dir string) error {
	made, err := NewBackend(context.Background(), Options{Dir: dir})
	if err != nil {
		return err
	}
	b := made.(*backend)
	switch role {
	case "hold": // prints its token, and holds until it is killed
		g, err := b.Acquire(context.Background(), request("a"))
		if err != nil {
			return err
		}
		fmt.Println(int64(g.Token))
		_, err = io.Copy(io.Discard, os.Stdin)
		return err
	case "leave": // prints the pid of a process that inherits the lock, and holds
		if _, err := b.Acquire(context.Background(), request("a")); err != nil {
			return err
		}
		heir := exec.Command("sleep", "60")
		heir.ExtraFiles = Descriptors("a")
		if err := heir.Start(); err != nil {
			return err
		}
		fmt.Println(heir.Process.Pid)
		_, err = io.Copy(io.Discard, os.Stdin)
		return err
	case "cycle": // takes and releases, and prints each token, until it is killed
		for {
			switch g, err := b.Acquire(context.Background(), request("a")); {
			case errors.Is(err, lock.ErrHeld):
			case err != nil:
				return err
			default:
				fmt.Println(int64(g.Token))
				if err := g.Lease.Release(context.Background()); err != nil {
					return err
				}
			}
		}
	}
	return fmt.Errorf("no role %q", role)
}

// start runs a child and returns the lines that it prints.
func start(t *testing.T, role, dir string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childRole+"="+role, childDir+"="+dir)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, bufio.NewScanner(out)
}

func number(t *testing.T, s *bufio.Scanner) int64 {
	t.Helper()
	if !s.Scan() {
		t.Fatalf("the child printed nothing (%v)", s.Err())
	}
	n, err := strconv.ParseInt(strings.TrimSpace(s.Text()), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// take waits for the lock as the engine does, and says how long that took.
func take(t *testing.T, b *backend, bound time.Duration) (lock.Grant, time.Duration) {
	t.Helper()
	req, woken := waitingRequest("a")
	for start := time.Now(); ; {
		g, err := b.Acquire(t.Context(), req)
		took := time.Since(start)
		switch {
		case err == nil:
			return g, took
		case !errors.Is(err, lock.ErrHeld):
			t.Fatal(err)
		case took > bound:
			t.Fatalf("the lock is not free after %v", took)
		}
		select {
		case <-woken:
		case <-time.After(g.Retry):
		}
	}
}

func TestKillFreesAtOnce(t *testing.T) {
	dir := t.TempDir()
	b := newBackend(t, dir)
	for range 20 {
		holder, out := start(t, "hold", dir)
		token := number(t, out)
		if _, err := b.Acquire(t.Context(), request("a")); !errors.Is(err, lock.ErrHeld) {
			t.Fatalf("while the child holds: %v, want ErrHeld", err)
		}
		if err := holder.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		g, took := take(t, b, 5*time.Second)
		if took > 500*time.Millisecond {
			t.Errorf("free %v after kill -9", took)
		}
		if int64(g.Token) <= token {
			t.Errorf("token %d after the child's %d", g.Token, token)
		}
		mustRelease(t, g.Lease)
	}
}

// Killed at any point of taking and releasing, a process leaves the lock free and
// its tokens in order.
func TestKillAnywhere(t *testing.T) {
	dir := t.TempDir()
	b := newBackend(t, dir)
	last := int64(0)
	for range 50 {
		cycler, out := start(t, "cycle", dir)
		first := number(t, out)
		timer := time.AfterFunc(time.Duration(rand.Int64N(int64(10*time.Millisecond))), func() { _ = cycler.Process.Kill() })
		if first <= last {
			t.Fatalf("token %d after %d", first, last)
		}
		last = first
		for out.Scan() {
			n, err := strconv.ParseInt(out.Text(), 10, 64)
			if err != nil || !strings.HasPrefix(out.Text(), "1") {
				break // the line that was being written
			}
			if n <= last {
				t.Fatalf("token %d after %d", n, last)
			}
			last = n
		}
		timer.Stop()
		g, took := take(t, b, 5*time.Second)
		if took > time.Second {
			t.Errorf("free %v after kill -9", took)
		}
		if int64(g.Token) <= last {
			t.Fatalf("token %d after %d", g.Token, last)
		}
		last = int64(g.Token)
		mustRelease(t, g.Lease)
	}
}

func TestHeirKeepsTheLock(t *testing.T) {
	dir := t.TempDir()
	b := newBackend(t, dir)
	holder, out := start(t, "leave", dir)
	heir, err := os.FindProcess(int(number(t, out)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = heir.Kill() })
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait()
	req, woken := waitingRequest("a")
	mustWait(t, b, req)
	if err := heir.Kill(); err != nil {
		t.Fatal(err)
	}
	if waitsAreTold {
		within(t, 5*time.Second, "wake-up after the heir's end", woken)
	}
	g, took := take(t, b, 5*time.Second)
	defer mustRelease(t, g.Lease)
	if took > 500*time.Millisecond {
		t.Errorf("free %v after the heir's end", took)
	}
}

func TestReleaseFreesInSpiteOfAnHeir(t *testing.T) {
	dir := t.TempDir()
	b := newBackend(t, dir)
	g := mustTake(t, b, request("a"))
	files := Descriptors("a")
	if len(files) != 2 {
		t.Fatalf("%d descriptors", len(files))
	}
	heir := exec.Command("sleep", "60")
	heir.ExtraFiles = files
	if err := heir.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = heir.Process.Kill()
		_ = heir.Wait()
	})
	req, woken := waitingRequest("a")
	rival := newBackend(t, dir)
	mustWait(t, rival, req)
	mustRelease(t, g.Lease)
	if waitsAreTold {
		within(t, 5*time.Second, "wake-up after the release", woken)
	}
	mustTake(t, rival, req)
	if n := len(Descriptors("a")); n != 2 {
		t.Errorf("%d descriptors: those of the next holder are 2", n)
	}
	if n := len(Descriptors("b")); n != 0 {
		t.Errorf("%d descriptors of a lock that is not held", n)
	}
}
