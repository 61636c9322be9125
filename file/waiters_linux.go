package file

import (
	"encoding/binary"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// How soon a waiter looks again that is not told before: after as long as has
// passed since it came or was last told, within these bounds. The kernel tells
// of a close before it frees the flock of a process that died, and children with
// copies die one after the other, so the first look after the news may be too
// early. Later looks are a safety net.
const (
	soonest = 5 * time.Millisecond
	latest  = time.Second
)

// watched are the events that a waiter wakes for: the holder's closing, and the
// file's removal or replacement (unlinking it changes its attributes).
const watched = unix.IN_CLOSE_WRITE | unix.IN_ATTRIB | unix.IN_MOVE_SELF

// waiters are those that wait for a file to be closed. All share one inotify
// instance, which is made for the first of them.
type waiters struct {
	mu     sync.Mutex
	notify *os.File // nil before the first waiter, and after close
	fd     int      // notify's; File.Fd would make it blocking
	closed bool
	byID   map[string]*waiter
	byFile map[int32]map[*waiter]struct{} // by watch descriptor
}

type waiter struct {
	file int32 // watch descriptor
	wake func(after time.Duration)
	told time.Time // when it came, or was last woken
}

// add has wake called when the file at path is closed by its holder. Adding the
// same id again is for the file that is at path now. If the kernel refuses, the
// waiter is not told and polls.
func (w *waiters) add(path, id string, wake func(time.Duration)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.start() {
		return
	}
	wd, err := unix.InotifyAddWatch(w.fd, path, watched)
	if err != nil {
		w.removeLocked(id)
		return
	}
	if old := w.byID[id]; old != nil {
		if old.file == int32(wd) {
			return
		}
		w.removeLocked(id)
	}
	x := &waiter{file: int32(wd), wake: wake, told: time.Now()}
	w.byID[id] = x
	if w.byFile[x.file] == nil {
		w.byFile[x.file] = map[*waiter]struct{}{}
	}
	w.byFile[x.file][x] = struct{}{}
}

// start makes the inotify instance if there is none, and reports whether there
// is one now.
func (w *waiters) start() bool {
	if w.notify != nil || w.closed {
		return w.notify != nil
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return false // the user's instances are used up: try again with the next waiter
	}
	w.fd, w.notify = fd, os.NewFile(uintptr(fd), "inotify")
	w.byID = map[string]*waiter{}
	w.byFile = map[int32]map[*waiter]struct{}{}
	go w.read(w.notify)
	return true
}

// remove forgets id.
func (w *waiters) remove(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.removeLocked(id)
}

func (w *waiters) removeLocked(id string) {
	x := w.byID[id]
	if x == nil {
		return
	}
	delete(w.byID, id)
	delete(w.byFile[x.file], x)
	if len(w.byFile[x.file]) > 0 {
		return
	}
	if _, known := w.byFile[x.file]; known {
		delete(w.byFile, x.file)
		_, _ = unix.InotifyRmWatch(w.fd, uint32(x.file))
	}
}

// retry is when a waiter that found the lock held is to try again, if it is not
// told before.
func (w *waiters) retry(id string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.byID[id]
	if x == nil {
		return pollInterval
	}
	return min(max(time.Since(x.told), soonest), latest)
}

// close ends the watch.
func (w *waiters) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.notify == nil {
		return nil
	}
	err := w.notify.Close()
	w.notify, w.byID, w.byFile = nil, nil, nil
	return err
}

// read wakes the waiters that events concern, until the instance is closed.
func (w *waiters) read(notify *os.File) {
	buf := make([]byte, 64*(unix.SizeofInotifyEvent+unix.NAME_MAX+1))
	for {
		n, err := notify.Read(buf)
		if err != nil {
			return
		}
		for event := buf[:n]; len(event) >= unix.SizeofInotifyEvent; {
			wd := int32(binary.NativeEndian.Uint32(event[0:]))
			mask := binary.NativeEndian.Uint32(event[4:])
			name := binary.NativeEndian.Uint32(event[12:])
			event = event[unix.SizeofInotifyEvent+name:]
			w.tell(wd, mask)
		}
	}
}

func (w *waiters) tell(wd int32, mask uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var told []*waiter
	if mask&unix.IN_Q_OVERFLOW != 0 { // events were dropped: of which files is not known
		for _, x := range w.byID {
			told = append(told, x)
		}
	}
	for x := range w.byFile[wd] {
		told = append(told, x)
	}
	if mask&unix.IN_IGNORED != 0 { // the file is gone, and the watch with it
		delete(w.byFile, wd)
	}
	now := time.Now()
	for _, x := range told {
		x.told = now
		x.wake(0)
	}
}
