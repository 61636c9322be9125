// Package testserver gives tests real servers: one whose address stands in the
// environment, else a program on PATH as a child process, else a container.
//
// Tests call a Need function, such as [NeedRedis]: it starts the server, ends it
// with the test, and where no server can be had skips the test by name on
// standard error, or fails it if the environment demands that server. The Start
// functions are for callers without a test, such as the parent process of the
// conformance suite.
//
// The environment decides:
//
//   - INTERLOCK_REDIS_ADDR is the host:port of a running Redis. It is used only
//     by tests that do not need options of their own, and do not stop or pause
//     the server.
//   - INTERLOCK_POSTGRES_URL is the URL of a running Postgres and of a user who
//     may do everything, under the same terms.
//   - INTERLOCK_SERVERS is env, process or container, and leaves only that way.
//   - INTERLOCK_REQUIRE lists servers (redis, postgres, pgbouncer, or all) without which a test
//     fails, where it would be skipped.
//   - INTERLOCK_REDIS_IMAGE is the image of the container way, redis:7 without
//     it; INTERLOCK_POSTGRES_IMAGE is postgres:17. An image is never pulled by a test.
//
// Every server listens on 127.0.0.1 only and dies with the test's process, also
// if that is killed (on Linux; elsewhere a killed test leaves its servers).
//
// Nothing but tests may import this package: it brings a Docker client along.
package testserver
