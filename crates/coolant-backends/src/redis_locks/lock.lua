-- One change of a leaky lock, or a look at it. It is `coolant_core::lock::Lock::on`, where Redis keeps the time.
--
-- KEYS[1]  the lock: exactly what `SET key token NX PX ttl` makes. `cooling:` or `closed:` before the token of
--          whoever failed
-- KEYS[2]  the note beside it: to which value it belongs, who has the lock, what failed
-- KEYS[3]  the newest token of all locks
-- ARGV[1]  what to do, ARGV[2..] with what
-- Answers  what came of it, the time in ms, and the lock: value, ms left, holder, reason; false for none

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- A value is never nil, so that the answer has no gaps. A key that is no string is somebody's, too.
local function value()
    local kind = redis.call('TYPE', KEYS[1])['ok']
    if kind == 'string' then return redis.call('GET', KEYS[1]) end
    return kind ~= 'none' and '?' or false
end

local function answer(outcome)
    local found = value()
    local note = redis.call('HMGET', KEYS[2], 'value', 'holder', 'reason')
    local ours = found and note[1] == found
    return {
        outcome, now, found, found and redis.call('PTTL', KEYS[1]) or -1,
        ours and note[2] or false, ours and note[3] or false
    }
end

-- The note goes with its lock; without it the lock is the same, told less.
local function note(text, ms, ...)
    redis.call('HSET', KEYS[2], 'value', text, ...)
    if ms then redis.call('PEXPIRE', KEYS[2], ms) else redis.call('PERSIST', KEYS[2]) end
end

local what, token, found = ARGV[1], ARGV[2], value()

if what == 'look' then return answer('ok') end

if what == 'acquire' then
    if found then return answer('taken') end
    local holder, ttl = ARGV[2], ARGV[3]
    -- By the clock, where it is ahead: tokens grow also over a server that came back empty.
    local new = math.max((tonumber(redis.call('GET', KEYS[3])) or 0) + 1, now)
    token = string.format('%.0f', new)
    redis.call('SET', KEYS[3], token)
    redis.call('SET', KEYS[1], token, 'NX', 'PX', ttl)
    redis.call('DEL', KEYS[2])
    note(token, ttl, 'holder', holder)
    return answer('ok')
end

if what == 'open' then
    redis.call('DEL', KEYS[1], KEYS[2])
    return answer('ok')
end

-- Others may set the key to anything, also to what looks like a token.
local is_held = found == token and redis.call('HGET', KEYS[2], 'value') == token

if what == 'renew' then
    if not is_held then return answer('lost') end
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
    redis.call('PEXPIRE', KEYS[2], ARGV[3])
    return answer('ok')
end

if what == 'succeed' then
    local freed = 'free:' .. token
    if is_held then
        redis.call('DEL', KEYS[1], KEYS[2])
        note(freed, ARGV[3])
    elseif found or redis.call('HGET', KEYS[2], 'value') ~= freed then
        return answer('lost')
    end
    return answer('ok')
end

-- fail
local cooling, closed = 'cooling:' .. token, 'closed:' .. token
if found == cooling or found == closed then return answer('ok') end
if not is_held then return answer('lost') end
local reason, cooldown = ARGV[3], ARGV[4]
if cooldown == 'permanent' then
    redis.call('SET', KEYS[1], closed)
    note(closed, nil, 'reason', reason)
elseif cooldown == '0' then
    redis.call('DEL', KEYS[1], KEYS[2])
else
    redis.call('SET', KEYS[1], cooling, 'KEEPTTL')
    if cooldown ~= 'rest' then redis.call('PEXPIRE', KEYS[1], cooldown) end
    note(cooling, math.max(redis.call('PTTL', KEYS[1]), 1), 'reason', reason)
end
return answer('ok')
