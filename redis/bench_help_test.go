package redis_test

import (
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func benchServer(b testing.TB) string {
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	addr := l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command("redis-server", "--bind", "127.0.0.1", "--port", port, "--dir", b.TempDir(), "--save", "")
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
			return addr
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// requests counts the calls that clients sent, of INFO commandstats.
func requests(info string) (n float64) {
	for line := range strings.Lines(info) {
		name, rest, _ := strings.Cut(line, ":calls=")
		switch name {
		case "cmdstat_evalsha", "cmdstat_eval", "cmdstat_ping", "cmdstat_subscribe":
			calls, _, _ := strings.Cut(rest, ",")
			f, _ := strconv.ParseFloat(calls, 64)
			n += f
		}
	}
	return n
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
