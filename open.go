package lock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Opener makes a Backend from a URL of a scheme that it was registered for. It
// reads the parameters that are its own, calls u.Check, and only then dials. It
// may be called from several goroutines at once, each with a URL of its own.
//
// ctx governs the opening only; the Backend lives until Close. The parameters
// ttl, grace, max_hold, min_hold, owner, token_base and renew are not the
// Opener's: Open has read them.
type Opener func(ctx context.Context, u *URL) (Backend, error)

var openers = struct {
	sync.RWMutex
	of map[string]Opener
}{of: make(map[string]Opener)}

// Register makes open known for the schemes. It is called from a backend's init
// function, and panics if a scheme is taken or is none, or open is nil.
func Register(open Opener, schemes ...string) {
	if open == nil {
		panic("lock: Register with a nil Opener")
	}
	if len(schemes) == 0 {
		panic("lock: Register without a scheme")
	}
	openers.Lock()
	defer openers.Unlock()
	for _, s := range schemes {
		if !validScheme(s) {
			panic("lock: Register with the scheme " + strconv.Quote(s) + ": lower-case letters and digits, a letter first")
		}
		if openers.of[s] != nil {
			panic("lock: Register called twice for the scheme " + strconv.Quote(s))
		}
		openers.of[s] = open
	}
}

// Open makes a Locker on the store that url names, for instance
//
//	redis://user:password@host:6379/0?ttl=30s
//
// The scheme's package must be imported, or github.com/interlock-go/lock/all for
// every scheme. Beside the backend's own parameters each URL may have those of
// the Locker: ttl, grace, max_hold, min_hold (durations with a unit), owner,
// token_base, and renew=false. opts win over them.
//
// A mistake in the URL or in opts is [ErrInvalid], found before anything is
// dialled; a store that does not answer is [ErrUnavailable]. ctx governs the
// opening only. The Locker's Close closes the connection.
func Open(ctx context.Context, url string, opts ...SetupOption) (Locker, error) {
	o, err := prepareLocker(ctx, url, opts)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	return o.locker(ctx)
}

// opening is a Locker that nothing speaks against so far, though nothing was
// dialled for it.
type opening struct {
	url  *URL
	open Opener
	opts []SetupOption
}

// prepareLocker does the part of Open that sends nothing.
func prepareLocker(ctx context.Context, url string, opts []SetupOption) (*opening, error) {
	u, open, err := prepare(ctx, url)
	if err != nil {
		return nil, err
	}
	opts = slices.Concat(u.lockerOptions(), opts)
	if u.inner().mistake != nil {
		return nil, u.inner().mistake
	}
	return &opening{u, open, opts}, checkOptions(opts)
}

// locker does the rest of Open. It is called once.
func (o *opening) locker(ctx context.Context) (Locker, error) {
	return inTime(ctx, o.url.Scheme, func() (Locker, error) {
		b, err := openWith(ctx, o.open, o.url)
		if err != nil {
			return nil, err
		}
		l, err := New(b, o.opts...)
		if err != nil {
			return nil, errors.Join(err, b.Close())
		}
		return l, nil
	})
}

// OpenBackend makes the Backend that url names, for use under [New]. A parameter
// that is the Locker's is refused: see [Open], which takes it.
func OpenBackend(ctx context.Context, url string) (Backend, error) {
	u, open, err := prepare(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	for _, name := range lockerParams {
		if u.find(name) != nil {
			return nil, fmt.Errorf("open: %w: URL: parameter %q is the Locker's, not the backend's: use Open, or give it to New as an option", ErrInvalid, name)
		}
	}
	return inTime(ctx, u.Scheme, func() (Backend, error) { return openWith(ctx, open, u) })
}

// prepare parses the URL and finds the Opener of its scheme.
func prepare(ctx context.Context, url string) (*URL, Opener, error) {
	if ctx == nil {
		return nil, nil, fmt.Errorf("%w: a nil context", ErrInvalid)
	}
	u, err := ParseURL(url)
	if err != nil {
		return nil, nil, err
	}
	openers.RLock()
	defer openers.RUnlock()
	if open := openers.of[u.Scheme]; open != nil {
		return u, open, nil
	}
	have := "none is registered"
	if len(openers.of) > 0 {
		have = "have " + strings.Join(slices.Sorted(maps.Keys(openers.of)), ", ")
	}
	return nil, nil, fmt.Errorf("%w: URL: unknown scheme %q (forgotten import? %s)", ErrInvalid, u.Scheme, have)
}

// checkOptions refuses a bad option before anything is dialled.
func checkOptions(opts []SetupOption) error {
	var s setup
	for _, o := range opts {
		if isNil(o) {
			return fmt.Errorf("%w: a nil option", ErrInvalid)
		}
		if err := o.setup(&s); err != nil {
			return err
		}
	}
	return nil
}

// openWith calls an Opener, and refuses what it left unread.
func openWith(ctx context.Context, open Opener, u *URL) (Backend, error) {
	b, err := open(ctx, u)
	if err != nil {
		return nil, hideSecrets(err, u)
	}
	if isNil(b) {
		return nil, fmt.Errorf("%w: its Opener returned no Backend", ErrUnsupported)
	}
	if err := u.Check(); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// inTime calls open on a goroutine and returns when ctx ends even if open does
// not; what open comes back with later is closed.
func inTime[T interface{ Close() error }](ctx context.Context, scheme string, open func() (T, error)) (T, error) {
	type result struct {
		opened T
		err    error
	}
	var none T
	if err := ctx.Err(); err != nil {
		return none, openError(scheme, err)
	}
	results, left := make(chan result), make(chan struct{})
	defer close(left)
	go func() {
		var r result
		r.opened, r.err = open()
		select {
		case results <- r:
		case <-left:
			if r.err == nil {
				r.opened.Close() //nolint:errcheck // nobody is left to be told
			}
		}
	}()
	select {
	case r := <-results:
		if r.err != nil {
			return none, openError(scheme, r.err)
		}
		return r.opened, nil
	case <-ctx.Done():
		return none, openError(scheme, ctx.Err())
	}
}

// openError says what was opened. An error that is none of the package's is the
// store's or the network's, hence ErrUnavailable.
func openError(scheme string, err error) error {
	for _, known := range []error{ErrInvalid, ErrUnsupported, ErrNoToken, ErrUnavailable, ErrHeld, ErrLost, ErrReleased, ErrClosed} {
		if errors.Is(err, known) {
			return fmt.Errorf("open %s: %w", scheme, err)
		}
	}
	return fmt.Errorf("open %s: %w: %w", scheme, ErrUnavailable, err)
}
