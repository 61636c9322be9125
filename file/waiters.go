package file

import "time"

// pollInterval is how often a waiter tries that nobody tells when the lock is
// freed.
const pollInterval = 50 * time.Millisecond
