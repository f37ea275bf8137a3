"""What has to be done with whole streams in one step, in Lua, as Redis runs it.

One rule: all or none of what is published is stored. Knows no groups.
"""

from typing import Final

from node.bus.redis.script import script

# KEYS: streams, then idempotency keys. ARGV: how many streams, for how long keys are kept (ms), and
# for each event: the number of its stream's key, that of its idempotency key (0: none), and how
# many words of XADD follow, which do. Answers of each event its id and whether it is a duplicate.
PUBLISH: Final = script(
    """
local streams, window = tonumber(ARGV[1]), ARGV[2]
for number = 1, streams do
  local kind = redis.call('TYPE', KEYS[number]).ok
  if kind ~= 'stream' and kind ~= 'none' then
    return redis.error_reply('WRONGTYPE ' .. KEYS[number] .. ' is no stream')
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

# KEYS: a stream. ARGV: the least age to be taken away (ms; empty: none), the most bytes (empty:
# any), `~` or `=`.
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

# KEYS: a stream. ARGV: the id after which, and how many at most. Answers how many there are; a few
# at a time, since each is read whole.
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
