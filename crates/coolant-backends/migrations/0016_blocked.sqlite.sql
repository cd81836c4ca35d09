-- Jobs that have ended are saved when they are reopened.
UPDATE jobs SET max_wait_ms = (
    SELECT json_extract(s.spec, '$.policy.max_wait.secs') * 1000
           + (json_extract(s.spec, '$.policy.max_wait.nanos') + 999999) / 1000000
    FROM job_specs s WHERE s.job_id = jobs.id)
WHERE status IN ('PENDING', 'RUNNING');
