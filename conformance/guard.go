package conformance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/interlock-go/lock"
)

// guard finds two holders in one process at one time.
type guard struct{ inside atomic.Int64 }

// enter is called by a holder who has just got the lock. Unless it returns an
// error, leave must follow, before the lock is released.
func (g *guard) enter() error {
	if n := g.inside.Add(1); n != 1 {
		g.inside.Add(-1)
		return fmt.Errorf("%d holders at once", n)
	}
	return nil
}

func (g *guard) leave() { g.inside.Add(-1) }

// dirGuard finds two holders in several processes at one time: who is inside
// has a file there. It also counts the visits, in a way that loses some if two
// are inside.
type dirGuard struct{ dir string }

func (g dirGuard) enter() error {
	f, err := os.OpenFile(filepath.Join(g.dir, "inside"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return errors.New("two holders at once, in two processes or in one")
	}
	if err != nil {
		return err
	}
	return f.Close()
}

func (g dirGuard) leave() error {
	n, err := g.visits()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(g.dir, "visits"), []byte(strconv.Itoa(n+1)), 0o600); err != nil {
		return err
	}
	return os.Remove(filepath.Join(g.dir, "inside"))
}

// visits is how often somebody has been inside.
func (g dirGuard) visits() (int, error) {
	b, err := os.ReadFile(filepath.Join(g.dir, "visits"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

// guardDir makes a dirGuard for the time of the check.
func (t *T) guardDir() dirGuard {
	dir, err := os.MkdirTemp("", "interlock-conformance-")
	t.must(err)
	t.cleanup(func() error { return os.RemoveAll(dir) })
	return dirGuard{dir}
}

// counter counts events.
type counter struct{ n atomic.Int64 }

func (c *counter) observe(kind lock.EventKind) lock.Observer {
	return func(_ context.Context, e lock.Event) {
		if e.Kind == kind {
			c.n.Add(1)
		}
	}
}
