-- The gate of a job: the names of its upstreams, sorted by their bytes, with U+001F between them. A claim looks at
-- the lines of open gates alone. A process that does not know the column leaves it empty: its jobs wait for no
-- upstream to open.
ALTER TABLE jobs ADD COLUMN gate TEXT NOT NULL DEFAULT '';
