-- What the ledger knows of a paid call beyond its price. An older process goes on writing rows without it.
-- A call of no job has an empty job id. job_type is missing in rows of before: their jobs say it.
ALTER TABLE ledger ADD COLUMN job_type           TEXT;
ALTER TABLE ledger ADD COLUMN provider           TEXT;
ALTER TABLE ledger ADD COLUMN asked_model        TEXT;
ALTER TABLE ledger ADD COLUMN cached_tokens      BIGINT NOT NULL DEFAULT 0;
ALTER TABLE ledger ADD COLUMN cache_write_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE ledger ADD COLUMN reasoning_tokens   BIGINT NOT NULL DEFAULT 0;
ALTER TABLE ledger ADD COLUMN price              TEXT;
ALTER TABLE ledger ADD COLUMN estimated          BIGINT NOT NULL DEFAULT 0;
ALTER TABLE ledger ADD COLUMN failed             TEXT;
ALTER TABLE ledger ADD COLUMN credential         TEXT;
ALTER TABLE ledger ADD COLUMN reported           TEXT;
ALTER TABLE ledger ADD COLUMN wasted             BIGINT NOT NULL DEFAULT 0;

CREATE INDEX ledger_by_tenant ON ledger (tenant, at);
