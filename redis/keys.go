package redis

import (
	"fmt"
	"strings"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/internal/percent"
)

const (
	defaultPrefix = "interlock:"
	maxPrefixLen  = 128
	slots         = 16384 // of a Redis Cluster
)

// keys are what one lock may have at the store. They share a hash tag, and so a
// slot of a Cluster, whatever the lock's name is:
//
//	prefix{name}                the lock: "<id> <token> <owner>"
//	prefix{name}:queue          the waiters' ids, by arrival
//	prefix{name}:queue:waiters  id → "<deadline> <offer> <channel> <owner>"
//
// name is percent-encoded, braces included, so the closing brace is where the
// name ends and no two names meet.
type keys struct{ lock, queue, waiters string }

const (
	queueSuffix   = ":queue"
	waitersSuffix = ":queue:waiters"
)

// keysOf derives the keys of a name. They are cut from one string.
func (b *backend) keysOf(name string) keys {
	all := b.prefix + "{" + encode(name) + "}" + waitersSuffix
	n := len(all) - len(waitersSuffix)
	return keys{all[:n], all[:n+len(queueSuffix)], all}
}

// encode writes a name so that it can stand between the braces of a hash tag.
func encode(name string) string { return percent.Encode(name, percent.Marks+"/") }

// checkPrefix refuses a prefix under which the keys of a lock would not share a
// slot: an empty pair of braces makes Redis hash the whole key.
func checkPrefix(prefix string) error {
	if len(prefix) > maxPrefixLen {
		return fmt.Errorf("%w: prefix of %d bytes (at most %d)", lock.ErrInvalid, len(prefix), maxPrefixLen)
	}
	if _, after, found := strings.Cut(prefix, "{"); found && strings.HasPrefix(after, "}") {
		return fmt.Errorf("%w: prefix %q: its empty braces would spread a lock's keys over a Cluster; leave them out", lock.ErrInvalid, prefix)
	}
	return nil
}
