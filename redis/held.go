package redis

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/interlock-go/lock"
)

// heldBy reads the reply {value, time left in ms, place in the queue}.
func heldBy(name string, reply any) (*lock.HeldError, int64, error) {
	if r, ok := reply.([]any); ok && len(r) == 3 {
		value, okValue := r[0].(string)
		left, okLeft := r[1].(int64)
		rank, okRank := r[2].(int64)
		if okValue && okLeft && okRank {
			held := &lock.HeldError{Name: name, Left: time.Duration(max(left, 0)) * time.Millisecond}
			if parts := strings.SplitN(value, " ", 3); len(parts) == 3 { // else not ours to show
				held.Owner = parts[2]
			}
			return held, rank, nil
		}
	}
	return nil, 0, fmt.Errorf("%w: the server answered the script with %T", lock.ErrUnsupported, reply)
}

// lookAgain is when a waiter looks for itself, if nobody tells it: when the
// holder's time has run out, one after the other.
func lookAgain(left time.Duration, rank int64) time.Duration {
	if left <= 0 { // the entry has no end: not ours, or set by hand
		return time.Second
	}
	return left + time.Millisecond + min(time.Duration(rank)*5*time.Millisecond, offerTTL) + rand.N(3*time.Millisecond)
}

// lookOften is for a waiter whom nobody can tell.
func lookOften(left time.Duration) time.Duration {
	often := 100*time.Millisecond + rand.N(100*time.Millisecond)
	if left <= 0 {
		return often
	}
	return min(often, left+time.Millisecond)
}
