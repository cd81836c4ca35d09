-- The job's upstreams as its spec has them, as a gate.
CREATE FUNCTION coolant.submit_gate(spec text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(string_agg(name, chr(31) ORDER BY name COLLATE "C"), '')
    FROM (SELECT DISTINCT value AS name FROM json_array_elements_text(spec::json -> 'upstreams')) AS names
$$;
REVOKE ALL ON FUNCTION coolant.submit_gate(text) FROM PUBLIC;

UPDATE jobs SET gate = coolant.submit_gate(s.spec) FROM job_specs s
WHERE s.job_id = jobs.id AND s.spec NOT LIKE '{"upstreams":[],%';

ALTER TABLE lines ADD COLUMN gate TEXT NOT NULL DEFAULT '';
ALTER TABLE lines DROP CONSTRAINT lines_pkey;
ALTER TABLE lines ADD PRIMARY KEY (queue, job_type, priority, gate, writer);
INSERT INTO lines (queue, job_type, priority, gate)
SELECT DISTINCT queue, job_type, priority, gate FROM jobs WHERE gate <> '';

-- As before, with the gate.
CREATE OR REPLACE FUNCTION coolant.submit_job(
    new_id text, in_queue text, of_type text, of_tenant text, with_lock_key text, at_priority bigint,
    due_ms bigint, ends_ms bigint, now_ms bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    behind text := (SELECT coolant.submit_gate(s.spec) FROM coolant.job_specs s WHERE s.job_id = new_id);
BEGIN
    INSERT INTO coolant.jobs (
        id, queue, job_type, tenant, lock_key, priority, gate, status, due_at, wait, gives_up_at,
        claims, executions, tries, lost, releases, deferrals, timeouts, invalid_outputs,
        calls, input_tokens, output_tokens, cost_nanos, wasted_nanos, version, created_at, updated_at)
    VALUES (
        new_id, in_queue, of_type, of_tenant, with_lock_key, at_priority, behind, 'PENDING',
        greatest(due_ms, now_ms), 'start', ends_ms, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, now_ms, now_ms);
    INSERT INTO coolant.lines (queue, job_type, priority, gate, writer)
    SELECT in_queue, of_type, at_priority, behind, -pg_backend_pid()
    WHERE NOT EXISTS (SELECT 1 FROM coolant.lines l WHERE l.queue = in_queue AND l.job_type = of_type
                      AND l.priority = at_priority AND l.gate = behind)
    ON CONFLICT DO NOTHING;
END $$;
