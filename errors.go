package lock

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Errors to compare with errors.Is. What the methods return wraps one of them,
// with the operation, the name of the lock and the backend before it:
//
//	acquire "sku:42" on redis: held by web-1:4711, 12.3s left
var (
	ErrHeld        = errors.New("held by another")              // the store said that another holder has the lock
	ErrLost        = errors.New("lock lost")                    // the lock can no longer be promised
	ErrReleased    = errors.New("lock released")                // the handle was released before
	ErrUnavailable = errors.New("store unavailable")            // the store did not answer, or refused for reasons of its own
	ErrNoToken     = errors.New("no fencing token")             // the backend has none, or a weaker one than demanded
	ErrInvalid     = errors.New("invalid argument")             // refused before anything was sent
	ErrUnsupported = errors.New("not supported by the backend") // this backend, or this server, cannot do it
	ErrClosed      = errors.New("locker closed")                // Close was called
)

// HeldError is the store's word that another holder has the lock. It is
// ErrHeld.
type HeldError struct {
	Name  string
	Owner string        // the holder's label (see [Owner]); "" if the store does not tell
	Left  time.Duration // the holder's time to live at the store, which renewal may prolong; 0 if the store does not tell
}

func (e *HeldError) Error() string {
	s := "held by another"
	if e.Owner != "" {
		s = "held by " + printable(e.Owner)
	}
	if e.Left > 0 {
		s += ", " + e.Left.Round(time.Millisecond).String() + " left"
	}
	return s
}

// Is reports whether target is ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// LossCause says why a lock was lost.
type LossCause uint8

// Causes of a loss.
const (
	CauseExpired      LossCause = iota // its time to live passed without a confirmed renewal
	CauseTaken                         // the store says that the entry is gone or another's
	CauseSessionEnded                  // the session that carried it ended
	CauseMaxHold                       // it was held for as long as MaxHold allows
)

func (c LossCause) String() string {
	switch c {
	case CauseExpired:
		return "not confirmed in time"
	case CauseTaken:
		return "its entry at the store is gone"
	case CauseSessionEnded:
		return "its session ended"
	case CauseMaxHold:
		return "held for the longest time allowed"
	}
	return "LossCause(" + strconv.Itoa(int(c)) + ")"
}

// LostError says that a lock was lost, and why. It is ErrLost.
type LostError struct {
	Name  string
	Cause LossCause
	Err   error // what the store or the client said, if anything
}

func (e *LostError) Error() string {
	s := fmt.Sprintf("lock %q lost: %v", e.Name, e.Cause)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is reports whether target is ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns what the store or the client said.
func (e *LostError) Unwrap() error { return e.Err }

// opError puts the operation, the name and the backend before an error.
type opError struct {
	op, name, backend string
	err               error
}

func (e *opError) Error() string {
	return e.op + " " + strconv.Quote(e.name) + " on " + e.backend + ": " + e.err.Error()
}

func (e *opError) Unwrap() error { return e.err }

// printable quotes a label that would garble a terminal or a log.
func printable(s string) string {
	q := strconv.Quote(s)
	if q[1:len(q)-1] == s {
		return s
	}
	return q
}
