package testserver

import (
	"errors"
	"net"
	"strings"
	"testing"
)

func TestRedisFromEnvironment(t *testing.T) {
	server := NeedRedis(t, RedisOptions{Own: true})
	t.Setenv("INTERLOCK_SERVERS", "env")
	t.Setenv("INTERLOCK_REDIS_ADDR", server.Addr())

	r, err := StartRedis(t.Context(), RedisOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Addr() != server.Addr() || r.Port() != server.Port() || r.Host() != "127.0.0.1" || r.URL() != "redis://"+server.Addr() {
		t.Errorf("address %s, port %d, URL %s", r.Addr(), r.Port(), r.URL())
	}
	for verb, do := range map[string]func() error{"pause": r.Pause, "resume": r.Resume, "kill": r.Kill, "restart": r.Restart} {
		if err := do(); err == nil || !strings.Contains(err.Error(), "cannot "+verb) || !strings.Contains(err.Error(), "environment") {
			t.Errorf("%s of a server of others: %v", verb, err)
		}
	}
	if err := r.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if err := server.probe(t.Context()); err != nil {
		t.Errorf("stop ended a server of others: %v", err)
	}

	for name, o := range map[string]RedisOptions{"own": {Own: true}, "arguments": {Args: []string{"--databases", "1"}}, "clock": {FakeClock: true}, "TLS": {TLS: true}, "cluster": {Cluster: true}} {
		if _, err := StartRedis(t.Context(), o); !errors.Is(err, ErrNone) {
			t.Errorf("%s: a server of others was taken: %v", name, err)
		}
	}
}

func TestRedisAddressWithoutRedis(t *testing.T) {
	t.Setenv("INTERLOCK_SERVERS", "env")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n"))
			conn.Close()
		}
	}()
	for addr, says := range map[string]string{
		"127.0.0.1":       "not host:port",
		"127.0.0.1:redis": "not a number",
		"127.0.0.1:1":     "refused",
		l.Addr().String(): "no redis",
	} {
		t.Setenv("INTERLOCK_REDIS_ADDR", addr)
		if _, err := StartRedis(t.Context(), RedisOptions{}); err == nil || errors.Is(err, ErrNone) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", addr, err, says)
		}
	}
}

func TestRedisThatDoesNotStart(t *testing.T) {
	NeedRedis(t, RedisOptions{Own: true})
	_, err := StartRedis(t.Context(), RedisOptions{Args: []string{"--no-such-directive", "1"}})
	if err == nil || errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "no-such-directive") {
		t.Errorf("the error must have the server's own words: %v", err)
	}
}

func TestPortTaken(t *testing.T) {
	r := NeedRedis(t, RedisOptions{Own: true})
	if _, ok := r.host.(*ownedChild); !ok {
		return // the network of containers keeps the port meanwhile
	}
	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := r.Restart(); !errors.Is(err, errPortTaken) {
		t.Errorf("restart on a port that another has: %v", err)
	}
}
