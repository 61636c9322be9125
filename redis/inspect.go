package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock"
)

// inspect finds out, at the start, whether the server can carry locks.
func (b *backend) inspect(ctx context.Context, o Options) error {
	cluster, isCluster := b.client.(*goredis.ClusterClient)
	mode, err := b.inspectNode(ctx, b.client, o)
	if err != nil {
		return err
	}
	_, isPlain := b.client.(*goredis.Client)
	switch {
	case mode == "cluster" && isPlain:
		return fmt.Errorf("%w: the server is a member of a Cluster, which a plain Client cannot follow: use a ClusterClient, or ?cluster=true in the URL", lock.ErrUnsupported)
	case mode == "cluster" && !isCluster && b.replicas > 0:
		return fmt.Errorf("%w: Replicas in a Cluster need a ClusterClient, not a %T", lock.ErrUnsupported, b.client)
	case isCluster && mode != "cluster" && mode != "" && cluster.Options().ReadOnly:
		// The server counts its own subscribers only, so waiters there would be
		// taken for dead.
		return fmt.Errorf("%w: a client that reads from replicas subscribes there too, where a release's message is not counted: turn ReadOnly, RouteByLatency and RouteRandomly off", lock.ErrUnsupported)
	case mode == "":
		b.cluster = isCluster // INFO is not permitted
	default:
		b.cluster = mode == "cluster"
	}
	if isCluster {
		err = cluster.ForEachMaster(ctx, func(ctx context.Context, node *goredis.Client) error {
			if _, err := b.inspectNode(ctx, node, o); errors.Is(err, lock.ErrUnsupported) {
				return err
			}
			return nil // a node that is away now is no reason: the others serve
		})
		if err != nil {
			return err
		}
	}
	return b.checkRights(ctx, o)
}

// inspectNode reads one server's mode, and refuses a server that evicts. A user
// who may not call INFO is not refused: the mode is then "".
func (b *backend) inspectNode(ctx context.Context, node goredis.Cmdable, o Options) (mode string, err error) {
	info, err := node.Info(ctx).Result()
	if err != nil {
		if notPermitted(err) {
			return "", nil
		}
		return "", mapped(err)
	}
	if !o.AllowEviction {
		err = checkEviction(info)
	}
	return infoField(info, "redis_mode"), err
}

// checkEviction reads what INFO says of the memory's policy. A server may evict
// whatever it is told not to need; the limit can be set later than the policy.
func checkEviction(info string) error {
	policy := infoField(info, "maxmemory_policy")
	if policy == "" || policy == "noeviction" {
		return nil
	}
	return &evictionError{policy}
}

// evictionError is lock.ErrUnsupported. It does not wrap it: go-redis returns
// what an error of OnConnect wraps in its place.
type evictionError struct{ policy string }

func (e *evictionError) Error() string {
	return lock.ErrUnsupported.Error() + ": the server's maxmemory-policy is " + e.policy +
		", which may evict a lock and let a second holder in: set noeviction, or accept it with AllowEviction (?eviction=allow)"
}

func (e *evictionError) Is(target error) bool { return target == lock.ErrUnsupported }

func infoField(info, field string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// rightsScript tries each command that the scripts use, on keys that do not
// exist and so that nothing stays, and answers the first refusal for lack of a
// right. It answers "-publish" if only that is missing: without it waiters look for
// themselves.
//
// KEYS a lock's, a queue's, a waiters'
// ARGV "1" for tokens, a channel
var rightsScript = newScript(`
local function allowed(...)
  local reply = redis.pcall(...)
  local err = type(reply) == 'table' and reply.err
  if err and (string.find(err, 'NOPERM', 1, true) or string.find(err, 'user executing the script', 1, true) or string.find(err, 'nknown command', 1, true)) then
    return string.lower((...)) .. ': ' .. err
  end
end
return allowed('DEL', KEYS[1]) or allowed('DEL', KEYS[2]) or allowed('DEL', KEYS[3])
  or allowed('GET', KEYS[1]) or allowed('SET', KEYS[1], '', 'XX', 'PX', 1) or allowed('PTTL', KEYS[1])
  or allowed('PEXPIRE', KEYS[1], 1) or allowed('TIME')
  or allowed('ZADD', KEYS[2], 'XX', 1, '') or allowed('ZREM', KEYS[2], '') or allowed('ZRANGE', KEYS[2], 0, 0)
  or allowed('ZRANK', KEYS[2], '') or allowed('HGET', KEYS[3], '') or allowed('HDEL', KEYS[3], '')
  or allowed('HSET', KEYS[3], '', '') or allowed('DEL', KEYS[3])
  or ARGV[1] == '1' and (allowed('INCR', KEYS[1]) or allowed('DEL', KEYS[1]))
  or allowed('PUBLISH', ARGV[2], '') and '-publish' or ''
`, nil)

// checkRights says at the start which right is missing, rather than with a lock
// half taken.
func (b *backend) checkRights(ctx context.Context, o Options) error {
	// The tilde is not in any lock's key: encode escapes it.
	k := keys{lock: o.Prefix + "{~" + rand.Text() + "}"}
	k.queue, k.waiters = k.lock+queueSuffix, k.lock+waitersSuffix
	counter := "0"
	if o.Counter {
		counter = "1"
	}
	c := newCall(3, &k.lock, &k.queue, &k.waiters, counter, b.channels+"rights")
	cmd := c.command(ctx, "eval", rightsScript.source)
	err := b.client.Process(ctx, cmd)
	if err == nil {
		cmd = c.command(ctx, "evalsha", rightsScript.sha)
		err = b.client.Process(ctx, cmd)
	}
	if err != nil {
		return mapped(err)
	}
	missing, err := cmd.Text()
	if b.mute = missing == "-publish"; err == nil && missing != "" && !b.mute {
		return fmt.Errorf("the server refuses %s: see package redis, “Rights”", missing)
	}
	return nil
}

func notPermitted(err error) bool {
	var reply goredis.Error
	return errors.As(err, &reply) && hasCode(reply.Error(), "NOPERM")
}

// lookAgainForEviction is for the caller's client, whose new connections we do
// not see: the subscription was made anew, perhaps with another server.
func (b *backend) lookAgainForEviction(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	info, err := b.client.Info(ctx).Result()
	if err != nil {
		return // the next look, or the lock's own request, will say why
	}
	err = checkEviction(info)
	b.evicts.Store(&err)
}

// refuseEviction is for our own client: it looks at each new connection.
func refuseEviction(ctx context.Context, c *goredis.Conn) error {
	info, err := c.Info(ctx, "memory").Result()
	if err != nil {
		if answered(err) {
			return nil // not permitted, or still loading
		}
		return err
	}
	return checkEviction(info)
}
