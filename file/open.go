package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/interlock-go/lock"
)

func init() { lock.Register(open, "file") }

// Options say where the locks are.
type Options struct {
	// Dir is the directory of the lock files, as an absolute path. It is made if
	// it is missing. "" stands for the default directory; see the package
	// comment.
	Dir string
}

// New returns a Locker whose locks are files in a directory.
func New(ctx context.Context, o Options, opts ...lock.SetupOption) (lock.Locker, error) {
	b, err := NewBackend(ctx, o)
	if err != nil {
		return nil, err
	}
	l, err := lock.New(b, opts...)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return l, nil
}

// NewBackend returns the backend that New puts under a Locker. It makes the
// directory, and refuses one on a network file system with ErrUnsupported.
func NewBackend(ctx context.Context, o Options) (lock.Backend, error) {
	dir := o.Dir
	if dir == "" {
		var err error
		if dir, err = defaultDir(); err != nil {
			return nil, err
		}
	}
	if strings.ContainsRune(dir, 0) {
		return nil, fmt.Errorf("%w: lock directory %q has a zero byte, which no path can have", lock.ErrInvalid, dir)
	}
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("%w: lock directory %q is not an absolute path: two processes would take it for two directories", lock.ErrInvalid, dir)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	dir = filepath.Clean(dir)
	if err := makeDir(dir); err != nil {
		return nil, classify(err)
	}
	kind, err := fileSystem(dir)
	if err != nil {
		return nil, classify(fmt.Errorf("look at the file system of %s: %w", dir, err))
	}
	b, err := on(kind, dir)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// on returns the backend of a directory on a file system of that kind.
func on(kind fileSystemKind, dir string) (*backend, error) {
	b := &backend{dir: dir, fencing: lock.FencingDurable, now: time.Now}
	switch {
	case kind.remote:
		return nil, fmt.Errorf("%w: %s is on a network file system (%s), whose flock may not exclude other hosts; name a local directory, or use a lock server", lock.ErrUnsupported, dir, kind.name)
	case kind.volatile:
		b.fencing = lock.FencingVolatile
	}
	return b, nil
}

// open is the Opener of file:// URLs.
func open(ctx context.Context, u *lock.URL) (lock.Backend, error) {
	path := u.Path
	if _, has := u.Password(); has || u.User != "" {
		u.Mistake("a user's name: lock files belong to the user who runs the process")
	}
	if len(u.Hosts) > 0 {
		u.Mistake("a relative path, or a host's name before it (%q): a directory is written with three slashes, as in file:///var/lib/locks", u.Hosts[0])
	}
	if err := u.Check(); err != nil {
		return nil, err
	}
	if path != "" && !filepath.IsAbs(filepath.FromSlash(path)) { // C:/locks is absolute on Windows
		path = "/" + path
	}
	return NewBackend(ctx, Options{Dir: filepath.FromSlash(path)})
}

// defaultDir returns the directory for the user who runs the process.
func defaultDir() (string, error) {
	root := os.Geteuid() == 0 // -1 on Windows
	switch {
	case runtime.GOOS == "windows":
		local, err := os.UserCacheDir() // %LocalAppData%, which does not roam
		if err != nil {
			return "", noDefault(err)
		}
		return filepath.Join(local, "interlock"), nil
	case runtime.GOOS == "darwin" && root:
		return "/var/db/interlock", nil
	case root:
		// Whatever the environment says, so that root's shell and root's cron meet.
		return "/var/lib/interlock", nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		u, err := user.Current()
		if err != nil || u.HomeDir == "" {
			return "", noDefault(err)
		}
		home = u.HomeDir
	}
	if runtime.GOOS == "darwin" {
		return filepath.Join(home, "Library", "Application Support", "interlock"), nil
	}
	// A relative path there is to be ignored, says the XDG specification.
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "interlock"), nil
	}
	return filepath.Join(home, ".local", "state", "interlock"), nil
}

func noDefault(err error) error {
	return fmt.Errorf("%w: no default lock directory, since the user has no home; name one, as in file:///var/lib/locks (%v)", lock.ErrInvalid, err)
}

// makeDir makes dir and what is missing above it, and has their entries on the
// disk before it returns.
func makeDir(dir string) error {
	switch info, err := os.Stat(dir); {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return fmt.Errorf("%w: lock directory %s is not a directory", lock.ErrInvalid, dir)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if parent := filepath.Dir(dir); parent != dir {
		if err := makeDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncParent(dir)
}

// classify marks the errors that can pass by themselves as ErrUnavailable.
func classify(err error) error {
	for _, passing := range []error{
		syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOLCK, syscall.EINTR,
	} {
		if errors.Is(err, passing) {
			return fmt.Errorf("%w: %w", lock.ErrUnavailable, err)
		}
	}
	return err
}
