package redis

import (
	"context"
	"fmt"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// runAll sends a script many times in one flight, or one to each master of a
// Cluster.
func (b *backend) runAll(ctx context.Context, s *script, calls []call, answer func(i int, reply any, err error)) {
	if b.replicas == 0 {
		b.flight(ctx, b.client, s, calls, answer)
		return
	}
	// WAIT counts for the connection that it is sent on, so each master has a
	// flight of its own.
	masters := make(map[goredis.Cmdable][]int)
	for i, c := range calls {
		node, err := b.node(ctx, c)
		if err != nil {
			answer(i, nil, err)
			continue
		}
		masters[node] = append(masters[node], i)
	}
	var flights sync.WaitGroup
	for node, indexes := range masters {
		flights.Go(func() {
			part := make([]call, len(indexes))
			for i, at := range indexes {
				part[i] = calls[at]
			}
			b.flight(ctx, node, s, part, func(i int, reply any, err error) { answer(indexes[i], reply, err) })
		})
	}
	flights.Wait()
}

// flight sends the calls in one pipeline, and those whose script the server did
// not have in a second one.
func (b *backend) flight(ctx context.Context, node goredis.Cmdable, s *script, calls []call, answer func(i int, reply any, err error)) {
	cmds := b.pipe(ctx, node, "evalsha", s.sha, s, calls)
	var again []int
	for i, cmd := range cmds {
		if goredis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			again = append(again, i)
			continue
		}
		answer(i, cmd.Val(), cmd.Err())
	}
	if again == nil {
		return
	}
	part := make([]call, len(again))
	for i, at := range again {
		part[i] = calls[at]
	}
	for i, cmd := range b.pipe(ctx, node, "eval", s.source, s, part) {
		answer(again[i], cmd.Val(), cmd.Err())
	}
}

// pipe sends the calls, and with replicas one WAIT behind them on the same
// connection, which counts for them all.
func (b *backend) pipe(ctx context.Context, node goredis.Cmdable, verb string, text any, s *script, calls []call) []command {
	cmds := make([]command, len(calls))
	pipeline := node.Pipeline()
	for i, c := range calls {
		cmds[i] = c.command(ctx, verb, text)
		pipeline.Process(ctx, cmds[i]) //nolint:errcheck // each command has its own
	}
	if b.replicas == 0 || s.promises == nil {
		pipeline.Exec(ctx) //nolint:errcheck // as above
		return cmds
	}
	wait := command{goredis.NewCmd(ctx, "wait", b.replicas, b.replicaWait.Milliseconds())}
	pipeline.Process(ctx, wait) //nolint:errcheck // as above
	pipeline.Exec(ctx)          //nolint:errcheck // as above
	n, err := wait.Int()
	if err == nil && n >= b.replicas {
		return cmds
	}
	for _, cmd := range cmds {
		if cmd.Err() == nil && s.promises(cmd.Val()) {
			cmd.SetErr(&replicasError{n, b.replicas, b.replicaWait, err})
		}
	}
	return cmds
}

// replicasError says that the server did what it was asked, but that too few
// replicas confirmed it.
type replicasError struct {
	n, of  int
	within time.Duration
	err    error // of WAIT itself
}

func (e *replicasError) Error() string {
	if e.err != nil {
		return "waiting for replicas: " + e.err.Error()
	}
	return fmt.Sprintf("%d of %d replicas confirmed within %v", e.n, e.of, e.within)
}

func (e *replicasError) Unwrap() error { return e.err }

// node returns the client of the one server that a call's keys are on.
func (b *backend) node(ctx context.Context, c call) (goredis.Cmdable, error) {
	cluster, ok := b.client.(*goredis.ClusterClient)
	if !ok {
		return b.client, nil
	}
	return cluster.MasterForKey(ctx, *c[3].(*string)) //nolint:forcetypeassert // the first key, always sent so
}

// runReplicated sends one script, and WAIT behind it on the same connection.
func (b *backend) runReplicated(ctx context.Context, s *script, c call) (reply any, err error) {
	b.runAll(ctx, s, []call{c}, func(_ int, r any, e error) { reply, err = r, e })
	if cluster, ok := b.client.(*goredis.ClusterClient); ok && goredis.HasErrorPrefix(err, "MOVED") {
		cluster.ReloadState(ctx)
	}
	return reply, err
}
