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
	"sync/atomic"
)

// Config is a part of a service's configuration: the locks that it takes, by
// names of its own choice, each with the store that they are on and what they
// are for. In YAML:
//
//	lockers:
//	  reports:
//	    url: redis://cache:6379
//	    purpose: efficiency
//	  inventory:
//	    url: etcd://e1:2379,e2:2379,e3:2379
//	    purpose: correctness
type Config struct {
	Lockers map[string]LockerConfig `json:"lockers" yaml:"lockers"`
}

// LockerConfig is one entry of a Config.
type LockerConfig struct {
	URL     Secret  `json:"url" yaml:"url"` // as for Open
	Purpose Purpose `json:"purpose" yaml:"purpose"`

	// Fencing is the least level of fencing that an entry for correctness is
	// content with; without it, FencingConsensus.
	Fencing Fencing `json:"fencing,omitempty" yaml:"fencing,omitempty"`
}

// Format prints the entry with the URL as xxxxx. Without it, the verbs that do
// not fit a pointer would print what one in a struct points to, bare.
func (lc LockerConfig) Format(f fmt.State, verb rune) {
	type bare LockerConfig
	fmt.Fprintf(f, fmt.FormatString(f, verb), bare(lc)) //nolint:errcheck // fmt keeps the error
}

// Format prints the Config with its URLs as xxxxx; see LockerConfig.Format.
func (c Config) Format(f fmt.State, verb rune) {
	type bare Config
	fmt.Fprintf(f, fmt.FormatString(f, verb), bare(c)) //nolint:errcheck // fmt keeps the error
}

// Purpose says what a second holder would do.
type Purpose string

// Purposes of a lock. An entry must name one.
const (
	PurposeEfficiency  Purpose = "efficiency"  // a nuisance: work is done twice
	PurposeCorrectness Purpose = "correctness" // damage: each write needs a fencing token
)

// Set is the opened Lockers of a Config. Its methods may be called from many
// goroutines at once.
type Set struct {
	entries map[string]*entry
	shared  []*sharedLocker
	closed  atomic.Bool
}

// entry is one entry of a Set.
type entry struct {
	locker Locker
	fenced *FencedLocker // nil if its purpose is efficiency
}

// sharedLocker is the Locker of all entries that have one URL.
type sharedLocker struct {
	entries []string
	opening *opening
	locker  Locker
}

// Open opens the Lockers of all entries; entries with equal URLs share one. It
// refuses an entry whose backend is too weak for its purpose with ErrNoToken,
// and a mistake in any entry with ErrInvalid before anything is dialled. The
// error names the entry. After an error nothing is left open.
//
// opts go to every Locker, and win over the URLs'.
func (c Config) Open(ctx context.Context, opts ...SetupOption) (*Set, error) {
	s, err := c.prepare(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	if err := s.open(ctx, c); err != nil {
		return nil, errors.Join(fmt.Errorf("config: %w", err), s.Close())
	}
	return s, nil
}

// prepare finds the mistakes that can be found without a connection, in all
// entries.
func (c Config) prepare(ctx context.Context, opts []SetupOption) (*Set, error) {
	if ctx == nil {
		return nil, fmt.Errorf("%w: a nil context", ErrInvalid)
	}
	if len(c.Lockers) == 0 {
		return nil, fmt.Errorf("%w: no lockers", ErrInvalid)
	}
	if err := checkOptions(opts); err != nil {
		return nil, err
	}
	s := &Set{entries: make(map[string]*entry)}
	byURL := make(map[Secret]*sharedLocker)
	var mistakes []error
	for _, name := range slices.Sorted(maps.Keys(c.Lockers)) {
		lc := c.Lockers[name]
		if err := lc.check(); err != nil {
			mistakes = append(mistakes, entryError(err, name))
		}
		if l := byURL[lc.URL]; l != nil {
			l.entries = append(l.entries, name)
			continue
		}
		o, err := prepareLocker(ctx, string(lc.URL), opts)
		if err != nil {
			mistakes = append(mistakes, entryError(err, name))
		}
		l := &sharedLocker{entries: []string{name}, opening: o}
		byURL[lc.URL] = l
		s.shared = append(s.shared, l)
	}
	return s, errors.Join(mistakes...)
}

func (lc LockerConfig) check() error {
	switch {
	case lc.Purpose != PurposeEfficiency && lc.Purpose != PurposeCorrectness:
		return fmt.Errorf("%w: purpose %q: say efficiency if a second holder is a nuisance, correctness if it would corrupt data", ErrInvalid, string(lc.Purpose))
	case lc.Purpose == PurposeEfficiency && lc.Fencing != FencingNone:
		return fmt.Errorf("%w: fencing %v needs the purpose correctness", ErrInvalid, lc.Fencing)
	case lc.Fencing > FencingConsensus:
		return fmt.Errorf("%w: fencing %v (have volatile, durable, consensus)", ErrInvalid, lc.Fencing)
	}
	return nil
}

func (s *Set) open(ctx context.Context, c Config) error {
	for _, l := range s.shared {
		var err error
		if l.locker, err = l.opening.locker(ctx); err != nil {
			return entryError(err, l.entries...)
		}
		for _, name := range l.entries {
			e := &entry{locker: l.locker}
			s.entries[name] = e
			lc := c.Lockers[name]
			if lc.Purpose == PurposeEfficiency {
				continue
			}
			atLeast := lc.Fencing
			if atLeast == FencingNone {
				atLeast = FencingConsensus
			}
			if e.fenced, err = Fenced(l.locker, atLeast); err != nil {
				return entryError(fmt.Errorf("purpose correctness: %w", err), name)
			}
		}
		l.opening = nil // it has the password
	}
	return nil
}

// entryError names the entries that an error is about.
func entryError(err error, names ...string) error {
	return fmt.Errorf("locker %s: %w", quoted(names), err)
}

func quoted(names []string) string {
	q := make([]string, len(names))
	for i, name := range names {
		q[i] = strconv.Quote(name)
	}
	return strings.Join(q, ", ")
}

// Locker returns the Locker of an entry for efficiency. It returns ErrInvalid if
// there is no such entry, and if it is for correctness: code and configuration
// must agree.
//
// Entries with equal URLs have the same Locker. Close the Set, not the Locker.
func (s *Set) Locker(name string) (Locker, error) {
	e, err := s.entry(name)
	switch {
	case err != nil:
		return nil, err
	case e.fenced != nil:
		return nil, entryError(fmt.Errorf("%w: it is configured for correctness, which Set.Fenced is for", ErrInvalid), name)
	}
	return e.locker, nil
}

// Fenced returns the FencedLocker of an entry for correctness. It returns
// ErrInvalid if there is no such entry, and if it is for efficiency: code and
// configuration must agree.
func (s *Set) Fenced(name string) (*FencedLocker, error) {
	e, err := s.entry(name)
	switch {
	case err != nil:
		return nil, err
	case e.fenced == nil:
		return nil, entryError(fmt.Errorf("%w: it is configured for efficiency, which Set.Locker is for", ErrInvalid), name)
	}
	return e.fenced, nil
}

func (s *Set) entry(name string) (*entry, error) {
	if s == nil || s.entries == nil {
		return nil, entryError(fmt.Errorf("%w: a Set that Config.Open did not make", ErrInvalid), name)
	}
	if s.closed.Load() {
		return nil, entryError(ErrClosed, name)
	}
	e := s.entries[name]
	if e == nil {
		return nil, entryError(fmt.Errorf("%w: not configured (have %s)", ErrInvalid, quoted(slices.Sorted(maps.Keys(s.entries)))), name)
	}
	return e, nil
}

// Close closes all Lockers at once, so that it takes no longer than one does,
// and returns what their Close returned. The second call returns ErrClosed.
func (s *Set) Close() error {
	if s == nil {
		return fmt.Errorf("close set: %w: a nil Set", ErrInvalid)
	}
	if s.closed.Swap(true) {
		return fmt.Errorf("close set: %w", ErrClosed)
	}
	errs := make([]error, len(s.shared))
	var wg sync.WaitGroup
	for i, l := range s.shared {
		if l.locker == nil {
			continue // opening it, or one before it, failed
		}
		wg.Go(func() {
			// A user may have closed it already, against the advice.
			if err := l.locker.Close(); err != nil && !errors.Is(err, ErrClosed) {
				errs[i] = entryError(err, l.entries...)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
