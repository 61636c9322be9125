package redis

import (
	"strconv"
	"strings"
	"sync"
)

// counters names the keys that count the tokens: one for the prefix on a single
// server, and one for each hash slot in a Cluster, where a script reaches only
// the keys of its lock's slot.
//
//	prefixtoken       on a single server, and where the prefix has a hash tag of its own
//	prefix{7f}:token  in a Cluster: the least number, in base 36, whose slot is the lock's
type counters struct {
	prefix  string
	cluster bool

	once sync.Once
	tags []string // by slot
}

func (c *counters) key(lockKey string) string {
	if _, after, opened := strings.Cut(c.prefix, "{"); !c.cluster || opened && strings.Contains(after, "}") {
		return c.prefix + "token"
	}
	c.once.Do(c.fill)
	return c.slotKey(c.tags[slotOf(lockKey)])
}

func (c *counters) slotKey(tag string) string { return c.prefix + "{" + tag + "}:token" }

// fill tries tags until there is one for each slot, which takes some 170,000.
func (c *counters) fill() {
	c.tags = make([]string, slots)
	for n, missing := uint64(0), slots; missing > 0; n++ {
		tag := strconv.FormatUint(n, 36)
		if s := slotOf(c.slotKey(tag)); c.tags[s] == "" {
			c.tags[s] = tag
			missing--
		}
	}
}

// slotOf returns the slot of a Cluster in which a key is.
func slotOf(key string) uint16 {
	var crc uint16 // CRC-16/XMODEM
	for _, c := range []byte(hashTag(key)) {
		crc ^= uint16(c) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
	}
	return crc % slots
}

// hashTag returns the part of a key that a Cluster hashes.
func hashTag(key string) string {
	if _, after, opened := strings.Cut(key, "{"); opened {
		if tag, _, closed := strings.Cut(after, "}"); closed && tag != "" {
			return tag
		}
	}
	return key
}
