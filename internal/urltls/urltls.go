// Package urltls reads the TLS settings of a lock's URL: files for the authority
// that signed the server's certificate, and for a certificate of the client's.
package urltls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/interlock-go/lock"
)

// Config reads the parameters ca, cert and key of a URL whose scheme is secure,
// and returns nil for one of another scheme, where they are a mistake.
func Config(u *lock.URL, secure string) *tls.Config {
	ca, cert, key := u.Str("ca", ""), u.Str("cert", ""), u.Str("key", "")
	if u.Scheme != secure {
		if ca != "" || cert != "" || key != "" {
			u.Mistake("ca, cert and key are for TLS: use %s://", secure)
		}
		return nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		config.RootCAs = x509.NewCertPool()
		if err != nil {
			u.Mistake("parameter %q: %w", "ca", unnamed(err))
		} else if !config.RootCAs.AppendCertsFromPEM(pem) {
			u.Mistake("parameter %q: no certificate in that file", "ca")
		}
	}
	if (cert == "") != (key == "") {
		u.Mistake("cert and key go together")
	} else if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			u.Mistake("parameters %q and %q: %w", "cert", "key", unnamed(err))
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

// unnamed is a file's error without the file's name: somebody may have put the
// key itself where its file belongs.
func unnamed(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return fmt.Errorf("%s the file: %w", path.Op, path.Err)
	}
	return err
}
