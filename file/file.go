package file

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/interlock-go/lock"
)

// Bounds of a lock's time to live. It ends nothing here: a third of it is how
// often a holder looks whether its file is still in place.
const (
	minTTL = 100 * time.Millisecond
	maxTTL = 720 * time.Hour
)

// backend takes locks in one directory.
type backend struct {
	dir     string
	fencing lock.Fencing
	now     func() time.Time // the wall clock, which tests replace
	waiters waiters
}

var _ lock.Backend = (*backend)(nil)

// Acquire tries the flock once. It tries on a file that is open for reading
// only, since closing one that is open for writing wakes every waiter: a waiter
// that fails must not wake the others.
func (b *backend) Acquire(ctx context.Context, req lock.Request) (lock.Grant, error) {
	if l := held.get(b, req.Name); l != nil && l.id == req.ID {
		return lock.Grant{Lease: l, Token: l.token}, nil
	}
	// A file that somebody removed between open and flock is tried anew.
	for range 10 {
		if err := ctx.Err(); err != nil {
			b.waiters.remove(req.ID)
			return lock.Grant{}, err
		}
		l, err := b.try(req)
		switch rival := (*lock.HeldError)(nil); {
		case err == nil:
			b.waiters.remove(req.ID)
			return lock.Grant{Lease: l, Token: l.token}, nil
		case errors.As(err, &rival) && req.Wait:
			return lock.Grant{Lease: waiting{b, req.ID}, Retry: b.waiters.retry(req.ID)}, err
		case !errors.Is(err, errRemoved):
			b.waiters.remove(req.ID)
			return lock.Grant{}, classify(err)
		}
	}
	b.waiters.remove(req.ID)
	return lock.Grant{}, fmt.Errorf("%w: %w again and again", lock.ErrUnavailable, errRemoved)
}

// errRemoved says that a file is not the one at its path any more.
var errRemoved = errors.New("the lock's file was removed or replaced")

func (b *backend) try(req lock.Request) (*lease, error) {
	path := b.path(req.Name)
	f, err := b.open(path)
	if err != nil {
		return nil, err
	}
	if req.Wait {
		// Before the try that decides, or a release in between would go unseen.
		b.waiters.add(path, req.ID, req.Wake)
	}
	l := &lease{backend: b, name: req.Name, id: req.ID, path: path, flocked: f}
	if err := l.take(req.Owner); err != nil {
		l.close()
		return nil, err
	}
	held.add(l)
	return l, nil
}

// take tries the flock on the open file, and once it has it, makes sure that the
// file is still the one at the path, and gives the lock its token.
func (l *lease) take(owner string) error {
	switch locked, err := tryFlock(l.flocked); {
	case err != nil:
		return fmt.Errorf("flock %s: %w", l.path, err)
	case !locked:
		c, _ := readContent(l.flocked) // the label is a courtesy
		return &lock.HeldError{Name: l.name, Owner: c.last.owner}
	}
	var err error
	if l.written, err = os.OpenFile(l.path, os.O_RDWR|noFollow|noBlock, 0); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return errRemoved
		}
		return err
	}
	if l.info, err = l.flocked.Stat(); err != nil {
		return err
	}
	there, err := l.written.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(l.info, there) {
		return errRemoved
	}
	l.token, err = writeNext(l.written, l.name, owner, l.backend.now())
	if err != nil {
		return fmt.Errorf("%s: %w", l.path, err)
	}
	return nil
}

// open opens the lock's file for reading, and makes it, and its directory, if
// need be.
func (b *backend) open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|noFollow|noBlock, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeDir(b.dir); err != nil {
			return nil, err
		}
		f, err = os.OpenFile(path, os.O_RDONLY|os.O_CREATE|noFollow|noBlock, 0o600)
	}
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%s is not a regular file", path), err, f.Close())
	}
	return f, nil
}

func (b *backend) path(name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(b.dir, hex.EncodeToString(sum[:])+".lock")
}

// Guarantees implements [lock.Backend].
func (b *backend) Guarantees() lock.Guarantees {
	return lock.Guarantees{
		Backend:  "file",
		Fencing:  b.fencing,
		Ends:     lock.EndsProcess,
		MinTTL:   minTTL,
		MaxTTL:   maxTTL,
		Extend:   true, // there is no time to live that could not be changed
		Survives: lock.FaultClock,
	}
}

// Close ends the waiters' watch. What is still held then is under work that has
// not come to its end: it is freed with the process.
func (b *backend) Close() error { return b.waiters.close() }

// lease is a lock that is held.
type lease struct {
	backend *backend
	name    string
	id      string
	token   lock.Token
	path    string
	info    fs.FileInfo // of the file that has the flock

	mu      sync.Mutex // over the fields below
	flocked *os.File   // nil once closed
	written *os.File   // open for writing while the lock is held: its closing wakes the waiters
	shared  bool       // a child process may have copies
}

var _ lock.Lease = (*lease)(nil)

// Renew looks whether the path still leads to the file that has the flock.
func (l *lease) Renew(context.Context, time.Duration) error {
	l.mu.Lock()
	gone := l.flocked == nil
	l.mu.Unlock()
	if gone {
		return lock.ErrLost
	}
	switch now, err := os.Lstat(l.path); {
	case err == nil && os.SameFile(l.info, now):
		return nil
	case err == nil || errors.Is(err, fs.ErrNotExist):
		l.close()
		return fmt.Errorf("%w: %w", lock.ErrLost, errRemoved)
	default:
		return classify(err)
	}
}

// Release frees the flock, also for a child process that has a copy of the open
// file.
func (l *lease) Release(ctx context.Context) error {
	if err := l.Renew(ctx, 0); errors.Is(err, lock.ErrLost) {
		return err
	}
	l.close()
	return nil
}

// close frees the flock and then wakes the waiters. It may be called again.
func (l *lease) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flocked == nil {
		return
	}
	_ = unFlock(l.flocked) // closing does not free it while a child has a copy
	_ = l.flocked.Close()
	l.flocked = nil
	if l.written != nil {
		_ = l.written.Close()
		if l.shared {
			// The child's copy keeps the file open; this closing is the one that wakes.
			if f, err := os.OpenFile(l.path, os.O_WRONLY|noFollow|noBlock, 0); err == nil {
				_ = f.Close()
			}
		}
	}
	held.remove(l)
}

// share returns the open files that carry the lock, for a child process.
func (l *lease) share() []*os.File {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flocked == nil {
		return nil
	}
	l.shared = true
	return []*os.File{l.flocked, l.written}
}

// waiting is what a request that waits has left: its place among the waiters.
type waiting struct {
	backend *backend
	id      string
}

// Renew implements [lock.Lease]; there is nothing to renew.
func (w waiting) Renew(context.Context, time.Duration) error { return lock.ErrLost }

// Release takes the request from the waiters.
func (w waiting) Release(context.Context) error {
	w.backend.waiters.remove(w.id)
	return nil
}
