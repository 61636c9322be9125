// Package file takes locks among the processes of one host, with nothing but
// files: no server is needed. It is what the interlock command uses when no URL
// is given.
//
// It does not lock between hosts, and it gives no lock away from a holder that
// is stopped but not dead.
//
// # How it works
//
// A lock is a file in one directory; the file's name is the SHA-256 of the
// lock's. Whoever has the flock on it (LockFileEx on Windows) has the lock. The
// flock belongs to an open file, not to a process, so two acquisitions of one
// process exclude each other as two processes do. The kernel frees it when the
// last copy of the open file is closed, at the latest when the process ends:
// there is no time to live that could run out, and [lock.Handle.Deadline] is
// zero. Files are never removed.
//
// The file also holds the last fencing token. The next is one more, or the time
// in microseconds if that is greater; it is on the disk before the lock counts
// as taken. So tokens grow while the file lives, even if the clock goes back;
// if the file is lost they go on from the clock. On a file system in memory they
// are [lock.FencingVolatile], because a restart of the host loses every file.
// The format is in docs/format.md.
//
// # How it waits
//
// On Linux a waiter sleeps until the holder's file is closed (inotify). In case
// that the news came too early or not at all, it looks again after 5 ms, then
// less and less often, down to once a second. Elsewhere, and where the user's limit of
// inotify instances is used up, it tries every 50 ms. All waiting processes wake
// up when a lock becomes free and one of them wins; there is no order among
// them. Goroutines of one [lock.Locker] queue in order, as on every backend.
//
// # What breaks it
//
//   - Removing, or moving another file over, a lock's file while it is held: the
//     next comer makes a new file and has the lock at once. The holder sees that
//     at its next renewal, a third of its time to live later at most, and its
//     handle ends with [lock.CauseTaken].
//   - A network file system: whether flock excludes other hosts there depends on
//     its kind, its version and its options. Those that can be told are refused.
//   - A child process that got the open files ([Descriptors]) keeps the lock
//     when the holder dies. A clean Release frees it all the same.
//   - The directory is one user's: files are made with mode 0600. Two users, or
//     two containers without a shared directory, do not exclude each other.
//   - Windows and macOS: waiters poll. On Windows a file cannot be removed while
//     it is open, and the directory's entry is not flushed by itself.
//
// # URL and options
//
//	file:///var/lib/report/locks   that directory, an absolute path
//	file://                        the default directory
//
// The default is $XDG_STATE_HOME/interlock or ~/.local/state/interlock, and for
// root /var/lib/interlock. It is not the runtime directory, which is emptied when
// its user logs out and would take the tokens along. On macOS it is
// ~/Library/Application Support/interlock (root: /var/db/interlock), on Windows
// %LocalAppData%\interlock. A missing directory is made, with mode 0700.
//
// There are no parameters besides those that every URL may have.
package file
