package testserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// EtcdOptions say what an etcd must be like.
type EtcdOptions struct {
	// Own is set by a test that stops or pauses a member, or looks at all of its
	// keys: a server from the environment will not do. Members above 1 imply it.
	Own bool

	Members int // of the cluster; 0: one

	// System takes the program of that name on PATH, which may be an old one,
	// though INTERLOCK_ETCD names a newer.
	System bool

	// Args are added to each member's command line.
	Args []string
}

// Etcd is a cluster of one or more members.
type Etcd struct{ Members []*EtcdMember }

// EtcdMember is one server. Its methods may be called from many goroutines.
type EtcdMember struct {
	addr string // of clients
	dir  string
	host host
}

const etcdCure = "set INTERLOCK_ETCD_ADDR, or INTERLOCK_ETCD to the path of an etcd program (tools/etcdserver builds one), or install etcd-server"

// NeedEtcd starts an etcd for a test, and ends it with it. Without one the test
// is skipped, loudly, or fails if INTERLOCK_REQUIRE says so.
func NeedEtcd(t testing.TB, o EtcdOptions) *Etcd {
	t.Helper()
	e, err := StartEtcd(t.Context(), o)
	if err != nil {
		name := "etcd"
		if o.System {
			name = "etcd-system"
		}
		skipOrFail(t, name, etcdCure, err)
	}
	endWith(t, e.Stop)
	return e
}

// StartEtcd starts an etcd and returns when it has a leader. The caller ends it
// with Stop. The error matches [ErrNone] if no way can give one here.
func StartEtcd(ctx context.Context, o EtcdOptions) (*Etcd, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	try, err := ways()
	if err != nil {
		return nil, err
	}
	start := map[way]func(context.Context, EtcdOptions) (*Etcd, error){
		wayEnv:       etcdFromEnv,
		wayProcess:   startEtcdProcesses,
		wayContainer: noEtcdContainer,
	}
	var reasons []error
	for _, w := range try {
		e, err := start[w](ctx, o)
		switch {
		case err == nil:
			return e, nil
		case !errors.Is(err, ErrNone):
			return nil, fmt.Errorf("start an etcd (%s): %w", w, err)
		}
		reasons = append(reasons, err)
	}
	return nil, noneOf(reasons)
}

func noEtcdContainer(context.Context, EtcdOptions) (*Etcd, error) {
	return nil, unavailable("an etcd is not started in a container")
}

func etcdFromEnv(ctx context.Context, o EtcdOptions) (*Etcd, error) {
	addr := os.Getenv("INTERLOCK_ETCD_ADDR")
	if addr == "" {
		return nil, unavailable("INTERLOCK_ETCD_ADDR is not set")
	}
	if o.Own || o.Members > 1 || o.System || len(o.Args) > 0 {
		return nil, unavailable("INTERLOCK_ETCD_ADDR is set, but the test needs a server of its own")
	}
	e := &Etcd{Members: []*EtcdMember{{addr: addr, host: foreign{addr}}}}
	return e, e.awaitUp(ctx)
}

func startEtcdProcesses(ctx context.Context, o EtcdOptions) (*Etcd, error) {
	path := os.Getenv("INTERLOCK_ETCD")
	if path == "" || o.System {
		var err error
		if path, err = exec.LookPath("etcd"); err != nil {
			return nil, unavailable("etcd is not on PATH")
		}
	}
	for range 5 {
		e, err := startEtcdOnce(ctx, path, o)
		if err == nil || !errors.Is(err, errPortTaken) {
			return e, err
		}
	}
	return nil, fmt.Errorf("5 sets of free ports, and of each %w", errPortTaken)
}

func startEtcdOnce(ctx context.Context, path string, o EtcdOptions) (_ *Etcd, err error) {
	n := max(o.Members, 1)
	e := &Etcd{}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Stop())
		}
	}()
	var peers, initial []string
	for i := range n {
		client, err := freePort(ctx, false)
		if err != nil {
			return nil, err
		}
		peer, err := freePort(ctx, false)
		if err != nil {
			return nil, err
		}
		dir, err := os.MkdirTemp("", "interlock-etcd-")
		if err != nil {
			return nil, err
		}
		peers = append(peers, "http://"+loopback(peer))
		initial = append(initial, fmt.Sprintf("n%d=%s", i, peers[i]))
		p := &ownedChild{removeDir: true, child: child{path: path, dir: dir, logFile: filepath.Join(dir, "etcd.log")}}
		e.Members = append(e.Members, &EtcdMember{addr: loopback(client), dir: dir, host: p})
	}
	for i, m := range e.Members {
		p := m.host.(*ownedChild)
		p.args = append([]string{
			"--name", fmt.Sprintf("n%d", i), "--data-dir", filepath.Join(m.dir, "data"),
			"--listen-client-urls", "http://" + m.addr, "--advertise-client-urls", "http://" + m.addr,
			"--listen-peer-urls", peers[i], "--initial-advertise-peer-urls", peers[i],
			"--initial-cluster", strings.Join(initial, ","), "--initial-cluster-state", "new",
			"--heartbeat-interval", "50", "--election-timeout", "500",
		}, o.Args...)
		p.env = []string{"ETCD_LOG_LEVEL=error"}
		if err := p.child.start(); err != nil {
			return nil, err
		}
	}
	return e, e.awaitUp(ctx)
}

// awaitUp returns when every member says that it is well, which it does once it
// has a leader.
func (e *Etcd) awaitUp(ctx context.Context) error {
	for _, m := range e.Members {
		if err := m.awaitUp(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (m *EtcdMember) awaitUp(ctx context.Context) error {
	ended := m.host.ended()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		err := m.probe(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			words := m.host.tail()
			if strings.Contains(words, "address already in use") {
				return fmt.Errorf("%s: %w", m.addr, errPortTaken)
			}
			return fmt.Errorf("etcd on %s ended at its start: %s", m.addr, words)
		case <-ctx.Done():
			return fmt.Errorf("etcd on %s is not well (%w): %w; it printed: %s", m.addr, err, context.Cause(ctx), m.host.tail())
		case <-poll.C:
		}
	}
}

func (m *EtcdMember) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.addr+"/health", nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var health struct{ Health string }
	if err := json.NewDecoder(res.Body).Decode(&health); err != nil {
		return err
	}
	if health.Health != "true" {
		return errors.New("it says that it is not well")
	}
	return nil
}

// Addrs are the members' addresses for clients.
func (e *Etcd) Addrs() []string {
	var all []string
	for _, m := range e.Members {
		all = append(all, m.addr)
	}
	return all
}

// URL is etcd://host:port,host:port without path and parameters.
func (e *Etcd) URL() string { return "etcd://" + strings.Join(e.Addrs(), ",") }

// Stop ends all members, for good, and removes their files.
func (e *Etcd) Stop() error {
	var errs []error
	for _, m := range e.Members {
		errs = append(errs, m.host.stop(), m.host.dispose())
	}
	return errors.Join(errs...)
}

func (e *Etcd) each(do func(*EtcdMember) error) error {
	var errs []error
	for _, m := range e.Members {
		errs = append(errs, do(m))
	}
	return errors.Join(errs...)
}

// Pause, Resume and Kill do so to every member.
func (e *Etcd) Pause() error  { return e.each((*EtcdMember).Pause) }
func (e *Etcd) Resume() error { return e.each((*EtcdMember).Resume) }
func (e *Etcd) Kill() error   { return e.each((*EtcdMember).Kill) }

// Restart starts every member again, and returns when all are well.
func (e *Etcd) Restart() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := e.each(func(m *EtcdMember) error { return errors.Join(m.host.stop(), m.host.start(ctx)) }); err != nil {
		return err
	}
	return e.awaitUp(ctx)
}

// Addr is the member's address for clients.
func (m *EtcdMember) Addr() string { return m.addr }

// Pause stops the member in its tracks: connections stay open, nothing answers.
func (m *EtcdMember) Pause() error { return m.host.pause() }

// Resume undoes Pause.
func (m *EtcdMember) Resume() error { return m.host.resume() }

// Kill ends the member as a crash does.
func (m *EtcdMember) Kill() error { return m.host.kill() }

// Restart starts the member again, after a clean stop if it runs, and returns
// when it is well.
func (m *EtcdMember) Restart() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := errors.Join(m.host.stop(), m.host.start(ctx)); err != nil {
		return err
	}
	return m.awaitUp(ctx)
}
