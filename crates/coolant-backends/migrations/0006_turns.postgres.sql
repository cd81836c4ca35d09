-- Waiting jobs by line and tenant, so that a claim steps from tenant to tenant, however many jobs each has. Tenants
-- by their bytes, as the program orders them.
DROP INDEX jobs_claimable;
CREATE INDEX jobs_waiting ON jobs (queue, job_type, gate, priority, tenant COLLATE "C", due_at, id)
    WHERE status = 'PENDING';
