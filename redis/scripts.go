package redis

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by it
	"encoding/hex"

	goredis "github.com/redis/go-redis/v9"
)

// script is a Lua script, which the server runs as one step.
type script struct {
	sha, source any // strings, boxed once
	// promises reports whether an answer is one that a fail-over must not take
	// back; nil: none is.
	promises func(answer any) bool
}

func newScript(source string, promises func(answer any) bool) script {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // as above
	return script{hex.EncodeToString(sum[:]), source, promises}
}

// acquireScript takes a free lock and re-takes its own, so sending it twice is
// harmless; both write, so WAIT covers either. It turns an offer into a lock by
// the same rule. If another holds the lock it answers {value, time left, place
// in the queue}, and puts the caller in the queue if it named a channel.
//
// KEYS lock, queue, waiters [, counter]
// ARGV id, owner, ttl, channel, offer, slack; times in ms. Channel is empty if
// the caller does not queue, and "-" if it is to leave the queue.
//
// It answers the token, or 0 if there is no counter.
var acquireScript = newScript(`
local id = ARGV[1]
local head = id .. ' '
local free = not KEYS[4] and redis.call('SET', KEYS[1], head .. '0 ' .. ARGV[2], 'NX', 'PX', ARGV[3])
if free and ARGV[4] == '' then
  return 0 -- by far the most frequent end
end

local held = not free and redis.call('GET', KEYS[1])
if held and string.sub(held, 1, #head) ~= head then
  local left = redis.call('PTTL', KEYS[1])
  if ARGV[4] == '' or ARGV[4] == '-' then
    return {held, left, 0}
  end
  local t = redis.call('TIME')
  local life = math.max(left, 0) + ARGV[5] + ARGV[6]
  redis.call('ZADD', KEYS[2], 'NX', t[1] .. string.format('%06d', t[2]), id)
  redis.call('HSET', KEYS[3], id, string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000) + life)
    .. ' ' .. ARGV[5] .. ' ' .. ARGV[4] .. ' ' .. ARGV[2])
  if redis.call('PTTL', KEYS[2]) < life then
    redis.call('PEXPIRE', KEYS[2], life)
    redis.call('PEXPIRE', KEYS[3], life)
  end
  return {held, left, redis.call('ZRANK', KEYS[2], id)}
end

local token = 0
if KEYS[4] then
  token = held and tonumber(string.match(held, '^%S+ (%d+)')) or 0
  if token == 0 then
    -- The time carries on where a counter was lost with its server's memory.
    local t = redis.call('TIME')
    local most = 9007199254740991 -- from there on numbers have gaps
    local last = tonumber(redis.call('GET', KEYS[4]) or 0)
    token = (last or 0) < most and math.max(redis.call('INCR', KEYS[4]), t[1] * 1000000 + t[2]) or most + 1
    if token > most then
      return redis.error_reply('ERR value is not an integer below 2^53')
    end
    redis.call('SET', KEYS[4], string.format('%.0f', token))
  end
end
if not free then
  local ttl = tonumber(ARGV[3])
  if held then -- the request may be a late copy, which must not cut what was added since
    ttl = math.max(ttl, redis.call('PTTL', KEYS[1]))
  end
  redis.call('SET', KEYS[1], head .. string.format('%.0f', token) .. ' ' .. ARGV[2], 'PX', ttl)
end
if redis.call('ZREM', KEYS[2], id) == 1 then
  redis.call('HDEL', KEYS[3], id)
end
return token
`, func(answer any) bool { _, granted := answer.(int64); return granted })

// renewScript sets the lock's time to live if the lock is the caller's.
//
// If that cuts it, the first waiter, who sleeps until the former end, is told.
//
// KEYS lock [, queue, waiters]
// ARGV id, ttl in ms, "1" if it may become shorter: a late renewal must not cut
// what an extension gave [, prefix of the channels]
//
// It answers 1, or 0 if the lock is not the caller's.
var renewScript = newScript(`
local id = ARGV[1]
local held = redis.call('GET', KEYS[1])
if not held or string.sub(held, 1, #id + 1) ~= id .. ' ' then
  return 0
end
local ttl = tonumber(ARGV[2])
if ARGV[3] ~= '1' then
  ttl = math.max(ttl, redis.call('PTTL', KEYS[1]))
end
redis.call('PEXPIRE', KEYS[1], ttl)
local first = KEYS[2] and redis.call('ZRANGE', KEYS[2], 0, 0)[1]
local entry = first and redis.call('HGET', KEYS[3], first)
local channel = entry and string.match(entry, '^%d+ %d+ (%S+)')
if channel then
  redis.pcall('PUBLISH', ARGV[4] .. channel, string.format('%.0f ', ttl + 1) .. first)
end
return 1
`, func(answer any) bool { return answer == int64(1) })

// releaseScript offers the lock to the next waiter, or frees it; if the lock is
// not the caller's, it takes the caller out of the queue.
//
// An offer is the lock's key with the waiter's id and a short time to live: the
// waiter is told, and takes it with its own acquireScript. The waiter behind is
// told to look again when the offer has run out. On a single server a message
// that nobody heard means a dead waiter, which costs nothing; in a Cluster the
// count is only of one node's subscribers. A waiter past its deadline is told to
// look, but offered nothing: it may be gone, or the server's clock was set.
//
// KEYS lock, queue, waiters
// ARGV id, prefix of the channels, "1" if the count of listeners can be trusted
//
// It answers 1, or 0 if the lock was not the caller's.
var releaseScript = newScript(`
local id = ARGV[1]
local held = redis.call('GET', KEYS[1])
if not held or string.sub(held, 1, #id + 1) ~= id .. ' ' then
  if redis.call('ZREM', KEYS[2], id) == 1 then
    redis.call('HDEL', KEYS[3], id)
  end
  return 0
end
local first = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
if not first then
  redis.call('DEL', KEYS[1])
  return 1
end

local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function tell(waiter, delay)
  local entry = redis.call('HGET', KEYS[3], waiter)
  if not entry or waiter == id then
    return false
  end
  local deadline, offer, channel, owner = string.match(entry, '^(%d+) (%d+) (%S+) (.*)$')
  local heard = redis.pcall('PUBLISH', ARGV[2] .. channel, (delay or 0) .. ' ' .. waiter)
  if type(heard) ~= 'number' then -- the user may not publish
    return nil
  end
  return (heard > 0 or ARGV[3] ~= '1') and tonumber(deadline) >= now and offer, owner
end

while first do
  local offer, owner = tell(first)
  if offer == nil then
    break
  end
  redis.call('ZREM', KEYS[2], first)
  redis.call('HDEL', KEYS[3], first)
  local second = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  if offer then
    redis.call('SET', KEYS[1], first .. ' 0 ' .. owner, 'PX', offer)
    while second and tell(second, offer) == false do
      redis.call('ZREM', KEYS[2], second)
      redis.call('HDEL', KEYS[3], second)
      second = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
    end
    return 1
  end
  first = second
end
redis.call('DEL', KEYS[1])
return 1
`, nil)

// command is a request that go-redis must not send again by itself: whether its
// first copy was carried out is for the caller to find out. It holds on a
// client of the user's too, whatever its MaxRetries is.
type command struct{ *goredis.Cmd }

func (command) NoRetry() bool { return true }

// call is a script's arguments as they are sent: room for the verb and the
// script, the number of keys, the keys, the script's ARGV. Strings and numbers
// go as pointers where they can: go-redis takes them, and they are not boxed.
type call []any

func newCall(args ...any) call { return append(make(call, 2, 2+len(args)), args...) }

func (c call) command(ctx context.Context, verb string, script any) command {
	c[0], c[1] = verb, script
	cmd := goredis.NewCmd(ctx, c...)
	cmd.SetFirstKeyPos(3)
	return command{cmd}
}

// run sends a script, by its digest if the server has it.
func (b *backend) run(ctx context.Context, s *script, c call) (any, error) {
	if b.replicas > 0 {
		return b.runReplicated(ctx, s, c)
	}
	cmd := c.command(ctx, "evalsha", s.sha)
	err := b.client.Process(ctx, cmd)
	if err != nil && goredis.HasErrorPrefix(err, "NOSCRIPT") {
		cmd = c.command(ctx, "eval", s.source)
		err = b.client.Process(ctx, cmd)
	}
	if err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}
