CREATE INDEX jobs_waiting ON jobs (queue, job_type, gate, priority, tenant COLLATE "C", due_at, id)
    WHERE status = 'PENDING' AND delayed = 0;

-- As before, with what is for later.
CREATE OR REPLACE FUNCTION coolant.submit_job(
    new_id text, in_queue text, of_type text, of_tenant text, with_lock_key text, at_priority bigint,
    due_ms bigint, ends_ms bigint, now_ms bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    kept text := (SELECT s.spec FROM coolant.job_specs s WHERE s.job_id = new_id);
    behind text := coolant.submit_gate(kept);
BEGIN
    INSERT INTO coolant.jobs (
        id, queue, job_type, tenant, lock_key, priority, gate, status, due_at, wait, gives_up_at, max_wait_ms, delayed,
        claims, executions, tries, lost, releases, deferrals, timeouts, invalid_outputs,
        calls, input_tokens, output_tokens, cost_nanos, wasted_nanos, version, created_at, updated_at)
    VALUES (
        new_id, in_queue, of_type, of_tenant, with_lock_key, at_priority, behind, 'PENDING',
        greatest(due_ms, now_ms), 'start', ends_ms, coolant.submit_max_wait(kept), (due_ms > now_ms)::int,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, now_ms, now_ms);
    INSERT INTO coolant.lines (queue, job_type, priority, gate, writer)
    SELECT in_queue, of_type, at_priority, behind, -pg_backend_pid()
    WHERE NOT EXISTS (SELECT 1 FROM coolant.lines l WHERE l.queue = in_queue AND l.job_type = of_type
                      AND l.priority = at_priority AND l.gate = behind AND l.resting_since IS NULL)
    ON CONFLICT (queue, job_type, priority, gate, writer) DO UPDATE SET resting_since = NULL;
END $$;
