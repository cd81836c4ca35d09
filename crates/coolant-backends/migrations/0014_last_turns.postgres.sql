-- Tenants by their bytes, as in the index of waiting jobs.
CREATE INDEX attempts_turns ON attempts (turn_among, turn_of COLLATE "C", turn) WHERE turn IS NOT NULL;
