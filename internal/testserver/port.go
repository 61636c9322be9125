package testserver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken below the range from which systems give ports to outgoing
// connections, so that none of those takes a server's port while it restarts.
// The cluster bus of a Redis is 10000 above its port: below that range too, and
// above all ports that we give.
const (
	portMin = 10_000
	portMax = 20_000
	busStep = 10_000
)

// freePort is a port of 127.0.0.1 on which nobody listened a moment ago, and
// with bus none listened on the cluster bus's either.
func freePort(ctx context.Context, bus bool) (int, error) {
	for range 200 {
		port := portMin + rand.IntN(portMax-portMin)
		if isFree(ctx, port) && (!bus || isFree(ctx, port+busStep)) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port among 200 tried between %d and %d", portMin, portMax)
}

func isFree(ctx context.Context, port int) bool {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", loopback(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
