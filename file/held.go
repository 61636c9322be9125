package file

import (
	"os"
	"sync"
)

// held are the leases of this process. It keeps their open files from the
// garbage collector, which would close them and so free the locks, when a Locker
// was closed under work that goes on.
var held = leases{by: map[leaseKey]*lease{}}

type leases struct {
	sync.Mutex
	by map[leaseKey]*lease
}

type leaseKey struct {
	backend *backend
	name    string
}

func (s *leases) get(b *backend, name string) *lease {
	s.Lock()
	defer s.Unlock()
	return s.by[leaseKey{b, name}]
}

func (s *leases) called(name string) []*lease {
	s.Lock()
	defer s.Unlock()
	var called []*lease
	for k, l := range s.by {
		if k.name == name {
			called = append(called, l)
		}
	}
	return called
}

func (s *leases) add(l *lease) {
	s.Lock()
	defer s.Unlock()
	s.by[leaseKey{l.backend, l.name}] = l
}

func (s *leases) remove(l *lease) {
	s.Lock()
	defer s.Unlock()
	if k := (leaseKey{l.backend, l.name}); s.by[k] == l {
		delete(s.by, k)
	}
}

// Descriptors returns the open files of the locks called name that this process
// holds, in whatever directory; none if it holds none. A child process that
// inherits all of them (in os/exec's ExtraFiles) keeps those locks while it
// lives, even if this process is killed; a Release here frees them all the same.
// The caller must not close the files, nor use them after the Release.
func Descriptors(name string) []*os.File {
	var files []*os.File
	for _, l := range held.called(name) {
		files = append(files, l.share()...)
	}
	return files
}
