-- How long a job waits at most for an upstream or a budget that lets nothing start. With it the sweep finds those that
-- have waited for that long, and no others. A process that does not know the column leaves the default, 24 hours,
-- until a newer one saves the job.
ALTER TABLE jobs ADD COLUMN max_wait_ms BIGINT NOT NULL DEFAULT 86400000;

CREATE INDEX jobs_waiting_for_upstream ON jobs (gate, max_wait_ms, due_at) WHERE status = 'PENDING' AND gate <> '';
CREATE INDEX jobs_waiting_for_budget   ON jobs (tenant, max_wait_ms, due_at) WHERE status = 'PENDING' AND gate <> '';

CREATE INDEX ledger_by_upstream ON ledger (upstream, at);
