package testserver

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func connectPostgres(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

func askPostgres(c *pgx.Conn, d time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	var one int
	return c.QueryRow(ctx, "SELECT 1").Scan(&one)
}

func TestPostgresLife(t *testing.T) {
	p := NeedPostgres(t, PostgresOptions{Own: true, Settings: []string{"work_mem=1MB"}})
	c := connectPostgres(t, p.URL())
	var value string
	if err := c.QueryRow(t.Context(), "SHOW work_mem").Scan(&value); err != nil || value != "1MB" {
		t.Fatalf("work_mem %q, %v", value, err)
	}
	if _, err := c.Exec(t.Context(), "CREATE TABLE kept (x int)"); err != nil {
		t.Fatal(err)
	}
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := askPostgres(c, 300*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a session of a paused server: %v", err)
	}
	if err := p.Resume(); err != nil {
		t.Fatal(err)
	}
	c = connectPostgres(t, p.URL())
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := askPostgres(c, 5*time.Second); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a session of a killed server: %v", err)
	}
	if err := p.Restart(); err != nil {
		t.Fatal(err)
	}
	c = connectPostgres(t, p.URL())
	if _, err := c.Exec(t.Context(), "INSERT INTO kept VALUES (1)"); err != nil {
		t.Errorf("after a crash: %v", err)
	}
	if err := p.Restart(); err != nil {
		t.Fatal(err)
	}
	c = connectPostgres(t, p.URL())
	if err := askPostgres(c, 5*time.Second); err != nil {
		t.Errorf("after a restart: %v", err)
	}
}

func TestPostgresStandby(t *testing.T) {
	p := NeedPostgres(t, PostgresOptions{Own: true})
	s := NeedPostgres(t, PostgresOptions{StandbyOf: p})
	c := connectPostgres(t, s.URL())
	standby := func() (is bool) {
		if err := c.QueryRow(t.Context(), "SELECT pg_is_in_recovery()").Scan(&is); err != nil {
			t.Fatal(err)
		}
		return is
	}
	if !standby() {
		t.Error("a standby is not in recovery")
	}
	if err := s.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the standby to be a primary", func() bool { return !standby() })
}

func TestPgBouncer(t *testing.T) {
	p := NeedPostgres(t, PostgresOptions{})
	b := NeedPgBouncer(t, p, "session")
	if err := askPostgres(connectPostgres(t, b.URL()), 5*time.Second); err != nil {
		t.Error(err)
	}
}

func TestPostgresFromEnvironment(t *testing.T) {
	server := NeedPostgres(t, PostgresOptions{Own: true})
	t.Setenv("INTERLOCK_SERVERS", "env")
	t.Setenv("INTERLOCK_POSTGRES_URL", server.URL())
	p, err := StartPostgres(t.Context(), PostgresOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if p.Addr() != server.Addr() || p.Port() != server.Port() || p.URL() != server.URL() {
		t.Errorf("address %s, URL %s", p.Addr(), p.URL())
	}
	for verb, do := range map[string]func() error{"pause": p.Pause, "resume": p.Resume, "kill": p.Kill, "restart": p.Restart} {
		if err := do(); err == nil || !strings.Contains(err.Error(), "cannot "+verb) {
			t.Errorf("%s of a server of others: %v", verb, err)
		}
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if err := askPostgres(connectPostgres(t, server.URL()), 5*time.Second); err != nil {
		t.Errorf("stop ended a server of others: %v", err)
	}
	for name, o := range map[string]PostgresOptions{"own": {Own: true}, "settings": {Settings: []string{"jit=off"}}, "standby": {StandbyOf: server}} {
		if _, err := StartPostgres(t.Context(), o); !errors.Is(err, ErrNone) {
			t.Errorf("%s: a server of others was taken: %v", name, err)
		}
	}
}

func TestPostgresThatDoesNotStart(t *testing.T) {
	NeedPostgres(t, PostgresOptions{Own: true})
	_, err := StartPostgres(t.Context(), PostgresOptions{Settings: []string{"no_such_setting=1"}})
	if err == nil || errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("the error must have the server's own words: %v", err)
	}
}
