-- The turn that a claim took for its tenant, where other tenants had jobs waiting too: with the last attempt that the
-- claim began for the tenant. `turn_among` is the kind of the request. So all processes know whose turn it is, and
-- none waits for another to write it down.
ALTER TABLE attempts ADD COLUMN turn_of TEXT;
ALTER TABLE attempts ADD COLUMN turn_among BIGINT;
ALTER TABLE attempts ADD COLUMN turn BIGINT;
