-- Room on each page for the next version of a job, so that a heartbeat stays on it and touches no index; and
-- a vacuum soon after, of the indexes too, so that claims do not walk over what is claimed already.
ALTER TABLE jobs SET (
    fillfactor = 80,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_analyze_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.05,
    vacuum_index_cleanup = on
);
ALTER TABLE attempts SET (fillfactor = 80);
