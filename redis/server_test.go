package redis

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock"
)

// server is a redis-server of one test.
type server struct {
	t    testing.TB
	addr string
	args []string
	cmd  *exec.Cmd
	exit chan struct{}
}

func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("SKIPPED: no redis-server on PATH")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, addr: l.Addr().String()}
	l.Close()
	_, port, _ := net.SplitHostPort(s.addr)
	s.args = append([]string{"--bind", "127.0.0.1", "--port", port, "--dir", t.TempDir(), "--save", "", "--appendonly", "no"}, args...)
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *server) start() {
	s.t.Helper()
	s.cmd = exec.Command("redis-server", s.args...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	exit, cmd := make(chan struct{}), s.cmd
	s.exit = exit
	go func() { cmd.Wait(); close(exit) }()
	within(s.t, 5*time.Second, "the server to listen", func() bool {
		c, err := net.Dial("tcp", s.addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

func (s *server) signal(sig os.Signal) { s.cmd.Process.Signal(sig) }

func (s *server) kill() {
	s.signal(syscall.SIGKILL)
	<-s.exit
}

var _ = filepath.Join

// admin is a client that is not under test.
func (s *server) admin() *goredis.Client {
	c := goredis.NewClient(&goredis.Options{Addr: s.addr, MaxRetries: -1})
	s.t.Cleanup(func() { c.Close() })
	return c
}

func (s *server) url(query string) string { return "redis://" + s.addr + query }

// within polls until ok.
func within(t testing.TB, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(d); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s", d, what)
		}
	}
}

func openBackend(t testing.TB, url string) *backend {
	t.Helper()
	b, err := lock.OpenBackend(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b.(*backend)
}

// request makes a waiter's request whose wake-ups arrive on the channel.
func request(name string, ttl time.Duration) (lock.Request, chan time.Duration) {
	woken := make(chan time.Duration, 16)
	idCount++
	return lock.Request{
		Name: name, ID: fmt.Sprintf("ID%d", idCount), TTL: ttl, Owner: "owner of " + name, Wait: true,
		Wake: func(after time.Duration) { woken <- after },
	}, woken
}

var idCount int

func residue(t testing.TB, c *goredis.Client, pattern string) []string {
	t.Helper()
	keys, err := c.Keys(context.Background(), pattern).Result()
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func commands(t testing.TB, c *goredis.Client) string {
	t.Helper()
	info, err := c.Info(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(info)
}
