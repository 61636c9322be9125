package lock

// Handle is a lock that is held.
type Handle struct{}
