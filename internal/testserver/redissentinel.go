package testserver

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// SentinelMaster is the name under which Sentinels know their master.
const SentinelMaster = "main"

// sentinelFile is the configuration that a Sentinel keeps in its folder.
const sentinelFile = "sentinel.conf"

// RedisSentinels is a master with replicas, and Sentinels that watch them. They
// take a master for dead after 0.5 s of silence.
type RedisSentinels struct {
	Master    *Redis // at the start
	Replicas  []*Redis
	Sentinels []*Redis
}

// StartRedisSentinels starts them and returns when every Sentinel knows all the
// others and all replicas. A fail-over needs the greater half of the Sentinels.
func StartRedisSentinels(ctx context.Context, replicas, sentinels int) (_ *RedisSentinels, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	s := &RedisSentinels{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	if s.Master, err = StartRedis(ctx, RedisOptions{Own: true, room: 1 + replicas + sentinels}); err != nil {
		return nil, err
	}
	if s.Replicas, err = startGroup(ctx, replicas, RedisOptions{ReplicaOf: s.Master, near: s.Master}); err != nil {
		return nil, err
	}
	// A Sentinel learns of replicas from its master every 10 s: those that are
	// there before it starts, it finds at once.
	if err := s.Master.await(ctx, "all replicas are linked", s.Master.hasReplicas(replicas)); err != nil {
		return nil, err
	}
	if s.Sentinels, err = startGroup(ctx, sentinels, RedisOptions{sentinel: sentinelConfig(s.Master, sentinels/2+1), near: s.Master}); err != nil {
		return nil, err
	}
	for _, r := range s.Sentinels {
		if err := r.await(ctx, "the Sentinel knows all others", r.sentinelKnows(replicas, sentinels)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// NeedRedisSentinels is StartRedisSentinels for a test, as NeedRedis is.
func NeedRedisSentinels(t testing.TB, replicas, sentinels int) *RedisSentinels {
	t.Helper()
	s, err := StartRedisSentinels(t.Context(), replicas, sentinels)
	if err != nil {
		skipOrFail(t, "redis", redisCure, err)
	}
	endWith(t, s.Stop)
	return s
}

// Addrs are the addresses of the Sentinels.
func (s *RedisSentinels) Addrs() []string { return addrs(s.Sentinels) }

// Stop ends all servers, the Sentinels first: they would order a fail-over.
func (s *RedisSentinels) Stop() error {
	errs := []error{stopAll(s.Sentinels), stopAll(s.Replicas)}
	if s.Master != nil {
		errs = append(errs, s.Master.Stop())
	}
	return errors.Join(errs...)
}

func sentinelConfig(master *Redis, quorum int) string {
	return fmt.Sprintf(`sentinel announce-ip 127.0.0.1
sentinel monitor %[1]s %[2]s %[3]d %[4]d
sentinel down-after-milliseconds %[1]s 500
sentinel failover-timeout %[1]s 3000
`, SentinelMaster, master.Host(), master.Port(), quorum)
}

// hasReplicas looks whether that many are linked and in step.
func (r *Redis) hasReplicas(n int) func(context.Context, *redis.Client) (bool, error) {
	return func(ctx context.Context, c *redis.Client) (bool, error) {
		reached, err := c.Wait(ctx, n, 100*time.Millisecond).Result()
		return int(reached) >= n, err
	}
}

// sentinelKnows looks whether a Sentinel has found all replicas and the others.
func (r *Redis) sentinelKnows(replicas, sentinels int) func(context.Context, *redis.Client) (bool, error) {
	return func(ctx context.Context, c *redis.Client) (bool, error) {
		m, err := c.Do(ctx, "sentinel", "master", SentinelMaster).Result()
		if err != nil {
			return false, err
		}
		state, ok := m.(map[any]any)
		if !ok {
			return false, fmt.Errorf("sentinel master: an answer of type %T", m)
		}
		return state["num-slaves"] == strconv.Itoa(replicas) && state["num-other-sentinels"] == strconv.Itoa(sentinels-1), nil
	}
}
