UPDATE jobs SET gate = (
    SELECT group_concat(value, char(31)) FROM (
        SELECT DISTINCT e.value FROM job_specs s, json_each(s.spec, '$.upstreams') e
        WHERE s.job_id = jobs.id ORDER BY e.value))
WHERE EXISTS (SELECT 1 FROM job_specs s, json_each(s.spec, '$.upstreams') e WHERE s.job_id = jobs.id);

-- SQLite changes no primary key, so the table is made anew under its name.
CREATE TABLE lines_with_gates (
    queue    TEXT   NOT NULL,
    job_type TEXT   NOT NULL,
    priority BIGINT NOT NULL,
    gate     TEXT   NOT NULL DEFAULT '',
    PRIMARY KEY (queue, job_type, priority, gate)
);
INSERT INTO lines_with_gates (queue, job_type, priority) SELECT queue, job_type, priority FROM lines;
INSERT INTO lines_with_gates (queue, job_type, priority, gate)
SELECT DISTINCT queue, job_type, priority, gate FROM jobs WHERE gate <> '';
DROP TABLE lines;
ALTER TABLE lines_with_gates RENAME TO lines;
