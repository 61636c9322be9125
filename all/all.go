// Package all makes every URL scheme known to [lock.Open]. Import it for its
// effect alone:
//
//	import _ "github.com/interlock-go/lock/all"
//
// It links the clients of all stores. A program that uses one store imports that
// store's package instead.
package all

import (
	_ "github.com/interlock-go/lock/etcd"
	_ "github.com/interlock-go/lock/file"
	_ "github.com/interlock-go/lock/memory"
	_ "github.com/interlock-go/lock/redis"
)
