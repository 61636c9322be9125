package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/interlock-go/lock"
)

// advice is for the answers that do not pass by themselves. The servers refuse
// such a request before they do anything of it.
var advice = []struct {
	err  error
	text string
}{
	{rpctypes.ErrAuthFailed, "wrong user or password"},
	{rpctypes.ErrUserEmpty, "the servers want a user: etcd://user:password@host"},
	{rpctypes.ErrAuthNotEnabled, "the URL has a user, and authentication is not enabled at the servers"},
	{rpctypes.ErrPermissionDenied, "the user's rights do not suffice: see package etcd, “Rights”"},
	{rpctypes.ErrNoSpace, "the servers' space is used up: compact, defragment, and disarm the alarm"},
	{rpctypes.ErrTooManyOps, "the servers allow fewer than 100 operations in a transaction (--max-txn-ops)"},
}

// mapped says of a client's error whether it can pass by itself. The error stays
// reachable.
func mapped(err error) error {
	if err == nil {
		return nil
	}
	for _, a := range advice {
		if errors.Is(err, a.err) {
			return fmt.Errorf("%s: %w", a.text, err)
		}
	}
	if lasting(err) {
		return err
	}
	return fmt.Errorf("%w: %w", lock.ErrUnavailable, err)
}

// refused reports whether the servers refused the request, so that it surely did
// nothing.
func refused(err error) bool {
	for _, a := range advice {
		if errors.Is(err, a.err) {
			return true
		}
	}
	return errors.Is(err, rpctypes.ErrLeaseNotFound)
}

// lasting reports whether an error of the connection will not pass by itself.
func lasting(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return false
	}
	var badCertificate *tls.CertificateVerificationError
	if errors.As(err, &badCertificate) {
		return true
	}
	s, ok := status.FromError(err)
	return ok && s.Code() == codes.Unavailable && strings.Contains(s.Message(), "authentication handshake failed: tls: ")
}
