package lock

import (
	"context"
	"time"
)

// Backend is what a store implements to become a [Locker]: it does each
// operation once and says plainly what happened. Waiting, back-off, renewal,
// trust, loss, clean-up, time-outs, wrapping of errors, logging and observation
// are the engine's, which [New] puts over it.
//
// # How to write one
//
//  1. Write a type with the three methods of Backend, and a type with the two
//     of [Lease]. No goroutine, no timer, no retry: the engine has them.
//
//  2. Give it a constructor NewBackend(ctx, client, Options) (lock.Backend, error)
//     and New, which is lock.New over it. For URLs, write an [Opener] and call
//     [Register] in an init function.
//
//  3. Prove it with one line in a test:
//
//     conformance.Run(t, conformance.Subject{Start: …})
//
// # Guidelines
//
//   - Every method may be called from many goroutines at once.
//   - A name is any string of 1 to 512 bytes, checked by the engine. Two names
//     must never meet in the store and one name always must: encode it
//     injectively, or hash it to 128 bits or more.
//   - Obey ctx as well as the client library allows. The engine returns to its
//     caller when ctx ends whether or not the call does, and takes care of what
//     the call comes back with later.
//   - Do not retry, and turn off the client's own retries if they exist: one
//     call is one attempt. If they cannot be turned off, the operation must be
//     safe to carry out twice.
//   - Do not check TTLs, names or options: the engine has refused what
//     [Guarantees] does not allow.
//   - Do not wrap errors with the operation, the name or the backend: the engine
//     does. Do keep secrets out of them.
type Backend interface {
	// Acquire makes one attempt to take req.Name and reports one of:
	//
	//   - a Grant with a Lease and no error: the lock is req.ID's;
	//   - a [*HeldError]: the store said that another holder has it. With
	//     req.Wait the engine calls again with the same Request, when req.Wake
	//     was called or after [Grant.Retry];
	//   - an error that is [ErrUnavailable]: the store gave no answer, or one
	//     that can pass (a restart, a fail-over, a network fault). An Acquire of
	//     the user's tries again until its ctx ends;
	//   - any other error: it will not pass by itself (wrong password, missing
	//     right, unsupported server). The user gets it at once, as
	//     ErrUnavailable unless it matches another of the package's errors.
	//
	// With req.Wait, Acquire may also block in a queue of the store's own until
	// it is granted or ctx ends; in the latter case it returns a HeldError too if
	// another holds the lock.
	//
	// A non-nil Grant.Lease with an error names what the request may have left
	// at the store: granted without our knowledge, queued, or unknown. The
	// engine calls its Release in the background, again and again, until that
	// answers nil or ErrLost; or, if it tries again, uses the Lease of the last
	// answer that had one. A nil Lease with an error means that surely nothing
	// is there. Do not return a nil Lease if the store might have done the work.
	//
	// The call must be idempotent in req.ID: asked again with an ID that holds
	// the lock already, it grants it again, with the same token, and does not
	// shorten its life: the second may be a late copy of the first.
	Acquire(ctx context.Context, req Request) (Grant, error)

	// Guarantees says what this instance promises at least. The engine asks
	// once, in New. A store that later proves weaker makes Acquire fail with
	// ErrUnsupported.
	Guarantees() Guarantees

	// Close frees what the Backend itself made: sessions, subscriptions, and the
	// client if NewBackend made it. All leases have been released or given up
	// before. It is called once.
	Close() error
}

// Request is one acquisition. The engine makes it, and passes the same one again
// for each attempt of that acquisition.
type Request struct {
	Name string // 1 to 512 bytes, any bytes
	ID   string // at least 128 random bits in printable ASCII without spaces: idempotency key and proof of ownership
	TTL  time.Duration
	// Token is set if the holder wants a fencing token. A store that has one at
	// no cost gives it in any case.
	Token bool
	// Wait is set if the caller is willing to wait; the backend may then queue
	// the request, or block in Acquire.
	Wait  bool
	Owner string // a label for people, at most 256 bytes; never proof of anything

	// Lost is to be called, at most once and from any goroutine, if the backend
	// learns by itself that a granted lease is gone: its session ended, or its
	// entry was taken away. It does not block. A backend that learns of a loss
	// only from Renew need not call it.
	Lost func(LossCause, error)

	// Held tells the engine that the store said that another holder has the
	// lock. A backend that blocks in Acquire calls it before it does, so that a
	// caller whose ctx ends meanwhile learns of it. It does not block. Nil if
	// Wait is false.
	Held func(*HeldError)

	// Wake makes the engine try again after the given delay, in place of
	// [Grant.Retry]. It is for a backend whose store tells waiters that a lock
	// became free. It may be called any number of times from any goroutine, also
	// before Acquire returned and after the wait is over; it does not block.
	// Nil if Wait is false.
	Wake func(after time.Duration)
}

// Grant is the store's answer to a [Request].
type Grant struct {
	// Lease is the entry at the store. See [Backend.Acquire] for a Lease that
	// comes with an error.
	Lease Lease

	// Token is the fencing token, or 0 for none. For one name it must be
	// strictly greater at each later grant, as far as the Fencing level of
	// Guarantees says, and unchanged by renewal and by a repeated Acquire.
	Token Token

	// TTL is the effective time to live; 0 stands for the one asked for.
	TTL time.Duration

	// Sent is when the request that proves the grant was sent; zero stands for
	// the start of the call. A backend that blocked in Acquire and confirmed its
	// turn at the end says here when it sent that confirmation.
	Sent Instant

	// Retry, with a HeldError, is when to try again if nothing calls Wake
	// before: 0 stands for HeldError.Left, or, if that is 0 too, for the
	// engine's own back-off (50 ms at first, 250 ms at most).
	Retry time.Duration
}

// Lease is one acquisition's entry at the store.
//
// The engine calls at most one Release at a time. A Renew may be under way when
// Release is called; the engine then ignores what it answers.
type Lease interface {
	// Renew confirms that the lease is still the acquisition's and sets its time
	// to live to ttl from now. The request that confirms must be sent after this
	// call began: trust is counted from then.
	//
	// It returns nil, or ErrLost if the store said that the lease is not ours
	// any more, or any other error for "not known". It must never take the lock
	// anew.
	Renew(ctx context.Context, ttl time.Duration) error

	// Release frees the lease, and never touches another's. It returns nil once
	// the store confirmed, ErrLost if the lease was not ours any more (or is
	// surely dead), and any other error for "not known": the engine then calls
	// again. After an Acquire that returned an error with this Lease, Release
	// must answer nil or ErrLost only when a late arrival of that request can no
	// longer take effect.
	Release(ctx context.Context) error
}

// BatchRenewer is an optional extension of [Backend]: it renews many leases in
// one round trip. The engine looks for it in New.
type BatchRenewer interface {
	// RenewAll does for each element what Lease.Renew does, and puts the answer
	// in its Err. Elements have no two equal leases, and there are at most 256.
	// Requests must be sent after the call began.
	RenewAll(ctx context.Context, batch []Renewal)
}

// Renewal is one lease of a [BatchRenewer]'s call.
type Renewal struct {
	Lease Lease
	TTL   time.Duration
	Err   error // the answer, as of Lease.Renew
}

// Marginer is an optional extension of [Backend]: it says how much of a lease's
// time to live is not to be trusted. Without it the margin is TTL × 1 % + 2 ms,
// for the drift of the store's clock against ours and its granularity.
type Marginer interface {
	Margin(ttl time.Duration) time.Duration
}
