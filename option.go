package lock

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// DefaultTTL is the time to live of a lock for which no other was given. It is
// how long a dead holder blocks others.
const DefaultTTL = 30 * time.Second

// MaxOwnerLen is the greatest length of an owner's label, in bytes.
const MaxOwnerLen = 256

// Option is a setting of one acquisition. As a [SetupOption] it is the default
// for all acquisitions of a Locker.
type Option interface {
	SetupOption
	apply(*settings) error
}

// SetupOption is a setting of a Locker, for New, Open and Config.Open.
type SetupOption interface{ setup(*setup) error }

// settings are one acquisition's.
type settings struct {
	ttl, grace       time.Duration
	maxHold, minHold time.Duration
	noRenew, token   bool
	owner            string
}

// setup is a Locker's.
type setup struct {
	settings  // the defaults of every acquisition
	log       *slog.Logger
	observe   Observer
	tokenBase Token
}

type option func(*settings) error

func (o option) apply(s *settings) error { return o(s) }
func (o option) setup(s *setup) error    { return o(&s.settings) }

type setupOption func(*setup) error

func (o setupOption) setup(s *setup) error { return o(s) }

// TTL sets the time to live: the longest that a dead or cut-off holder may block
// others. Whole milliseconds, within the backend's bounds; 30 s without it.
func TTL(d time.Duration) Option {
	return option(func(s *settings) error {
		if d <= 0 {
			return fmt.Errorf("%w: TTL %v is not positive", ErrInvalid, d)
		}
		s.ttl = d
		return nil
	})
}

// NoRenew turns automatic renewal off: the lock ends one TTL after it was taken
// unless Extend is called.
func NoRenew() Option {
	return option(func(s *settings) error { s.noRenew = true; return nil })
}

// MaxHold caps the time for which the lock is held: when d has passed, the
// handle's Context ends and renewal stops. The entry at the store then runs out
// by itself, within a TTL; it is not freed under work that still runs. Where no
// clock ends a lock (Guarantees.Ends) it stays until Release.
func MaxHold(d time.Duration) Option {
	return option(func(s *settings) error {
		if d <= 0 {
			return fmt.Errorf("%w: MaxHold %v is not positive", ErrInvalid, d)
		}
		s.maxHold = d
		return nil
	})
}

// MinHold keeps others out for at least d after the lock was taken, even if it
// is released sooner: a job that ends at once must not run again on a host whose
// clock is behind. Where no clock ends a lock (Guarantees.Ends), it counts only
// while the Locker is open.
func MinHold(d time.Duration) Option {
	return option(func(s *settings) error {
		if d <= 0 {
			return fmt.Errorf("%w: MinHold %v is not positive", ErrInvalid, d)
		}
		s.minHold = d
		return nil
	})
}

// WithToken asks for a fencing token where the store gives one only at a cost.
// The acquisition fails with ErrNoToken on a backend that has none.
func WithToken() Option {
	return option(func(s *settings) error { s.token = true; return nil })
}

// Owner sets the label that others are shown while the lock is held, of at most
// 256 bytes; without it, it is the host's name and the process id. It proves
// nothing: any number of holders may have the same one.
func Owner(label string) Option {
	return option(func(s *settings) error {
		if len(label) > MaxOwnerLen {
			return fmt.Errorf("%w: owner label of %d bytes (at most %d)", ErrInvalid, len(label), MaxOwnerLen)
		}
		s.owner = label
		return nil
	})
}

// Grace keeps others out for d longer than the holder trusts its lock, if it
// dies or is cut off: a delay for resources that cannot check tokens. A clean
// Release is not delayed.
func Grace(d time.Duration) Option {
	return option(func(s *settings) error {
		if d < 0 {
			return fmt.Errorf("%w: Grace %v is negative", ErrInvalid, d)
		}
		s.grace = d
		return nil
	})
}

// Logger sets where the Locker tells of outages, failed renewals and losses.
// Without it, it is silent.
func Logger(l *slog.Logger) SetupOption {
	return setupOption(func(s *setup) error {
		if l == nil {
			return fmt.Errorf("%w: a nil Logger (leave the option out for silence)", ErrInvalid)
		}
		s.log = l
		return nil
	})
}

// Observe calls o once at each end of a wait, a hold, a renewal, and at each
// loss, outside of locks. Observers of several Observe options are all called.
func Observe(o Observer) SetupOption {
	return setupOption(func(s *setup) error {
		if o == nil {
			return fmt.Errorf("%w: a nil Observer", ErrInvalid)
		}
		if first := s.observe; first != nil {
			s.observe = func(ctx context.Context, e Event) { first(ctx, e); o(ctx, e) }
			return nil
		}
		s.observe = o
		return nil
	})
}

// TokenBase is added to every token, so that after a change of backend, whose
// numbers may be smaller, the tokens go on growing.
func TokenBase(n Token) SetupOption {
	return setupOption(func(s *setup) error {
		if n < 0 {
			return fmt.Errorf("%w: TokenBase %d is negative", ErrInvalid, n)
		}
		s.tokenBase = n
		return nil
	})
}

// Observer is told of what happens, for metrics and traces. ctx is Acquire's for
// a wait, and carries its values for the rest. It should return soon: it runs on
// the goroutine that the event concerns.
type Observer func(ctx context.Context, e Event)

// Event is what an Observer is told.
type Event struct {
	Kind    EventKind
	Backend string
	Name    string
	Owner   string        // the acquisition's own label
	Token   Token         // 0: none
	Took    time.Duration // of the wait, the hold or the renewal
	Err     error         // how it ended, if not well
}

// EventKind says what an Event is about.
type EventKind uint8

// Kinds of events.
const (
	EventWait    EventKind = iota // an Acquire or TryAcquire ended: with the lock, or with Err
	EventHold                     // a hold ended: by Release, Close, or loss (then Err is the LostError)
	EventRenew                    // a renewal or Extend was answered, or failed with Err
	EventLost                     // the lock was lost; Err is the LostError
	EventRelease                  // an attempt to release at the store ended, in the background or not; Err if it will be tried again
)

func (k EventKind) String() string {
	return [...]string{"wait", "hold", "renew", "lost", "release"}[min(k, EventRelease)]
}
