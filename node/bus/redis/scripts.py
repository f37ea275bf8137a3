"""Lua scripts for atomic operations on streams and groups, and the keys that they use.

Several events are published all or none. A pending event either belongs to a consumer or waits for
redelivery: then it belongs to `NOBODY` and is in the set of due events. A consumer that takes it
from there, Lightbus included, invalidates the entry. Times are those of the server, in
milliseconds. All keys except streams are `parley:bus:...`, which Lightbus ignores.
"""

from hashlib import sha1
from typing import Final, NamedTuple

from parley._node.bus.dead_letters import LONGEST_HISTORY, NOT_ACKNOWLEDGED


class Script(NamedTuple):
    """A script and its SHA-1 digest, which identifies it."""

    text: bytes
    digest: bytes


def script(text: str) -> Script:
    body = text.encode()
    return Script(body, sha1(body, usedforsecurity=False).hexdigest().encode())


PREFIX: Final = "parley:bus"


class GroupKeys(NamedTuple):
    """The keys that a group's scripts accept, in order.

    Attributes:
        stream: the stream itself.
        due: a sorted set of IDs by due time (ms).
        past: a hash that maps IDs to the outcomes of their attempts (JSON).
        counts: a hash with the counters redelivered and dead_lettered.
    """

    stream: str
    due: str
    past: str
    counts: str

    @property
    def own(self) -> tuple[str, str, str]:
        """The keys that only Parley uses."""
        return self.due, self.past, self.counts


def keys_of(key: str, group: str) -> GroupKeys:
    return GroupKeys(
        key,
        f"{PREFIX}:due:{key}:{group}",
        f"{PREFIX}:past:{key}:{group}",
        f"{PREFIX}:counts:{key}:{group}",
    )


def idempotency_key(name: str, key: str) -> str:
    return f"{PREFIX}:key:{name}:{key}"


# Streams.

# KEYS: streams, then idempotency keys. ARGV: the number of streams, how long keys are remembered
# (ms), and for each event: the index of its stream's key, that of its idempotency key (0: none),
# the number of words of XADD that follow, and the words. Returns for each event its ID and whether
# it is a duplicate.
PUBLISH: Final = script(
    """
local streams, window = tonumber(ARGV[1]), ARGV[2]
for number = 1, streams do
  local kind = redis.call('TYPE', KEYS[number]).ok
  if kind ~= 'stream' and kind ~= 'none' then
    return redis.error_reply('WRONGTYPE ' .. KEYS[number] .. ' is not a stream')
  end
end
local published = {}
for number = streams + 1, #KEYS do published[number] = redis.call('GET', KEYS[number]) end
local ids, at = {}, 3
while ARGV[at] do
  local stream = KEYS[tonumber(ARGV[at])]
  local known, words = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local id = known > 0 and published[known]
  if id then
    ids[#ids + 1] = {id, 1}
  else
    id = redis.call('XADD', stream, unpack(ARGV, at + 3, at + 2 + words))
    if known > 0 then
      redis.call('SET', KEYS[known], id, 'PX', window)
      published[known] = id
    end
    ids[#ids + 1] = {id, 0}
  end
  at = at + 3 + words
end
return ids
"""
)

# KEYS: a stream. ARGV: the minimum age of events to delete (ms; empty: any), the maximum size in
# bytes (empty: unlimited), `~` or `=`.
SHRINK: Final = script(
    """
local taken = 0
if ARGV[1] ~= '' then
  local time = redis.call('TIME')
  local oldest = time[1] * 1000 + math.floor(time[2] / 1000) - tonumber(ARGV[1])
  taken = redis.call('XTRIM', KEYS[1], 'MINID', ARGV[3], string.format('%d', math.max(oldest, 0)))
end
if ARGV[2] ~= '' then
  local length = redis.call('XLEN', KEYS[1])
  local size = length > 0 and redis.call('MEMORY', 'USAGE', KEYS[1]) or 0
  local most = tonumber(ARGV[2])
  if size > most then
    local kept = string.format('%d', math.floor(length * most / size))
    taken = taken + redis.call('XTRIM', KEYS[1], 'MAXLEN', ARGV[3], kept)
  end
end
return taken
"""
)

# KEYS: a stream. ARGV: an ID, and the most events to count. Returns how many events follow the ID,
# reading a few at a time.
COUNT: Final = script(
    """
local after, found, most = ARGV[1], 0, tonumber(ARGV[2])
local page
repeat
  local wanted = math.min(100, most - found)
  page = redis.call('XRANGE', KEYS[1], '(' .. after, '+', 'COUNT', wanted)
  found = found + #page
  if #page > 0 then after = page[#page][1] end
until #page < wanted or found >= most
return found
"""
)

# Groups.

# The consumer of events that wait for redelivery, due now or later.
NOBODY: Final = "parley-due"
# How many entries are examined at a time.
PAGE: Final = 1_000

# The channel that announces due events of a group. A message is the key of the stream, a zero byte
# and the group. If an ACL forbids publishing there, consumers check once per second.
DUE_CHANNEL: Final = "parley:bus:due"

_SHARED: Final = f"""
local key, due, past, counts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local group, consumer = ARGV[1], ARGV[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function pending(id)  -- whose it is, for how long, and how often it was handed out
  local found = redis.call('XPENDING', key, group, id, id, 1)[1]
  if found then return found[2], found[3], found[4] end
end

local function held(id)  -- how often it was handed out, if it is the consumer's
  local owner, _, times = pending(id)
  if owner == consumer then return times end
end

local function is_there(id)
  return redis.call('XRANGE', key, id, id, 'COUNT', 1)[1] ~= nil
end

local function forget(id)
  redis.call('ZREM', due, id)
  redis.call('HDEL', past, id)
end

local told = false
local function tell()
  if not told then
    redis.pcall('PUBLISH', '{DUE_CHANNEL}', key .. '\\0' .. group)
    told = true
  end
end

local function make_due(id, times, at)
  redis.call('XCLAIM', key, group, '{NOBODY}', 0, id, 'RETRYCOUNT', times, 'JUSTID')
  redis.call('ZADD', due, at, id)
  if at <= now then tell() end
end

local function failed(id, times, who, text)
  local old = times > 1 and redis.call('HGET', past, id)
  local good, history = pcall(cjson.decode, old or '[]')
  if not good or type(history) ~= 'table' then history = {{}} end  -- by another program
  history[#history + 1] = {{attempt = times, consumer = who, at = now / 1000, error = text}}
  if #history > {LONGEST_HISTORY} then table.remove(history, 2) end
  redis.call('HSET', past, id, cjson.encode(history))
end

local function sort(ids)
  local places = {{}}
  for _, id in ipairs(ids) do
    local ms, number = string.match(id, '^(%d+)-(%d+)$')
    places[id] = {{tonumber(ms), tonumber(number)}}
  end
  table.sort(ids, function(a, b)
    local x, y = places[a], places[b]
    if x[1] ~= y[1] then return x[1] < y[1] end
    return x[2] < y[2]
  end)
end
"""


def _script(text: str) -> Script:
    return script(_SHARED + text)


# ARGV from 3: the most events, the idle time (ms; -1: only the consumer's own events, without due
# ones; -2: the same, without counting the attempt), and the IDs to skip. Returns how many events
# had been trimmed, and the events. Removes the histories of events that are no longer pending, one
# page at a time.
TAKE: Final = _script(
    f"""
local count, idle = tonumber(ARGV[3]), tonumber(ARGV[4])
local not_those, wanted, is_due = {{}}, {{}}, {{}}
for number = 5, #ARGV do not_those[ARGV[number]] = true end
if idle >= 0 then
  local noted = redis.call('HLEN', past)
  if noted > 0 and noted > redis.call('XPENDING', key, group)[1] then
    -- Another program, such as Lightbus, acknowledged events that have a history here.
    for _, id in ipairs(redis.call('HRANDFIELD', past, {PAGE})) do
      local found = redis.pcall('XPENDING', key, group, id, id, 1)  -- it may be no id
      if not found[1] then redis.call('HDEL', past, id) end
    end
  end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, {PAGE})) do
    if pending(id) == '{NOBODY}' then
      wanted[#wanted + 1], is_due[id] = id, true
    else
      redis.call('ZREM', due, id)
    end
  end
end
local from, found, more = '-', 0, true
while more and found < count do
  local words = {{'XPENDING', key, group, 'IDLE', math.max(idle, 0), from, '+', {PAGE}}}
  if idle < 0 then words[#words + 1] = consumer end
  local page = redis.call(unpack(words))
  for _, one in ipairs(page) do
    local id, owner = one[1], one[2]
    from = '(' .. id
    if owner ~= '{NOBODY}' and found < count and not not_those[id] then
      wanted[#wanted + 1], found = id, found + 1
    end
  end
  more = #page == {PAGE}
end
sort(wanted)
local out, lost = {{}}, 0
for number = 1, math.min(count, #wanted) do
  local id = wanted[number]
  local owner, _, times = pending(id)
  local attempt = idle == -2 and times or times + 1
  local entry = redis.call('XCLAIM', key, group, consumer, 0, id, 'RETRYCOUNT', attempt)[1]
  if entry then
    if is_due[id] then
      redis.call('ZREM', due, id)
    elseif attempt > times then
      failed(id, times, owner, '{NOT_ACKNOWLEDGED}')
    end
    if times > 0 and attempt > times then redis.call('HINCRBY', counts, 'redelivered', 1) end
    out[#out + 1] = {{id, attempt, entry[2]}}
  else
    redis.call('XACK', key, group, id)
    forget(id)
    lost = lost + 1
  end
end
return {{lost, out}}
"""
)

# ARGV from 3: IDs.
TOUCH: Final = _script(
    """
for number = 3, #ARGV do
  if held(ARGV[number]) then
    redis.call('XCLAIM', key, group, consumer, 0, ARGV[number], 'JUSTID')
  end
end
"""
)

# ARGV from 3: IDs. Returns the IDs that were pending with the consumer.
RELEASE: Final = _script(
    """
local released = {}
for number = 3, #ARGV do
  local times = held(ARGV[number])
  if times then
    make_due(ARGV[number], math.max(times - 1, 0), now)
    table.insert(released, ARGV[number])
  end
end
return released
"""
)

# ARGV from 3: an ID, the delay in ms, the error.
NACK: Final = _script(
    """
local times = held(ARGV[3])
if not times then return 0 end
failed(ARGV[3], times, consumer, ARGV[5])
make_due(ARGV[3], times, now + tonumber(ARGV[4]))
return 1
"""
)

# ARGV from 3: an ID. Returns its number of deliveries, fields and history, and the time.
LOOK: Final = _script(
    """
local times = held(ARGV[3])
if not times then return nil end
local entry = redis.call('XRANGE', key, ARGV[3], ARGV[3])[1]
if not entry then
  redis.call('XACK', key, group, ARGV[3])
  forget(ARGV[3])
  return {times}
end
return {times, entry[2], times > 1 and redis.call('HGET', past, ARGV[3]) or '', tostring(now)}
"""
)

# KEYS from 5: the stream for dead letters. ARGV from 3: an ID, its number of deliveries, and the
# words of XADD. Returns the ID of the dead letter, or nothing if the event is no longer pending
# with the consumer.
BURY: Final = _script(
    """
local id = ARGV[3]
if held(id) ~= tonumber(ARGV[4]) then return nil end
local letter = redis.call('XADD', KEYS[5], unpack(ARGV, 5))
redis.call('XACK', key, group, id)
forget(id)
redis.call('HINCRBY', counts, 'dead_lettered', 1)
return letter
"""
)

# ARGV from 3: the most events, and the ID that they follow.
PENDING: Final = _script(
    """
local out = {}
for _, one in ipairs(redis.call('XPENDING', key, group, '(' .. ARGV[4], '+', ARGV[3])) do
  local at = redis.call('ZSCORE', due, one[1])
  out[#out + 1] = {one[1], one[2], one[3], one[4], at and math.max(at - now, 0) or -1}
end
return out
"""
)

# ARGV from 3: IDs. Returns those that exist in the stream.
REDELIVER: Final = _script(
    f"""
local out = {{}}
for number = 3, #ARGV do
  local id = ARGV[number]
  if is_there(id) then
    redis.call('XCLAIM', key, group, '{NOBODY}', 0, id, 'FORCE', 'RETRYCOUNT', 0, 'JUSTID')
    redis.call('HDEL', past, id)
    redis.call('ZADD', due, now, id)
    tell()
    out[#out + 1] = id
  end
end
return out
"""
)

# ARGV from 3: the idle time (ms). Returns whether the consumer was removed.
REMOVE_CONSUMER: Final = _script(
    f"""
local found = false
for _, one in ipairs(redis.call('XINFO', 'CONSUMERS', key, group)) do
  local info = {{}}
  for number = 1, #one, 2 do info[one[number]] = one[number + 1] end
  if info.name == consumer and info.idle >= tonumber(ARGV[3]) then found = true end
end
if not found then return 0 end
local page
repeat
  page = redis.call('XPENDING', key, group, '-', '+', {PAGE}, consumer)
  for _, one in ipairs(page) do
    if is_there(one[1]) then
      failed(one[1], one[4], consumer, '{NOT_ACKNOWLEDGED}')
      make_due(one[1], one[4], now)
    else
      redis.call('XACK', key, group, one[1])
      forget(one[1])
    end
  end
until #page == 0
redis.call('XGROUP', 'DELCONSUMER', key, group, consumer)
return 1
"""
)

# ARGV from 3: IDs of deleted events, or `before` and an ID: all events before it. Applies to one
# group.
FORGET: Final = _script(
    f"""
if ARGV[3] ~= 'before' then
  for number = 3, #ARGV do
    redis.call('XACK', key, group, ARGV[number])
    forget(ARGV[number])
  end
  return
end
local page
repeat
  page = redis.call('XPENDING', key, group, '-', '(' .. ARGV[4], {PAGE})
  for _, one in ipairs(page) do
    redis.call('XACK', key, group, one[1])
    forget(one[1])
  end
until #page == 0
"""
)
