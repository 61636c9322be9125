package lock

import "context"

// Locker takes locks on one store. Its methods may be called from many
// goroutines at once.
//
// Locker is called, not implemented: to fake one in a test, put a fake Backend
// under New, or use the memory package. A wrapper passes the handles of the
// Locker below through and has a method Unwrap() Locker.
type Locker interface {
	// Acquire waits until it holds the lock name, or ctx ends, or the Locker is
	// closed. While the store is away it goes on trying; an error of the store
	// that will not pass by itself is returned at once.
	//
	// ctx governs only the wait: its end after Acquire returned does nothing to
	// the lock. If ctx ends while another holds, the error is both ctx's and
	// ErrHeld; if it ends while the store is away, ctx's and ErrUnavailable.
	Acquire(ctx context.Context, name string, opts ...Option) (*Handle, error)

	// TryAcquire makes one attempt, and returns ErrHeld if another holder has
	// the lock, or ErrUnavailable if the store did not say.
	TryAcquire(ctx context.Context, name string, opts ...Option) (*Handle, error)

	// Guarantees says what this Locker promises at least.
	Guarantees() Guarantees

	// Close ends every Context with cause ErrClosed, then releases what is held,
	// except under a Do whose function has not returned: it waits for that, for
	// 5 s in all, and leaves the rest to their TTL. It closes the client only if
	// Open made it. After Close, every method answers ErrClosed.
	Close() error
}
