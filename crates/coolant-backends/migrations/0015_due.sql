-- Waiting jobs of a line in the order in which they come due, so that a claim finds those few that are due without
-- asking each tenant that has jobs for later. `wait` is what only a waiting job has: so no plan takes this index
-- where another is meant.
CREATE INDEX jobs_due ON jobs (queue, job_type, gate, priority, due_at) WHERE wait IS NOT NULL;
