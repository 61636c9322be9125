package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// postgresProcess is a Postgres as a child process.
type postgresProcess struct {
	child
	home     string // the folder that is removed at the end
	disposed sync.Once
}

func (p *postgresProcess) start(context.Context) error {
	// After a crash it would refuse to start if another process had its number.
	if err := os.Remove(filepath.Join(p.dir, "postmaster.pid")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return p.child.start()
}

func (p *postgresProcess) dispose() (err error) {
	p.disposed.Do(func() { err = os.RemoveAll(p.home) })
	return err
}

// postgresPrograms is the folder of initdb and postgres: one on PATH, or the
// newest of Debian's, which are not on PATH.
func postgresPrograms() (string, error) {
	if path, err := exec.LookPath("postgres"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), "initdb")); err == nil {
			return filepath.Dir(path), nil
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", unavailable("postgres is not on PATH, nor in /usr/lib/postgresql")
	}
	slices.SortFunc(found, func(a, b string) int { return postgresVersion(a) - postgresVersion(b) })
	return filepath.Dir(found[len(found)-1]), nil
}

// postgresVersion reads it from a path such as /usr/lib/postgresql/15/bin/initdb.
func postgresVersion(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}

func startPostgresProcess(ctx context.Context, o PostgresOptions) (*Postgres, error) {
	bin, err := postgresPrograms()
	if err != nil {
		return nil, err
	}
	as, err := unprivileged("postgres")
	if err != nil {
		return nil, err
	}
	for range 5 {
		p, err := startPostgresOnce(ctx, bin, as, o)
		if err == nil || !errors.Is(err, errPortTaken) {
			return p, err
		}
	}
	return nil, fmt.Errorf("5 free ports, and each %w", errPortTaken)
}

func startPostgresOnce(ctx context.Context, bin string, as *runAs, o PostgresOptions) (_ *Postgres, err error) {
	port, err := freePort(ctx, false)
	if err != nil {
		return nil, err
	}
	// Not in a test's own folder, whose parent shuts another user out.
	home, err := os.MkdirTemp("", "interlock-postgres-")
	if err != nil {
		return nil, err
	}
	data := filepath.Join(home, "data")
	p := &postgresProcess{home: home, child: child{
		path: filepath.Join(bin, "postgres"), dir: data, logFile: filepath.Join(home, "postgres.log"),
		as: as, polite: true, spreads: true, args: postgresArgs(port, "127.0.0.1", data, o),
	}}
	s := &Postgres{o: o, addr: loopback(port), port: port, url: postgresURL(port), dir: data, host: p}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	if err := as.own(home); err != nil {
		return nil, err
	}
	make := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
	if m := o.StandbyOf; m != nil {
		make = exec.CommandContext(ctx, filepath.Join(bin, "pg_basebackup"), "-D", data, "-h", "127.0.0.1", "-p", strconv.Itoa(m.port), "-U", "postgres",
			"-c", "fast", "-X", "stream", "-R", "--no-sync")
	}
	make.Dir = home
	make.SysProcAttr = ownGroup()
	as.become(make.SysProcAttr)
	if out, err := make.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", filepath.Base(make.Path), err, lastLines(string(out)))
	}
	if err := p.child.start(); err != nil {
		return nil, err
	}
	return s, s.awaitUp(ctx)
}

func postgresURL(port int) string {
	return fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", loopback(port))
}

// postgresArgs is the command line of a Postgres that listens on bind:port.
func postgresArgs(port int, bind, data string, o PostgresOptions) []string {
	settings := []string{
		"listen_addresses=" + bind, "unix_socket_directories=", "max_connections=200", "shared_buffers=16MB",
		"autovacuum=off", "jit=off", "logging_collector=off",
	}
	args := []string{"-p", strconv.Itoa(port)}
	if data != "" {
		args = append(args, "-D", data)
	}
	for _, s := range append(settings, o.Settings...) {
		args = append(args, "-c", s)
	}
	return args
}

// Promote makes a standby a primary, and returns when it is one.
func (p *Postgres) Promote(ctx context.Context) error {
	h, ok := p.host.(*postgresProcess)
	if !ok || p.o.StandbyOf == nil {
		return errors.New("this postgres is no standby: start it with PostgresOptions.StandbyOf")
	}
	cmd := exec.CommandContext(ctx, filepath.Join(filepath.Dir(h.path), "pg_ctl"), "promote", "-w", "-D", p.dir)
	cmd.Dir = h.home
	cmd.SysProcAttr = ownGroup()
	h.as.become(cmd.SysProcAttr)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pg_ctl promote: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// PgBouncer is a connection pooler before a Postgres.
type PgBouncer struct {
	addr string
	host *postgresProcess
}

// NeedPgBouncer starts one in a pool mode: session, transaction or statement. It
// ends with the test. Settings are lines for its configuration.
func NeedPgBouncer(t testing.TB, p *Postgres, mode string, settings ...string) *PgBouncer {
	t.Helper()
	b, err := startPgBouncer(t.Context(), p, mode, settings)
	if err != nil {
		skipOrFail(t, "pgbouncer", "install pgbouncer", err)
	}
	endWith(t, func() error { return errors.Join(b.host.stop(), b.host.dispose()) })
	return b
}

// URL is that of the database postgres behind the pooler.
func (b *PgBouncer) URL() string {
	return "postgres://postgres@" + b.addr + "/postgres?sslmode=disable"
}

func startPgBouncer(ctx context.Context, p *Postgres, mode string, settings []string) (_ *PgBouncer, err error) {
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			return nil, unavailable("pgbouncer is not on PATH")
		}
	}
	as, err := unprivileged("postgres")
	if err != nil {
		return nil, err
	}
	port, err := freePort(ctx, false)
	if err != nil {
		return nil, err
	}
	home, err := os.MkdirTemp("", "interlock-pgbouncer-")
	if err != nil {
		return nil, err
	}
	config, users := filepath.Join(home, "pgbouncer.ini"), filepath.Join(home, "users.txt")
	h := &postgresProcess{home: home, child: child{
		path: path, args: []string{config}, dir: home, logFile: filepath.Join(home, "pgbouncer.log"), as: as, polite: true,
	}}
	b := &PgBouncer{addr: loopback(port), host: h}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.stop(), h.dispose())
		}
	}()
	text := fmt.Sprintf("[databases]\n* = host=127.0.0.1 port=%d\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\nauth_type = trust\nauth_file = %s\npool_mode = %s\n%s\n",
		p.port, port, users, mode, strings.Join(settings, "\n"))
	for file, content := range map[string]string{config: text, users: "\"postgres\" \"\"\n"} {
		if err := errors.Join(os.WriteFile(file, []byte(content), 0o600), as.own(file)); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(as.own(home), h.child.start()); err != nil {
		return nil, err
	}
	return b, (&Postgres{addr: b.addr, host: h}).awaitUp(ctx)
}
