-- Upstreams: what an operator said, whether they are open, what is used of their limits.
CREATE TABLE upstreams (
    name       TEXT   NOT NULL PRIMARY KEY,
    settings   TEXT   NOT NULL,
    credential TEXT,
    breaker    TEXT   NOT NULL,
    meter      TEXT   NOT NULL,
    -- 1: a claim has to look at it. All others let every job through.
    needs_care BIGINT NOT NULL
);

CREATE TABLE credentials (
    name       TEXT   NOT NULL PRIMARY KEY,
    breaker    TEXT   NOT NULL,
    needs_care BIGINT NOT NULL
);

CREATE TABLE tenant_limits (
    tenant     TEXT   NOT NULL PRIMARY KEY,
    limits     TEXT   NOT NULL,
    meter      TEXT   NOT NULL,
    needs_care BIGINT NOT NULL
);

-- Permits: kept a while after their end, so that a late settle finds what it pays for.
CREATE TABLE permits (
    id          TEXT   NOT NULL PRIMARY KEY,
    upstream    TEXT   NOT NULL,
    tenant      TEXT   NOT NULL,
    job_id      TEXT,
    token       BIGINT,
    step        TEXT,
    tokens      BIGINT NOT NULL,
    cost_nanos  BIGINT NOT NULL,
    acquired_at BIGINT NOT NULL,
    expires_at  BIGINT NOT NULL,
    settled_at  BIGINT,
    -- Found to have ended without a settle.
    lapsed_at   BIGINT,
    CHECK ((job_id IS NULL) = (token IS NULL))
);

-- What is in flight is counted from these, at each permit.
CREATE INDEX permits_of_upstream ON permits (upstream) WHERE settled_at IS NULL AND lapsed_at IS NULL;
CREATE INDEX permits_of_tenant   ON permits (tenant) WHERE settled_at IS NULL AND lapsed_at IS NULL;
CREATE INDEX permits_of_job      ON permits (job_id) WHERE settled_at IS NULL AND lapsed_at IS NULL;
CREATE INDEX permits_by_age      ON permits (acquired_at);
