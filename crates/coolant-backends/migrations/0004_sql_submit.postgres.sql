-- `coolant.submit(...)`: a submit inside the caller's own transaction, with the meaning it has over HTTP.
-- The bounds are those of the engine's submit, the texts those that its `sql/codec` reads; tests hold both.

-- A line that is new in a caller's open transaction must not make others wait for that transaction: each
-- writer of SQL submits has rows of its own. The store itself is writer 0.
ALTER TABLE lines ADD COLUMN writer BIGINT NOT NULL DEFAULT 0;
ALTER TABLE lines DROP CONSTRAINT lines_pkey;
ALTER TABLE lines ADD PRIMARY KEY (queue, job_type, priority, writer);

-- Ends the submit: its code and field in the message, the field also apart as the error's column name.
CREATE FUNCTION coolant.submit_refuse(state text, code text, field text, reason text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = state, MESSAGE = format('%s: `%s` %s', code, field, reason), COLUMN = field;
END $$;

-- A text of so many bytes without control characters: such a text breaks logs and databases.
CREATE FUNCTION coolant.submit_text(field text, value text, low int, high int) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    bytes int := octet_length(convert_to(value, 'UTF8'));
    -- U+0001 to U+001F and U+007F to U+009F, without a backslash, whose meaning is a setting.
    control text := '[' || chr(1) || '-' || chr(31) || chr(127) || '-' || chr(159) || ']';
BEGIN
    IF value IS NULL THEN
        RETURN NULL;
    ELSIF bytes < low THEN
        PERFORM coolant.submit_refuse('CL400', 'INVALID_FIELD', field, 'must not be empty');
    ELSIF bytes > high THEN
        PERFORM coolant.submit_refuse('CL400', 'INVALID_FIELD', field,
            format('has %s bytes; at most %s are allowed', bytes, high));
    ELSIF value ~ control THEN
        PERFORM coolant.submit_refuse('CL400', 'INVALID_FIELD', field, format('holds a control character (U+%s)',
            lpad(upper(to_hex(ascii(substring(value FROM control)))), 4, '0')));
    END IF;
    RETURN value;
END $$;

CREATE FUNCTION coolant.submit_whole(field text, value bigint, low bigint, high bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
    IF value NOT BETWEEN low AND high THEN
        PERFORM coolant.submit_refuse('CL400', 'INVALID_FIELD', field, format('takes %s to %s', low, high));
    END IF;
    RETURN value;
END $$;

-- A span in whole nanoseconds.
CREATE FUNCTION coolant.submit_nanos(field text, seconds double precision, low numeric, high numeric)
RETURNS numeric LANGUAGE plpgsql SET extra_float_digits = 1 AS $$
DECLARE
    span numeric := round(seconds::text::numeric, 9);
BEGIN
    IF span NOT BETWEEN low AND high THEN
        PERFORM coolant.submit_refuse('CL400', 'INVALID_FIELD', field, format('takes %s to %s seconds', low, high));
    END IF;
    RETURN trunc(span * 1000000000);
END $$;

CREATE FUNCTION coolant.submit_span(nanos numeric) RETURNS json LANGUAGE sql AS $$
    SELECT json_build_object('secs', div(nanos, 1000000000), 'nanos', mod(nanos, 1000000000))
$$;

-- An instant in milliseconds; a part of one counts as a whole one, as everywhere.
CREATE FUNCTION coolant.submit_instant(field text, value timestamptz) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    ms numeric := ceil(extract(epoch FROM value) * 1000);
BEGIN
    IF ms NOT BETWEEN -62135596800000 AND 253402300799999 THEN
        PERFORM coolant.submit_refuse('CL400', 'INVALID_FIELD', field, 'takes a time of the years 1 to 9999');
    END IF;
    RETURN ms::bigint;
END $$;

-- JSON with each number as the value that a reader with 64-bit numbers takes it for: whole ones are exact to
-- 64 bits, all others the nearest double.
CREATE FUNCTION coolant.submit_plain(this jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    number numeric;
    nearest double precision;
BEGIN
    CASE jsonb_typeof(this)
    WHEN 'object' THEN
        RETURN (SELECT coalesce(jsonb_object_agg(e.key, coolant.submit_plain(e.value)), this) FROM jsonb_each(this) e);
    WHEN 'array' THEN
        RETURN (SELECT coalesce(jsonb_agg(coolant.submit_plain(e.value) ORDER BY e.ordinality), this)
                FROM jsonb_array_elements(this) WITH ORDINALITY e);
    WHEN 'number' THEN
        number := this::numeric;
        IF position('.' IN number::text) = 0 AND number BETWEEN -9223372036854775808 AND 18446744073709551615 THEN
            RETURN this;
        ELSIF abs(number) < 2.4703282292062327209e-324 THEN
            RETURN '0';
        END IF;
        nearest := number::double precision;
        IF abs(nearest) BETWEEN 9007199254740992 AND 18446744073709549568 THEN
            -- Exact by way of whole numbers: the cast from a double to a numeric keeps 15 digits.
            RETURN to_jsonb(CASE WHEN abs(nearest) < 9000000000000000000 THEN nearest::bigint::numeric
                            ELSE (nearest / 4)::bigint::numeric * 4 END);
        END IF;
        RETURN to_jsonb(nearest::text::numeric);
    ELSE
        RETURN this;
    END CASE;
END $$;

-- Whether two JSON values mean the same. With 15 digits or less a number is the same in every reading.
CREATE FUNCTION coolant.submit_same(a jsonb, b jsonb) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET extra_float_digits = 1 AS $$
BEGIN
    IF a::text ~ '[0-9][0-9.]{15}' OR b::text ~ '[0-9][0-9.]{15}' THEN
        RETURN coolant.submit_plain(a) = coolant.submit_plain(b);
    END IF;
    RETURN a = b;
END $$;

-- The payload as the text that is kept.
CREATE FUNCTION coolant.submit_payload(payload jsonb) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    kept text := payload::text;
    outside text;
    slash text := chr(92) || chr(92);
    bytes int := octet_length(convert_to(kept, 'UTF8'));
BEGIN
    IF bytes > 1048576 THEN
        -- Spaces between values do not count.
        outside := regexp_replace(kept, '"([^"' || slash || ']|' || slash || '.)*"', '', 'g');
        bytes := bytes - length(outside) + length(translate(outside, ' ', ''));
    END IF;
    IF bytes > 1048576 THEN
        PERFORM coolant.submit_refuse('CL413', 'PAYLOAD_TOO_LARGE', 'payload',
            format('has %s bytes; at most 1048576 are allowed', bytes));
    ELSIF length(kept) > 309 AND kept ~ '[0-9]{155}[0-9]{154}' AND jsonb_path_exists(payload,
        'strict $.** ? (@.type() == "number") ? (@ >= 1.7976931348623158079e308 || @ <= -1.7976931348623158079e308)') THEN
        PERFORM coolant.submit_refuse('CL400', 'INVALID_FIELD', 'payload', 'holds a number that no double can hold');
    ELSIF length(kept) - length(translate(kept, '[{', '')) > 126 AND jsonb_path_exists(payload,
        'strict $.**{126 to last} ? (@.type() == "array" || @.type() == "object")') THEN
        PERFORM coolant.submit_refuse('CL400', 'INVALID_FIELD', 'payload', 'is nested deeper than 126 levels');
    END IF;
    RETURN kept;
END $$;

CREATE FUNCTION coolant.submit_upstreams(upstreams text[]) RETURNS json
LANGUAGE plpgsql AS $$
DECLARE
    name text;
    i int := 0;
    names text[] := '{}';
BEGIN
    IF cardinality(upstreams) > 16 THEN
        PERFORM coolant.submit_refuse('CL400', 'INVALID_FIELD', 'upstreams', 'takes at most 16 items');
    END IF;
    FOREACH name IN ARRAY coalesce(upstreams, '{}') LOOP
        PERFORM coolant.submit_text(format('upstreams[%s]', i), coalesce(name, ''), 1, 128);
        IF name <> ALL (names) THEN
            names := names || name;
        END IF;
        i := i + 1;
    END LOOP;
    RETURN array_to_json(names);
END $$;

CREATE FUNCTION coolant.submit_tags(tags jsonb) RETURNS json
LANGUAGE plpgsql AS $$
DECLARE
    tag record;
BEGIN
    IF jsonb_typeof(coalesce(tags, '{}')) <> 'object' THEN
        PERFORM coolant.submit_refuse('CL400', 'INVALID_FIELD', 'tags', 'takes an object of texts');
    ELSIF (SELECT count(*) FROM jsonb_object_keys(tags)) > 64 THEN
        PERFORM coolant.submit_refuse('CL400', 'INVALID_FIELD', 'tags', 'takes at most 64 labels');
    END IF;
    FOR tag IN SELECT e.key, e.value, e.value #>> '{}' AS said FROM jsonb_each(coalesce(tags, '{}')) e LOOP
        PERFORM coolant.submit_text('tags', tag.key, 1, 128);
        IF jsonb_typeof(tag.value) <> 'string' THEN
            PERFORM coolant.submit_refuse('CL400', 'INVALID_FIELD', 'tags.' || tag.key, 'takes a text');
        END IF;
        PERFORM coolant.submit_text('tags.' || tag.key, tag.said, 0, 512);
    END LOOP;
    RETURN coalesce(tags, '{}')::json;
END $$;

-- What the two payloads of a reused key differ in, as the HTTP answer says it; nothing if they mean the same.
CREATE FUNCTION coolant.submit_differences(kept_text text, asked jsonb) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    kept jsonb := kept_text::jsonb;
BEGIN
    IF coolant.submit_same(kept, asked) THEN
        RETURN '{}';
    ELSIF jsonb_typeof(kept) = 'object' AND jsonb_typeof(asked) = 'object' THEN
        RETURN ARRAY(
            SELECT 'payload.' || k FROM (SELECT jsonb_object_keys(kept) UNION SELECT jsonb_object_keys(asked)) AS names(k)
            WHERE NOT coalesce(coolant.submit_same(kept -> k, asked -> k), false) ORDER BY k COLLATE "C" LIMIT 20);
    END IF;
    RETURN '{payload}';
EXCEPTION
    -- What was kept holds a NUL, which no jsonb can.
    WHEN untranslatable_character THEN
        RETURN '{payload}';
END $$;

-- The rest of a spec, as `sql/codec` reads it. Two defaults that no argument changes stand here: max_releases,
-- and what a policy leaves out.
CREATE FUNCTION coolant.submit_spec(
    upstreams json, tags json, trace_id text, expires_at bigint, max_attempts bigint, retry_delays numeric[],
    cooldown numeric, lease numeric, timeout numeric, max_wait numeric, max_lost bigint, max_paid_calls bigint)
RETURNS text LANGUAGE sql AS $$
    SELECT json_build_object(
        'upstreams', upstreams, 'tags', tags, 'trace_id', trace_id, 'expires_at', expires_at,
        'policy', json_build_object(
            'max_attempts', coalesce(max_attempts, 4),
            'retry_delays', (SELECT coalesce(json_agg(coolant.submit_span(delay) ORDER BY i), '[]')
                             FROM unnest(retry_delays) WITH ORDINALITY AS delays(delay, i)),
            'cooldown', coolant.submit_span(coalesce(cooldown, 300e9)),
            'lease', coolant.submit_span(coalesce(lease, 30e9)),
            'timeout', coolant.submit_span(coalesce(timeout, 900e9)),
            'max_wait', coolant.submit_span(coalesce(max_wait, 86400e9)),
            'max_lost', coalesce(max_lost, 3),
            'max_releases', 50,
            'max_paid_calls', max_paid_calls))::text
$$;

CREATE FUNCTION coolant.submit_retry_delays(seconds double precision[]) RETURNS numeric[]
LANGUAGE plpgsql AS $$
BEGIN
    IF cardinality(seconds) > 100 THEN
        PERFORM coolant.submit_refuse('CL400', 'INVALID_FIELD', 'retry_delays_seconds', 'takes at most 100 items');
    END IF;
    RETURN ARRAY(
        SELECT coolant.submit_nanos(format('retry_delays_seconds[%s]', i - 1), coalesce(delay, -1), 0, 2592000)
        FROM unnest(coalesce(seconds, '{5,30,120}')) WITH ORDINALITY AS delays(delay, i) ORDER BY i);
END $$;

CREATE FUNCTION coolant.submit_trace_id(trace_id text) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    IF trace_id !~ '^[0-9a-f]{32}$' OR trace_id ~ '^0+$' THEN
        PERFORM coolant.submit_refuse('CL400', 'INVALID_FIELD', 'trace_id', 'takes 32 hex digits in lower case, not all zero');
    END IF;
    RETURN coalesce(trace_id, replace(gen_random_uuid()::text, '-', ''));
END $$;

-- A UUIDv7 (RFC 9562, with the microseconds in rand_a): newer ones sort later. PostgreSQL has one only from 18 on.
CREATE FUNCTION coolant.submit_id() RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT (lpad(to_hex(us / 1000), 12, '0') || '7' || lpad(to_hex(us % 1000 * 4096 / 1000), 3, '0')
            || right(replace(gen_random_uuid()::text, '-', ''), 16))::uuid::text
    FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS clock(us)
$$;

-- A submit that found its key taken. Each session counts in rows of its own, so that nobody waits for it.
CREATE FUNCTION coolant.submit_count(counter text, line text, amount bigint, now_ms bigint) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO coolant.counters AS c (minute, queue, name, shard, value)
    SELECT now_ms / 60000, line, counter, -pg_backend_pid(), amount WHERE amount > 0
    ON CONFLICT (minute, queue, name, shard) DO UPDATE SET value = c.value + excluded.value
$$;

-- The job of a taken key, if it is the same work. Null if it is gone meanwhile: then the key is free again.
-- Found by an index, also in a session that planned this while the tables were small.
CREATE FUNCTION coolant.submit_existing(of_tenant text, key text, of_type text, asked jsonb, now_ms bigint)
RETURNS text LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    found_job record;
    differ text[];
BEGIN
    SELECT j.id, j.queue, j.job_type, j.status, j.cost_nanos, s.payload INTO found_job
    FROM coolant.job_specs s JOIN coolant.jobs j ON j.id = s.job_id
    WHERE s.tenant = of_tenant AND s.idempotency_key = key;
    IF found_job.id IS NULL THEN
        RETURN NULL;
    END IF;
    differ := coolant.submit_differences(found_job.payload, asked);
    IF found_job.job_type <> of_type THEN
        differ := array_prepend('job_type'::text, differ);
    END IF;
    IF differ <> '{}' THEN
        RAISE EXCEPTION USING ERRCODE = 'CL422', COLUMN = 'idempotency_key',
            MESSAGE = 'IDEMPOTENCY_KEY_REUSED: `idempotency_key` belongs to a job with other parameters',
            DETAIL = format('Job %s differs in %s.', found_job.id, array_to_string(differ, ', ')),
            HINT = 'The same key is the same work: other work needs a key of its own.';
    END IF;
    PERFORM coolant.submit_count('duplicates', found_job.queue, 1, now_ms);
    IF found_job.status = 'SUCCEEDED' THEN
        PERFORM coolant.submit_count('saved_nanos', found_job.queue, found_job.cost_nanos, now_ms);
    END IF;
    RETURN found_job.id;
END $$;

-- A new job and its line.
CREATE FUNCTION coolant.submit_job(
    new_id text, in_queue text, of_type text, of_tenant text, with_lock_key text, at_priority bigint,
    due_ms bigint, ends_ms bigint, now_ms bigint) RETURNS void LANGUAGE sql AS $$
    INSERT INTO coolant.jobs (
        id, queue, job_type, tenant, lock_key, priority, status, due_at, wait, gives_up_at,
        claims, executions, tries, lost, releases, deferrals, timeouts, invalid_outputs,
        calls, input_tokens, output_tokens, cost_nanos, wasted_nanos, version, created_at, updated_at)
    VALUES (
        new_id, in_queue, of_type, of_tenant, with_lock_key, at_priority, 'PENDING', greatest(due_ms, now_ms), 'start',
        ends_ms, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, now_ms, now_ms);
    INSERT INTO coolant.lines (queue, job_type, priority, writer)
    SELECT in_queue, of_type, at_priority, -pg_backend_pid()
    WHERE NOT EXISTS (SELECT 1 FROM coolant.lines l
                      WHERE l.queue = in_queue AND l.job_type = of_type AND l.priority = at_priority)
    ON CONFLICT DO NOTHING
$$;

CREATE FUNCTION coolant.submit(
    job_type text,
    payload jsonb DEFAULT '{}',
    idempotency_key text DEFAULT NULL,
    queue text DEFAULT 'default',
    tenant text DEFAULT 'default',
    lock_key text DEFAULT NULL,
    priority bigint DEFAULT 0,
    run_at timestamptz DEFAULT NULL,
    delay_seconds double precision DEFAULT NULL,
    max_attempts bigint DEFAULT NULL,
    retry_delays_seconds double precision[] DEFAULT NULL,
    cooldown_seconds double precision DEFAULT NULL,
    lease_seconds double precision DEFAULT NULL,
    timeout_seconds double precision DEFAULT NULL,
    max_wait_seconds double precision DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL,
    max_paid_calls bigint DEFAULT NULL,
    upstreams text[] DEFAULT NULL,
    tags jsonb DEFAULT NULL,
    max_lost bigint DEFAULT NULL,
    trace_id text DEFAULT NULL,
    notify boolean DEFAULT false)
RETURNS TABLE (job_id text, outcome text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = coolant, pg_temp AS $$
#variable_conflict use_column
DECLARE
    now_ms bigint := extract(epoch FROM clock_timestamp()) * 1000;
    of_type text := submit_text('job_type', coalesce(submit.job_type, ''), 1, 128);
    asked jsonb := coalesce(submit.payload, '{}');
    key text := submit_text('idempotency_key', submit.idempotency_key, 1, 512);
    in_queue text := submit_text('queue', coalesce(submit.queue, 'default'), 1, 128);
    of_tenant text := submit_text('tenant', coalesce(submit.tenant, 'default'), 1, 128);
    with_lock_key text := submit_text('lock_key', submit.lock_key, 1, 512);
    at_priority bigint := coalesce(submit_whole('priority', submit.priority, -10, 10), 0);
    due_ms bigint := submit_instant('run_at', submit.run_at);
    ends_ms bigint := submit_instant('expires_at', submit.expires_at);
    delay numeric := submit_nanos('delay_seconds', submit.delay_seconds, 0, 31622400);
    kept text := submit_payload(asked);
    spec_text text := submit_spec(
        submit_upstreams(submit.upstreams), submit_tags(submit.tags), submit_trace_id(submit.trace_id), ends_ms,
        submit_whole('max_attempts', submit.max_attempts, 1, 100), submit_retry_delays(submit.retry_delays_seconds),
        submit_nanos('cooldown_seconds', submit.cooldown_seconds, 0, 2592000),
        submit_nanos('lease_seconds', submit.lease_seconds, 0.5, 3600),
        submit_nanos('timeout_seconds', submit.timeout_seconds, 0.1, 2592000),
        submit_nanos('max_wait_seconds', submit.max_wait_seconds, 0, 2592000),
        submit_whole('max_lost', submit.max_lost, 1, 100), submit_whole('max_paid_calls', submit.max_paid_calls, 0, 1000000));
    new_id text := submit_id();
BEGIN
    IF due_ms IS NOT NULL AND delay IS NOT NULL THEN
        PERFORM submit_refuse('CL400', 'INVALID_FIELD', 'delay_seconds', 'must not be given together with `run_at`');
    END IF;
    due_ms := coalesce(due_ms, now_ms + ceil(coalesce(delay, 0) / 1000000));
    FOR round IN 1..10 LOOP
        -- The unique key decides who came first; this waits for a submit of the key that is under way.
        INSERT INTO job_specs (job_id, tenant, idempotency_key, spec, payload)
        VALUES (new_id, of_tenant, key, spec_text, kept) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            PERFORM submit_job(new_id, in_queue, of_type, of_tenant, with_lock_key, at_priority, due_ms, ends_ms, now_ms);
            IF submit.notify THEN
                PERFORM pg_notify('coolant_jobs', '');
            END IF;
            RETURN QUERY SELECT new_id, 'created';
            RETURN;
        END IF;
        job_id := submit_existing(of_tenant, key, of_type, asked, now_ms);
        IF job_id IS NOT NULL THEN
            outcome := 'existing';
            RETURN NEXT;
            RETURN;
        END IF;
    END LOOP;
    RAISE EXCEPTION USING ERRCODE = 'serialization_failure', MESSAGE = 'the key''s job is being removed: try again';
END $$;

-- For nobody but those whom the owner names: GRANT USAGE ON SCHEMA coolant, GRANT EXECUTE ON FUNCTION coolant.submit.
DO $$
DECLARE
    mine regprocedure;
BEGIN
    FOR mine IN SELECT p.oid FROM pg_proc p WHERE p.pronamespace = 'coolant'::regnamespace
                AND (p.proname = 'submit' OR p.proname LIKE 'submit!_%' ESCAPE '!') LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', mine);
    END LOOP;
END $$;
