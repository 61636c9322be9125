//go:build unix

package main

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/internal/testserver"
)

func TestRedisTwoRunsExclude(t *testing.T) {
	testExclusion(t, testserver.NeedRedis(t, testserver.RedisOptions{}).URL())
}

// The store's TTL, not the kernel, ends the lock here; COMMAND must be dead
// before that.
func TestRedisCommandIsDeadBeforeARivalHasTheLock(t *testing.T) {
	const ttl = 1500 * time.Millisecond
	server := testserver.NeedRedis(t, testserver.RedisOptions{})
	l := rival(t, server.URL())
	for _, test := range []struct {
		name   string
		rounds int
		kill   func(t *testing.T, p *process)
		code   int // interlock's own; 0: it was killed
	}{
		{"killed", 3, func(_ *testing.T, p *process) { p.signal(syscall.SIGKILL) }, 0},
		{"stopped", 5, func(_ *testing.T, p *process) { p.signal(syscall.SIGSTOP) }, exitLost},
		{"guard killed", 3, func(t *testing.T, p *process) { mustKill(t, guardOf(t, p), syscall.SIGKILL) }, exitOS},
	} {
		t.Run(test.name, func(t *testing.T) {
			for range test.rounds {
				work := newBusy(t)
				p := start(t, server.URL(), append([]string{"--ttl=" + ttl.String(), "n", "--"}, work.argv()...)...)
				work.mustWork()
				test.kill(t, p)
				began := time.Now()
				h := take(t, l, "n")
				took := time.Since(began)
				work.mustRest("after a rival had the lock")
				if took > ttl+3*time.Second {
					t.Errorf("the lock was free after %v, with a TTL of %v", took, ttl)
				}
				if err := h.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				if test.code != 0 {
					_ = p.cmd.Process.Signal(syscall.SIGCONT)
					p.mustEnd(test.code)
				}
			}
		})
	}
}

func TestRedisRemovedKeyEndsCommand(t *testing.T) {
	server := testserver.NeedRedis(t, testserver.RedisOptions{})
	p := start(t, server.URL()+"?prefix=removed:", "--ttl=3s", "n", "--", "sh", "-c",
		`exec 2>/dev/null; trap "echo told; exit 5" TERM; echo ready; while :; do sleep 0.01; done`)
	p.expect("ready")
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	keys, err := client.Keys(t.Context(), "removed:*").Result()
	if err != nil || len(keys) == 0 {
		t.Fatalf("keys %q, %v", keys, err)
	}
	if err := client.Del(t.Context(), keys...).Err(); err != nil {
		t.Fatal(err)
	}
	p.expect("told")
	p.mustEnd(exitLost)
	oneHumanLine(t, p.errors(), "lost", `"n"`)
}

// While the server does not answer, COMMAND is told to end in time, and is dead
// before the lock can be another's.
func TestRedisAwayEndsCommand(t *testing.T) {
	const ttl = 2 * time.Second
	server := testserver.NeedRedis(t, testserver.RedisOptions{Dir: t.TempDir()})
	work := newBusy(t)
	deaf := start(t, server.URL(), append([]string{"--ttl=" + ttl.String(), "deaf", "--"}, work.argv()...)...)
	work.mustWork()
	good := start(t, server.URL(), "--ttl="+ttl.String(), "good", "--", "sh", "-c",
		`exec 2>/dev/null; trap "echo told; exit 0" TERM; echo ready; while :; do sleep 0.01; done`)
	good.expect("ready")
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	paused := time.Now()
	good.expect("told")
	deadline := paused.Add(ttl)
	time.Sleep(time.Until(deadline))
	work.mustRest("one TTL after the server stopped to answer")
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	good.mustEnd(exitLost)
	deaf.mustEnd(exitLost)
	oneHumanLine(t, good.errors(), `"good"`)
	oneHumanLine(t, deaf.errors(), `"deaf"`)
}

// An outage that is shorter than the TTL is none.
func TestRedisBlipIsSurvived(t *testing.T) {
	server := testserver.NeedRedis(t, testserver.RedisOptions{Dir: t.TempDir()})
	p := start(t, server.URL(), "--ttl=6s", "n", "--", "sh", "-c", "echo ready; read x; exit 4")
	p.expect("ready")
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2500 * time.Millisecond) // one renewal falls into it
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	p.closeInput()
	p.mustEnd(4)
}

func TestRedisToken(t *testing.T) {
	server := testserver.NeedRedis(t, testserver.RedisOptions{})
	show := []string{"n", "--", "sh", "-c", `echo "token=$LOCK_TOKEN ${LOCK_TOKEN+set}"`}
	t.Setenv("LOCK_TOKEN", "7") // of a run around this one
	none := start(t, server.URL(), show...)
	none.expect("token= ")
	none.mustEnd(0)
	some := start(t, server.URL()+"?fencing=counter", show...)
	if line := some.line(); line == "token= " || strings.HasPrefix(line, "token=7 ") || !strings.HasSuffix(line, " set") {
		t.Errorf("with a counter: %q", line)
	}
	some.mustEnd(0)
}

func TestRedisUnavailable(t *testing.T) {
	code, stderr := run(t, "redis://127.0.0.1:1", "n", "--", "true")
	if code != exitUnavailable {
		t.Errorf("exit code %d, want %d", code, exitUnavailable)
	}
	oneHumanLine(t, stderr, "127.0.0.1:1")
}

// Whoever waits for the lock waits for the store as well.
func TestRedisWaitsForTheStore(t *testing.T) {
	server := testserver.NeedRedis(t, testserver.RedisOptions{Dir: t.TempDir()})
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if code, stderr := run(t, server.URL(), "--wait=1s", "n", "--", "true"); code != exitUnavailable {
		t.Errorf("exit code %d, want %d: %s", code, exitUnavailable, stderr)
	}
	if waited := time.Since(began); waited < time.Second {
		t.Errorf("waited for %v", waited)
	}
	p := start(t, server.URL(), "--wait=1m", "n", "--", "true")
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	p.mustEnd(0)
}

func TestRedisMinHold(t *testing.T) {
	server := testserver.NeedRedis(t, testserver.RedisOptions{})
	l := rival(t, server.URL())
	began := time.Now()
	p := start(t, server.URL(), "--min-hold=1s", "n", "--", "echo", "done")
	p.expect("done")
	if _, err := l.TryAcquire(t.Context(), "n"); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("after COMMAND's end: %v, want ErrHeld", err)
	}
	take(t, l, "n")
	if held := time.Since(began); held < time.Second {
		t.Errorf("held for %v", held)
	}
	p.mustEnd(0)
}
