package memory

import (
	"context"
	"strings"
	"sync"

	"github.com/interlock-go/lock"
)

func init() { lock.Register(open, "memory") }

var stores struct {
	mu     sync.Mutex
	byName map[string]*Store
}

// open returns a Backend on the store that the URL names.
func open(_ context.Context, u *lock.URL) (lock.Backend, error) {
	if u.User != "" || u.Path != "" || len(u.Hosts) > 1 {
		u.Mistake("memory: want memory://name")
	}
	if err := u.Check(); err != nil {
		return nil, err
	}
	return NewBackend(Named(strings.Join(u.Hosts, "")))
}

// Named returns the store of memory://name, as lock.Open finds it.
func Named(name string) *Store {
	stores.mu.Lock()
	defer stores.mu.Unlock()
	s := stores.byName[name]
	if s == nil {
		s = NewStore()
		if stores.byName == nil {
			stores.byName = make(map[string]*Store)
		}
		stores.byName[name] = s
	}
	return s
}
