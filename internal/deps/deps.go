//go:build deps

package deps

import (
	_ "github.com/gofrs/flock"
	_ "github.com/redis/go-redis/v9"
	_ "github.com/spf13/cobra"
	_ "github.com/testcontainers/testcontainers-go"
	_ "golang.org/x/sys/unix"
)
