package redis

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock"
)

// passing are the replies that say that the server cannot serve now. What they
// mean stands in the server's own text, which is kept.
var passing = []string{
	"LOADING", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "MISCONF", "OOM", "NOREPLICAS",
	"BUSY", "MOVED", "ASK", "ERR max number of clients reached",
}

// advice is for the replies that do not pass by themselves.
var advice = []struct {
	reply, text string
	kind        error
}{
	{"NOAUTH", "the server wants a password: redis://user:password@host", nil},
	{"ERR Protocol error: unauthenticated", "the server wants a password: redis://user:password@host", nil},
	{"WRONGPASS", "wrong user or password", nil},
	{"NOPERM", "the user's rights do not suffice: see package redis, “Rights”", nil},
	{"ERR The user executing the script can't", "the user's rights do not suffice: see package redis, “Rights”", nil},
	{"WRONGTYPE", "a key of this lock holds something that is not Interlock's: choose another prefix", nil},
	{"redis: nil", "the Sentinels know no master of that name", nil},
	{"CROSSSLOT", "this is a proxy or a Cluster that splits a lock's keys", lock.ErrUnsupported},
	{"ERR unknown command", "Redis 6 or newer is needed", lock.ErrUnsupported},
	{"ERR value is not an integer", "the counter of the tokens holds something that is not Interlock's", nil},
}

// mapped says of a client's error whether it can pass by itself. The server's
// own error stays reachable.
func mapped(err error) error {
	if err == nil {
		return nil
	}
	var reply goredis.Error
	if !errors.As(err, &reply) {
		if errors.Is(err, lock.ErrUnsupported) || lasting(err) {
			return err
		}
		return fmt.Errorf("%w: %w", lock.ErrUnavailable, err)
	}
	text := reply.Error()
	for _, p := range passing {
		if hasCode(text, p) {
			return fmt.Errorf("%w: %w", lock.ErrUnavailable, err)
		}
	}
	for _, a := range advice {
		if !hasCode(text, a.reply) {
			continue
		}
		if a.kind != nil {
			return fmt.Errorf("%w: %s: %w", a.kind, a.text, err)
		}
		return fmt.Errorf("%s: %w", a.text, err)
	}
	return err
}

// hasCode finds a reply's code also where Redis 6 wraps it: "ERR Error running
// script (call to f_…): @user_script:2: WRONGTYPE …".
func hasCode(text, code string) bool {
	return strings.HasPrefix(text, code) ||
		strings.HasPrefix(text, "ERR Error running script") && strings.Contains(text, ": "+code)
}

// lasting reports whether a client's own error will not pass by itself.
func lasting(err error) bool {
	var badCertificate *tls.CertificateVerificationError
	var notTLS tls.RecordHeaderError
	return errors.Is(err, goredis.ErrClosed) || errors.As(err, &badCertificate) || errors.As(err, &notTLS)
}

// answered reports whether err came with the server's reply.
func answered(err error) bool {
	var reply goredis.Error
	var few *replicasError
	return errors.As(err, &few) || errors.As(err, &reply)
}

// unsent reports whether a request that failed with err surely did nothing at
// the server.
func unsent(err error) bool {
	var few *replicasError
	if errors.As(err, &few) {
		return false
	}
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial" ||
		errors.Is(err, goredis.ErrPoolTimeout) || errors.Is(err, goredis.ErrPoolExhausted) || errors.Is(err, goredis.ErrClosed) ||
		turnedAway(err)
}

// turnedAway reports whether the server turned the request away before its script
// ran, or at the script's first write. Any other reply may come after a write.
func turnedAway(err error) bool {
	var reply goredis.Error
	if !errors.As(err, &reply) {
		return false
	}
	for _, p := range append([]string{"NOAUTH", "WRONGPASS", "ERR Protocol error: unauthenticated", "redis: nil"}, passing...) {
		if hasCode(reply.Error(), p) {
			return true
		}
	}
	return false
}
