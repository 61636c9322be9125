package testserver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock"
)

// PostgresOptions say what a Postgres must be like. The zero value is any
// Postgres whose user may do all that tests need.
type PostgresOptions struct {
	// Own is set by a test that stops or pauses the server, or changes what
	// others would notice. Every other option implies it.
	Own bool

	// Settings are added to the command line: "fsync=off".
	Settings []string

	// StandbyOf starts a streaming standby of that one, in the process way only.
	StandbyOf *Postgres
}

func (o PostgresOptions) plain() bool {
	return !o.Own && len(o.Settings) == 0 && o.StandbyOf == nil
}

// Postgres is a server. Its methods may be called from many goroutines.
type Postgres struct {
	o    PostgresOptions
	addr string
	port int
	url  string
	dir  string // of its data; empty where it has none on this host
	host host
}

// StartPostgres starts a Postgres and returns when it answers. The caller ends
// it with Stop. The error matches [ErrNone] if no way can give one here.
func StartPostgres(ctx context.Context, o PostgresOptions) (*Postgres, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Minute)
		defer cancel()
	}
	try, err := ways()
	if err != nil {
		return nil, err
	}
	start := map[way]func(context.Context, PostgresOptions) (*Postgres, error){
		wayEnv:       postgresFromEnv,
		wayProcess:   startPostgresProcess,
		wayContainer: startPostgresContainer,
	}
	var reasons []error
	for _, w := range try {
		p, err := start[w](ctx, o)
		switch {
		case err == nil:
			return p, nil
		case !errors.Is(err, ErrNone):
			return nil, fmt.Errorf("start a postgres (%s): %w", w, err)
		}
		reasons = append(reasons, err)
	}
	return nil, noneOf(reasons)
}

const postgresCure = "set INTERLOCK_POSTGRES_URL, install postgresql, or start Docker"

// NeedPostgres is StartPostgres for a test, and ends the server with it. Without
// a server the test is skipped, loudly, or fails if INTERLOCK_REQUIRE says so.
func NeedPostgres(t testing.TB, o PostgresOptions) *Postgres {
	t.Helper()
	p, err := StartPostgres(t.Context(), o)
	switch {
	case err == nil:
	case o.StandbyOf != nil:
		// Of its own name, since no container gives it.
		skipOrFail(t, "postgres-standby", "install postgresql", err)
	default:
		skipOrFail(t, "postgres", postgresCure, err)
	}
	endWith(t, p.Stop)
	return p
}

// postgresFromEnv is the server whose URL stands in the environment.
func postgresFromEnv(ctx context.Context, o PostgresOptions) (*Postgres, error) {
	text := os.Getenv("INTERLOCK_POSTGRES_URL")
	if text == "" {
		return nil, unavailable("INTERLOCK_POSTGRES_URL is not set")
	}
	if !o.plain() {
		return nil, unavailable("INTERLOCK_POSTGRES_URL is set, but the test needs a server of its own")
	}
	u, err := lock.ParseURL(text)
	if err != nil {
		return nil, fmt.Errorf("INTERLOCK_POSTGRES_URL: %w", err)
	}
	addrs := u.Addrs("5432")
	if len(addrs) != 1 {
		return nil, fmt.Errorf("INTERLOCK_POSTGRES_URL names %d hosts, and the tests need one", len(addrs))
	}
	_, port, err := net.SplitHostPort(addrs[0])
	if err != nil {
		return nil, fmt.Errorf("INTERLOCK_POSTGRES_URL: %w", err)
	}
	p := &Postgres{o: o, addr: addrs[0], url: text, host: foreign{addrs[0]}}
	if p.port, err = strconv.Atoi(port); err != nil {
		return nil, fmt.Errorf("INTERLOCK_POSTGRES_URL: the port is not a number")
	}
	if err := p.probe(ctx); err != nil {
		return nil, fmt.Errorf("INTERLOCK_POSTGRES_URL does not answer: %w", err)
	}
	return p, nil
}

// Addr is host:port, for a client to dial.
func (p *Postgres) Addr() string { return p.addr }

// Port is the port of Addr. It stays the same over Restart.
func (p *Postgres) Port() int { return p.port }

// URL is that of a user who may do everything, without TLS, and without a
// password but in the environment's.
func (p *Postgres) URL() string { return p.url }

// Dir is the folder of the server's data; empty where it has none on this host.
func (p *Postgres) Dir() string { return p.dir }

// Pause stops the server and all its sessions in their tracks: connections stay
// open, nothing answers.
func (p *Postgres) Pause() error { return p.host.pause() }

// Resume undoes Pause.
func (p *Postgres) Resume() error { return p.host.resume() }

// Kill ends the server as a crash does. Start it again with Restart.
func (p *Postgres) Kill() error { return p.host.kill() }

// Restart starts the server again with the same port, data and settings, after a
// fast shutdown if it runs. It returns when the server answers.
func (p *Postgres) Restart() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := p.host.stop(); err != nil {
		return err
	}
	if err := p.host.start(ctx); err != nil {
		return err
	}
	return p.awaitUp(ctx)
}

// Stop ends the server, for good, and removes its files. Stopping twice is no
// error; a server from the environment is left alone.
func (p *Postgres) Stop() error { return errors.Join(p.host.stop(), p.host.dispose()) }

// awaitUp returns when the server takes connections, or with the reason why it
// does not.
func (p *Postgres) awaitUp(ctx context.Context) error {
	ended := p.host.ended()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		err := p.probe(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			words := p.host.tail()
			if strings.Contains(words, "Address already in use") || strings.Contains(words, "could not bind") {
				return fmt.Errorf("%s: %w", p.addr, errPortTaken)
			}
			return fmt.Errorf("postgres on %s ended at its start: %s", p.addr, words)
		case <-ctx.Done():
			return fmt.Errorf("postgres on %s does not answer (%w): %w; it printed: %s", p.addr, err, context.Cause(ctx), p.host.tail())
		case <-poll.C:
		}
	}
}

// probe begins a session, and looks whether the server lets it come to the
// password or refuses it for being at its start.
func (p *Postgres) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", p.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	const protocol3 = 3 << 16
	words := []byte("user\x00postgres\x00database\x00postgres\x00\x00")
	hello := binary.BigEndian.AppendUint32(nil, uint32(8+len(words))) //nolint:gosec // small
	hello = append(binary.BigEndian.AppendUint32(hello, protocol3), words...)
	if _, err := conn.Write(hello); err != nil {
		return err
	}
	head := make([]byte, 5)
	if _, err := io.ReadFull(conn, head); err != nil {
		return err
	}
	rest, _ := io.ReadAll(io.LimitReader(conn, int64(min(binary.BigEndian.Uint32(head[1:])-4, 4096))))
	switch {
	case head[0] == 'R', head[0] == 'E' && !strings.Contains(string(rest), "C57P03"):
		return nil
	case head[0] == 'E':
		return errors.New("it starts or ends still")
	}
	return fmt.Errorf("this is no postgres: it answered with %q", head)
}
