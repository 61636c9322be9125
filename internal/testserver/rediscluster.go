package testserver

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisCluster is a Redis Cluster of masters that share all slots.
type RedisCluster struct{ Nodes []*Redis }

// clusterSlots is how many there are in every Redis Cluster.
const clusterSlots = 16384

// StartRedisCluster starts a cluster of that many masters and returns when each
// of them finds it well. The slots are given out in equal ranges, in the order
// of Nodes.
func StartRedisCluster(ctx context.Context, masters int) (_ *RedisCluster, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c := &RedisCluster{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	if c.Nodes, err = startGroup(ctx, masters, RedisOptions{Cluster: true}); err != nil {
		return nil, err
	}
	for i, n := range c.Nodes {
		first, last := i*clusterSlots/masters, (i+1)*clusterSlots/masters-1
		err := n.do(func(node *redis.Client) error {
			// Epochs are set first: nodes that meet with the same one would
			// spend seconds to settle which is the newer.
			if err := node.Do(ctx, "cluster", "set-config-epoch", i+1).Err(); err != nil {
				return err
			}
			if err := node.ClusterAddSlotsRange(ctx, first, last).Err(); err != nil {
				return err
			}
			if i == 0 {
				return nil
			}
			return node.ClusterMeet(ctx, c.Nodes[0].Host(), strconv.Itoa(c.Nodes[0].Port())).Err()
		})
		if err != nil {
			return nil, fmt.Errorf("make node %s a member of the cluster: %w", n.Addr(), err)
		}
	}
	for _, n := range c.Nodes {
		if err := n.await(ctx, "the cluster is well", n.clusterIsWell(masters)); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// NeedRedisCluster is StartRedisCluster for a test, as NeedRedis is.
func NeedRedisCluster(t testing.TB, masters int) *RedisCluster {
	t.Helper()
	c, err := StartRedisCluster(t.Context(), masters)
	if err != nil {
		skipOrFail(t, "redis", redisCure, err)
	}
	endWith(t, c.Stop)
	return c
}

// Addrs are the addresses of all nodes.
func (c *RedisCluster) Addrs() []string { return addrs(c.Nodes) }

// Stop ends all nodes.
func (c *RedisCluster) Stop() error { return stopAll(c.Nodes) }

// clusterIsWell looks from one node: it knows every master, and all slots are
// served.
func (r *Redis) clusterIsWell(masters int) func(context.Context, *redis.Client) (bool, error) {
	return func(ctx context.Context, node *redis.Client) (bool, error) {
		info, err := node.ClusterInfo(ctx).Result()
		if err != nil {
			return false, err
		}
		return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_size:%d\r", masters)), nil
	}
}

// startGroup starts n servers that reach each other, all from the same way: from
// the environment none come, since every one has an option.
func startGroup(ctx context.Context, n int, o RedisOptions) (_ []*Redis, err error) {
	var group []*Redis
	defer func() {
		if err != nil {
			err = errors.Join(err, stopAll(group))
		}
	}()
	o.room = max(o.room, n)
	for range n {
		r, err := StartRedis(ctx, o)
		if err != nil {
			return nil, err
		}
		group = append(group, r)
		if o.near == nil {
			o.near = r
		}
	}
	return group, nil
}

func addrs(servers []*Redis) []string {
	a := make([]string, len(servers))
	for i, r := range servers {
		a[i] = r.Addr()
	}
	return a
}

func stopAll(servers []*Redis) error {
	var errs []error
	for _, r := range servers {
		errs = append(errs, r.Stop())
	}
	return errors.Join(errs...)
}

// do runs fn with a client of this server alone.
func (r *Redis) do(fn func(*redis.Client) error) error {
	o := &redis.Options{Addr: r.addr, MaxRetries: -1, DialerRetries: 1, DialTimeout: time.Second}
	if r.certs != nil {
		var err error
		if o.TLSConfig, err = r.certs.Client(); err != nil {
			return err
		}
	}
	c := redis.NewClient(o)
	return errors.Join(fn(c), c.Close())
}

// await polls this server until ok says true, or ctx ends.
func (r *Redis) await(ctx context.Context, what string, ok func(context.Context, *redis.Client) (bool, error)) error {
	return r.do(func(c *redis.Client) error {
		poll := time.NewTicker(10 * time.Millisecond)
		defer poll.Stop()
		for {
			good, err := ok(ctx, c)
			if good {
				return nil
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("waited on %s until %s: %w (last: %w)", r.addr, what, context.Cause(ctx), err)
			case <-poll.C:
			}
		}
	})
}
