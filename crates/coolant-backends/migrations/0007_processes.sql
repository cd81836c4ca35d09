-- Processes with workers that are running, or died a moment ago.
CREATE TABLE processes (
    id         TEXT   NOT NULL PRIMARY KEY,
    renewed_at BIGINT NOT NULL
);

-- Which process made the claim; null where its death could not be seen. Kept with the attempt: beside the job it
-- would outlive its claim in the hands of an older version, which knows no such column.
ALTER TABLE attempts ADD COLUMN process TEXT;
