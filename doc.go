// Package lock takes locks that processes on several hosts share, on a store
// that they already run. No such lock keeps a second writer out by itself: a
// holder may be stopped between its last look at the lock and its write, by the
// scheduler, by a garbage collector or with its virtual machine, and go on when
// the lock has long been another's. Where that would corrupt data, the storage
// has to refuse the late write, by comparing fencing tokens: see [Fenced]. Nor
// does this package promise that a store keeps what it granted: a server that
// loses its memory loses its locks. What each store can lose is in [Guarantees]
// and in the documentation of its package.
//
// # What a user writes
//
// [Open] makes a [Locker] on the store that a URL names. The package of the URL's
// scheme must be imported, or lock/all for all schemes.
//
//	locker, err := lock.Open(ctx, os.Getenv("LOCK_URL")) // file://, memory://, redis://host:6379
//	if err != nil {
//		return err
//	}
//	defer locker.Close()
//
// [Do] waits for a lock, runs a function under it and releases it. The function's
// ctx ends with the caller's ctx, or with the lock:
//
//	err = lock.Do(ctx, locker, "report:2026-11", func(ctx context.Context, h *lock.Handle) error {
//		return buildReport(ctx)
//	})
//
// Acquire and Release are the long form:
//
//	h, err := locker.Acquire(ctx, "report:2026-11", lock.TTL(30*time.Second))
//	if err != nil {
//		return err
//	}
//	defer h.Release(ctx) // frees the lock also if ctx has ended
//	buildReport(h.Context())
//
// Where a second holder would corrupt data, take locks of which each has a
// fencing token. Fenced refuses a store that cannot give one, and the code does
// not compile without handing it on:
//
//	stock, err := lock.Fenced(locker, lock.FencingDurable)
//	if err != nil {
//		return err
//	}
//	err = stock.Do(ctx, "sku:42", func(ctx context.Context, h *lock.FencedHandle) error {
//		return repo.Reserve(ctx, "sku:42", 3, h.Token()) // refuses a token below one that it has seen
//	})
//
// # The rules in brief
//
// They hold on every store; docs/design.md has them in full.
//
//   - A lock is trusted until the moment at which the last confirming request
//     was sent, plus its TTL, less a margin. Context then ends and Err says so,
//     with no word from the store, and before the store gives the lock away.
//   - A held lock is renewed every third of its TTL, until Release.
//   - An Acquire that failed, and a Release, leave nothing at the store: what
//     could not be confirmed goes on in the background.
//   - Every call returns within 100 ms of the end of its ctx.
//   - Every acquisition is a holder of its own: two goroutines exclude each
//     other as two hosts do, and nobody has a lock twice.
//   - Of the goroutines of a Locker that wait for one name, one at a time
//     contends for it at the store, in the order in which they came.
//   - A name is any string of 1 to 512 bytes. A TTL is whole milliseconds; one
//     that the store cannot honour is refused, never rounded.
//   - No error and no log shows a password.
//
// # Packages
//
//   - memory, file, redis: the stores. Each has New, for a client of the
//     caller's, NewBackend, and the Opener of its URLs.
//   - all: imports all of them.
//   - conformance: the checks that every store passes, for one line in a test.
//   - cmd/interlock: the command; interlock run holds a lock while another
//     command runs.
//
// [Backend] says how to write another store.
package lock
