-- Since when nothing waits or runs in a line; null while something does, or did at the last look. One that
-- rests for long is dropped.
ALTER TABLE lines ADD COLUMN resting_since BIGINT;
