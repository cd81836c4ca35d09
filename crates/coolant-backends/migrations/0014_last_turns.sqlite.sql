CREATE INDEX attempts_turns ON attempts (turn_among, turn_of, turn) WHERE turn IS NOT NULL;
