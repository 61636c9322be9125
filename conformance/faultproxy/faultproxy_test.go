package faultproxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

const bound = 5 * time.Second

// echo is a server that answers each line with itself, and tells what it heard.
func echo(t *testing.T) (addr string, heard chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	heard = make(chan string, 100)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for r := bufio.NewReader(conn); ; {
					line, err := r.ReadString('\n')
					if err != nil {
						heard <- err.Error()
						return
					}
					heard <- strings.TrimSpace(line)
					fmt.Fprint(conn, line)
				}
			}()
		}
	}()
	return l.Addr().String(), heard
}

func start(t *testing.T) (p *Proxy, heard chan string) {
	t.Helper()
	addr, heard := echo(t)
	p, err := New(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, heard
}

func dial(t *testing.T, p *Proxy) *net.TCPConn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", p.Addr(), bound)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn.(*net.TCPConn)
}

func send(t *testing.T, conn net.Conn, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(conn, line); err != nil {
		t.Fatalf("send %q: %v", line, err)
	}
}

func receive(conn net.Conn, within time.Duration) (string, error) {
	conn.SetReadDeadline(time.Now().Add(within))
	line, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line), err
}

func wantReply(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	if got, err := receive(conn, bound); got != want || err != nil {
		t.Fatalf("reply %q, %v; want %q", got, err, want)
	}
}

func wantHeard(t *testing.T, heard chan string, want string) {
	t.Helper()
	select {
	case got := <-heard:
		if got != want {
			t.Fatalf("the server heard %q, want %q", got, want)
		}
	case <-time.After(bound):
		t.Fatalf("the server heard nothing in %v, want %q", bound, want)
	}
}

func wantSilence(t *testing.T, conn net.Conn) {
	t.Helper()
	if got, err := receive(conn, 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("received %q, %v; want silence", got, err)
	}
}

func wantReset(t *testing.T, conn net.Conn) {
	t.Helper()
	if got, err := receive(conn, bound); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("received %q, %v; want a reset", got, err)
	}
}

func TestPassCarriesBothWaysAndTheEnd(t *testing.T) {
	p, heard := start(t)
	conn := dial(t, p)
	send(t, conn, "a")
	wantReply(t, conn, "a")
	wantHeard(t, heard, "a")
	if n := p.Requests(); n != 1 {
		t.Errorf("Requests() = %d, want 1", n)
	}
	conn.CloseWrite()
	wantHeard(t, heard, io.EOF.Error())
	if got, err := receive(conn, bound); !errors.Is(err, io.EOF) {
		t.Errorf("after our end: %q, %v; want the server's end", got, err)
	}
}

func TestDelayIsPaidEachWay(t *testing.T) {
	p, _ := start(t)
	conn := dial(t, p)
	p.SetMode(Delay(80 * time.Millisecond))
	began := time.Now()
	send(t, conn, "a")
	wantReply(t, conn, "a")
	if took := time.Since(began); took < 160*time.Millisecond {
		t.Errorf("a round trip took %v, want 160ms or more", took)
	}
}

func TestRefuseSparesPresentConnections(t *testing.T) {
	p, _ := start(t)
	present := dial(t, p)
	send(t, present, "a")
	wantReply(t, present, "a")
	p.SetMode(Refuse)
	if conn, err := net.DialTimeout("tcp", p.Addr(), bound); err == nil {
		defer conn.Close()
		wantReset(t, conn)
	}
	send(t, present, "b")
	wantReply(t, present, "b")
	p.Cut()
	wantReset(t, present)
}

func TestResetStrikesAtTheFirstByte(t *testing.T) {
	p, _ := start(t)
	conn := dial(t, p)
	p.SetMode(Reset)
	wantSilence(t, conn)
	send(t, conn, "a")
	wantReset(t, conn)
}

func TestCutReachesTheServerToo(t *testing.T) {
	p, heard := start(t)
	conn := dial(t, p)
	send(t, conn, "a")
	wantHeard(t, heard, "a")
	p.Cut()
	select {
	case got := <-heard:
		if !strings.Contains(got, syscall.ECONNRESET.Error()) {
			t.Errorf("the server heard %q, want a reset", got)
		}
	case <-time.After(bound):
		t.Error("the server's connection was not cut")
	}
}

func TestBlackholeIsSilentBothWays(t *testing.T) {
	p, heard := start(t)
	present := dial(t, p)
	send(t, present, "a")
	wantReply(t, present, "a")
	wantHeard(t, heard, "a")
	p.SetMode(Blackhole)
	send(t, present, "b")
	wantSilence(t, present)
	fresh := dial(t, p)
	send(t, fresh, "c")
	wantSilence(t, fresh)
	select {
	case got := <-heard:
		t.Errorf("the server heard %q through a black hole", got)
	default:
	}
	p.SetMode(Pass)
	wantReset(t, present) // what it lost cannot be made good
	wantReset(t, fresh)
}

func TestDropRepliesLetsRequestsThrough(t *testing.T) {
	p, heard := start(t)
	conn := dial(t, p)
	p.SetMode(DropReplies)
	send(t, conn, "a")
	wantHeard(t, heard, "a")
	wantSilence(t, conn)
	p.SetMode(Pass)
	wantReset(t, conn)
	fresh := dial(t, p)
	send(t, fresh, "b")
	wantReply(t, fresh, "b")
}

func TestHoldRepliesGivesThemLater(t *testing.T) {
	p, heard := start(t)
	conn := dial(t, p)
	p.SetMode(HoldReplies)
	send(t, conn, "a")
	wantHeard(t, heard, "a")
	wantSilence(t, conn)
	p.SetMode(Pass)
	wantReply(t, conn, "a")
}

func TestCloseLeavesNothingBehind(t *testing.T) {
	addr, _ := echo(t)
	p, err := New(addr)
	if err != nil {
		t.Fatal(err)
	}
	conn := dial(t, p)
	send(t, conn, "a")
	wantReply(t, conn, "a")
	p.SetMode(Blackhole)
	closed := make(chan struct{})
	go func() { p.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(bound):
		t.Fatalf("Close did not return in %v", bound)
	}
	wantReset(t, conn)
	if conn, err := net.DialTimeout("tcp", p.Addr(), bound); err == nil {
		conn.Close()
		t.Error("the proxy still listens after Close")
	}
}
