-- Waiting jobs by line and tenant, so that a claim steps from tenant to tenant, however many jobs each has.
DROP INDEX jobs_claimable;
CREATE INDEX jobs_waiting ON jobs (queue, job_type, gate, priority, tenant, due_at, id) WHERE status = 'PENDING';
