CREATE INDEX jobs_waiting ON jobs (queue, job_type, gate, priority, tenant, due_at, id)
    WHERE status = 'PENDING' AND delayed = 0;
