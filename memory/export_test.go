package memory

import "fmt"

// Residue says what the store has of a name.
func Residue(s *Store, name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.live(name)
	if e == nil {
		return nil
	}
	return []string{fmt.Sprintf("entry of %q with %d waiters", e.owner, len(e.queue))}
}
