-- 1 for a job whose instant was still to come when it was written; a claim that finds many of them come due makes it 0
-- again. They have an index of their own, so that jobs for later cost nothing to those that can start at once.
-- Processes that do not know the column leave it as it is: no job is lost to anybody, but claims of theirs read more
-- than they did.
ALTER TABLE jobs ADD COLUMN delayed BIGINT NOT NULL DEFAULT 0;

DROP INDEX jobs_due;
CREATE INDEX jobs_delayed ON jobs (queue, job_type, gate, priority, due_at) WHERE status = 'PENDING' AND delayed = 1;

DROP INDEX jobs_waiting;
