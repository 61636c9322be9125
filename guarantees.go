package lock

import (
	"fmt"
	"strings"
	"time"
)

// Guarantees is what a Locker promises at least. It is settled in New and does
// not change; it is comparable.
type Guarantees struct {
	Backend  string        // the backend's name, as in error texts: "redis", "etcd", …
	Fencing  Fencing       // how far its tokens can be trusted, when asked for with WithToken
	Ends     Ends          // what ends a dead holder's lock
	MinTTL   time.Duration // the shortest TTL it accepts
	MaxTTL   time.Duration // the longest TTL it accepts
	FIFO     bool          // waiters of different processes get the lock in the order in which they came
	Shared   bool          // shared (reader) locks
	Slots    bool          // semaphores: up to n holders
	Extend   bool          // Handle.Extend may change the TTL; if false it only confirms with the same TTL
	Survives Faults        // faults of the store that let no second holder in and take no lock away
}

// Ends says what ends the lock of a holder that died or was cut off.
type Ends uint8

// What ends a dead holder's lock.
const (
	EndsClock   Ends = iota // a timer at the store: a TTL, a lease or a session time-out. Handles have a deadline
	EndsSession             // the store, when it sees the connection end; no timer. Handles have no deadline
	EndsProcess             // the operating system, when the process ends. Handles have no deadline; a stopped holder keeps its lock
)

func (e Ends) String() string {
	switch e {
	case EndsClock:
		return "clock"
	case EndsSession:
		return "session"
	case EndsProcess:
		return "process"
	}
	return fmt.Sprintf("Ends(%d)", uint8(e))
}

// Faults is a set of faults of the store.
type Faults uint8

// Faults of the store, as bits of a set.
const (
	FaultRestart   Faults = 1 << iota // the server, or all servers, crash and start again
	FaultServer                       // one server of several is lost for good, with fail-over to the others
	FaultPartition                    // the servers are cut off from each other
	FaultClock                        // a server's wall clock jumps
)

func (f Faults) String() string {
	if f == 0 {
		return "none"
	}
	var s []string
	for i, name := range [...]string{"restart", "server loss", "partition", "clock jump"} {
		if f&(1<<i) != 0 {
			s = append(s, name)
		}
	}
	return strings.Join(s, ", ")
}

// Fencing says how far a token can be trusted never to go back.
type Fencing uint8

// Levels of trust in a token, from none to the strongest.
const (
	FencingNone      Fencing = iota // no token
	FencingVolatile                 // a counter that a restart or a fail-over of its server can set back (Redis)
	FencingDurable                  // ordered by one server's durable log (Postgres, file): a fail-over to an asynchronous replica can set it back
	FencingConsensus                // ordered by a replicated log (etcd revision, ZooKeeper zxid)
)

var fencingNames = [...]string{"none", "volatile", "durable", "consensus"}

func (f Fencing) String() string {
	if int(f) < len(fencingNames) {
		return fencingNames[f]
	}
	return fmt.Sprintf("Fencing(%d)", uint8(f))
}

// MarshalText implements [encoding.TextMarshaler].
func (f Fencing) MarshalText() ([]byte, error) {
	if int(f) >= len(fencingNames) {
		return nil, fmt.Errorf("%w: %v is no fencing level", ErrInvalid, f)
	}
	return []byte(fencingNames[f]), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler]: none, volatile, durable
// or consensus.
func (f *Fencing) UnmarshalText(text []byte) error {
	for i, name := range fencingNames {
		if string(text) == name {
			*f = Fencing(i)
			return nil
		}
	}
	return fmt.Errorf("%w: fencing level %q (have %s)", ErrInvalid, text, strings.Join(fencingNames[:], ", "))
}
