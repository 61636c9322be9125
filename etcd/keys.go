package etcd

import "github.com/interlock-go/lock/internal/percent"

// The keys of a lock, as docs/format.md has them:
//
//	prefix/name~id   one acquisition, in the queue or holding; its value is "<ttl in ms> <owner>"
//	prefix/~id       this acquisition was given up: it must not be created any more
//
// A name is percent-encoded, and a tilde is in no encoded name and in no prefix,
// so neither two names nor two prefixes meet.

// queue is what the keys of a name's acquisitions begin with; queueEnd is behind
// them all.
func (b *backend) queue(name string) string    { return b.prefix + encode(name) + "~" }
func (b *backend) queueEnd(name string) string { return b.prefix + encode(name) + "\x7f" }
func (b *backend) void(id string) string       { return b.prefix + "~" + id }

func encode(name string) string { return percent.Encode(name, percent.Marks) }
