package etcd

import (
	"context"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/internal/testserver"
)

func TestConformance(t *testing.T) {
	for _, mode := range []struct {
		name string
		o    testserver.EtcdOptions
	}{
		{"one server", testserver.EtcdOptions{Own: true}},
		{"three servers", testserver.EtcdOptions{Own: true, Members: 3}},
		{"the system's", testserver.EtcdOptions{Own: true, System: true}},
	} {
		t.Run(mode.name, func(t *testing.T) {
			conformance.Run(t, conformance.Subject{
				Start:      func(context.Context) (*conformance.Server, error) { return startForConformance(t, mode.o), nil },
				WithAddr:   func(_, addr string) (string, error) { return "etcd://" + addr, nil },
				ServerAddr: func(url string) (string, error) { return strings.Split(strings.TrimPrefix(url, "etcd://"), ",")[0], nil },
				Without:    []string{"SmallestPool", "Login"}, // there is one connection; see TestUsers
			})
		})
	}
}

func startForConformance(t *testing.T, o testserver.EtcdOptions) *conformance.Server {
	e := testserver.NeedEtcd(t, o)
	admin := adminOf(t, e)
	b := &backend{prefix: defaultPrefix + "/"}
	return &conformance.Server{
		URL: e.URL(), Pause: e.Pause, Resume: e.Resume, Kill: e.Kill, Restart: e.Restart,
		Steal: func(ctx context.Context, name string) error {
			res, err := admin.Get(ctx, b.queue(name), append(clientv3.WithFirstCreate(), clientv3.WithRange(b.queueEnd(name)))...)
			if err != nil || len(res.Kvs) == 0 {
				return err
			}
			_, err = admin.Delete(ctx, string(res.Kvs[0].Key))
			return err
		},
		Residue: func(ctx context.Context, name string) (left []string, err error) {
			for from, end := range map[string]string{b.queue(name): b.queueEnd(name), b.void(""): b.prefix + "\x7f"} {
				res, err := admin.Get(ctx, from, clientv3.WithRange(end), clientv3.WithKeysOnly())
				if err != nil {
					return nil, err
				}
				for _, kv := range res.Kvs {
					left = append(left, string(kv.Key))
				}
			}
			return left, nil
		},
	}
}

func adminOf(t testing.TB, e *testserver.Etcd) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: e.Addrs(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

var _ lock.Backend = (*backend)(nil)
