-- A few rows that change all the time: room on their pages, so that no change touches an index.
ALTER TABLE upstreams SET (fillfactor = 20);
ALTER TABLE credentials SET (fillfactor = 20);
ALTER TABLE tenant_limits SET (fillfactor = 20);
