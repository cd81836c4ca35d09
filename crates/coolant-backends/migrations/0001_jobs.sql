-- Jobs: what was asked for (cold, never changed) apart from where it stands (hot, narrow).

CREATE TABLE job_specs (
    job_id          TEXT   NOT NULL PRIMARY KEY,
    tenant          TEXT   NOT NULL,
    idempotency_key TEXT,
    spec            TEXT   NOT NULL,
    payload         TEXT   NOT NULL,
    -- The key first, so that a key is also found without its tenant.
    UNIQUE (idempotency_key, tenant)
);

CREATE INDEX job_specs_by_tenant ON job_specs (tenant, job_id);

CREATE TABLE jobs (
    id               TEXT   NOT NULL PRIMARY KEY,
    queue            TEXT   NOT NULL,
    job_type         TEXT   NOT NULL,
    tenant           TEXT   NOT NULL,
    lock_key         TEXT,
    priority         BIGINT NOT NULL,
    status           TEXT   NOT NULL,
    -- PENDING: the one instant before which nobody starts it, and what it waits for.
    due_at           BIGINT,
    wait             TEXT,
    wait_reason      TEXT,
    -- When a sweep ends it if nothing happens before.
    gives_up_at      BIGINT,
    -- RUNNING: the same instant is the lease's end. Apart from due_at and in no index, so that a heartbeat
    -- rewrites no index.
    lease_until      BIGINT,
    lease_ms         BIGINT,
    worker           TEXT,
    attempt_began_at BIGINT,
    deadline_at      BIGINT,
    cancel_requested BIGINT,
    -- FAILED: who may reopen it, and from when.
    reopen           TEXT,
    reopen_at        BIGINT,
    -- Until when it keeps others with its lock key from starting.
    lock_until       BIGINT,
    claims           BIGINT NOT NULL,
    executions       BIGINT NOT NULL,
    tries            BIGINT NOT NULL,
    lost             BIGINT NOT NULL,
    releases         BIGINT NOT NULL,
    deferrals        BIGINT NOT NULL,
    timeouts         BIGINT NOT NULL,
    invalid_outputs  BIGINT NOT NULL,
    last_error       TEXT,
    error_code       TEXT,
    deferred_since   BIGINT,
    settled_token    BIGINT,
    settled_outcome  TEXT,
    progress         TEXT,
    calls            BIGINT NOT NULL,
    input_tokens     BIGINT NOT NULL,
    output_tokens    BIGINT NOT NULL,
    cost_nanos       BIGINT NOT NULL,
    wasted_nanos     BIGINT NOT NULL,
    version          BIGINT NOT NULL,
    created_at       BIGINT NOT NULL,
    updated_at       BIGINT NOT NULL,
    started_at       BIGINT,
    finished_at      BIGINT,
    CHECK (status IN ('PENDING', 'RUNNING', 'SUCCEEDED', 'FAILED', 'CANCELLED')),
    CHECK ((status = 'PENDING') = (due_at IS NOT NULL)),
    CHECK ((status = 'PENDING') = (wait IS NOT NULL)),
    CHECK ((status = 'RUNNING') = (lease_until IS NOT NULL AND lease_ms IS NOT NULL AND worker IS NOT NULL)),
    CHECK ((status = 'RUNNING') = (deadline_at IS NOT NULL AND attempt_began_at IS NOT NULL)),
    CHECK ((status = 'FAILED') = (reopen IS NOT NULL)),
    CHECK ((status IN ('SUCCEEDED', 'FAILED', 'CANCELLED')) = (finished_at IS NOT NULL))
);

CREATE INDEX jobs_claimable ON jobs (queue, job_type, priority, due_at, id) WHERE status = 'PENDING';
CREATE INDEX jobs_giving_up ON jobs (gives_up_at) WHERE gives_up_at IS NOT NULL;
CREATE INDEX jobs_running   ON jobs (queue, job_type) WHERE status = 'RUNNING';
CREATE INDEX jobs_failed    ON jobs (id) WHERE status = 'FAILED';
CREATE INDEX jobs_cancelled ON jobs (id) WHERE status = 'CANCELLED';
CREATE INDEX jobs_holding   ON jobs (tenant, lock_key) WHERE lock_until IS NOT NULL;
CREATE INDEX jobs_live_keys ON jobs (tenant, lock_key) WHERE lock_key IS NOT NULL AND finished_at IS NULL;
-- Holds all that the metrics of a window ask about ended jobs, so that they read no job.
CREATE INDEX jobs_finished  ON jobs (finished_at, queue, status, started_at) WHERE finished_at IS NOT NULL;

CREATE TABLE job_results (
    job_id TEXT NOT NULL PRIMARY KEY,
    result TEXT NOT NULL
);

CREATE TABLE attempts (
    job_id        TEXT   NOT NULL,
    number        BIGINT NOT NULL,
    worker        TEXT   NOT NULL,
    began_at      BIGINT NOT NULL,
    ended_at      BIGINT,
    outcome       TEXT,
    error         TEXT,
    calls         BIGINT NOT NULL DEFAULT 0,
    input_tokens  BIGINT NOT NULL DEFAULT 0,
    output_tokens BIGINT NOT NULL DEFAULT 0,
    cost_nanos    BIGINT NOT NULL DEFAULT 0,
    wasted_nanos  BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (job_id, number)
);

CREATE INDEX attempts_again  ON attempts (began_at) WHERE number > 1;
CREATE INDEX attempts_wasted ON attempts (ended_at) WHERE wasted_nanos > 0;

CREATE TABLE steps (
    job_id      TEXT   NOT NULL,
    name        TEXT   NOT NULL,
    output      TEXT   NOT NULL,
    bytes       BIGINT NOT NULL,
    finished_at BIGINT NOT NULL,
    attempt     BIGINT NOT NULL,
    PRIMARY KEY (job_id, name)
);

CREATE TABLE ledger (
    id            TEXT   NOT NULL PRIMARY KEY,
    job_id        TEXT   NOT NULL,
    attempt       BIGINT NOT NULL,
    step          TEXT,
    tenant        TEXT   NOT NULL,
    queue         TEXT   NOT NULL,
    at            BIGINT NOT NULL,
    upstream      TEXT,
    model         TEXT,
    input_tokens  BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    cost_nanos    BIGINT
);

CREATE INDEX ledger_by_job  ON ledger (job_id);
CREATE INDEX ledger_by_time ON ledger (at, queue, cost_nanos);

-- Which lines of jobs there ever were, so that a claim asks for each of them and for no other.
CREATE TABLE lines (
    queue    TEXT   NOT NULL,
    job_type TEXT   NOT NULL,
    priority BIGINT NOT NULL,
    PRIMARY KEY (queue, job_type, priority)
);

-- When a worker last asked for jobs of a queue and type.
CREATE TABLE claimers (
    queue    TEXT   NOT NULL,
    job_type TEXT   NOT NULL,
    asked_at BIGINT NOT NULL,
    PRIMARY KEY (queue, job_type)
);

-- Counts by the minute. Writers that run side by side have a shard each, so that they share no row.
CREATE TABLE counters (
    minute BIGINT NOT NULL,
    queue  TEXT   NOT NULL,
    name   TEXT   NOT NULL,
    shard  BIGINT NOT NULL,
    value  BIGINT NOT NULL,
    PRIMARY KEY (minute, queue, name, shard)
);

CREATE TABLE redrives (
    id      TEXT   NOT NULL PRIMARY KEY,
    state   TEXT   NOT NULL,
    record  TEXT   NOT NULL,
    version BIGINT NOT NULL
);

CREATE TABLE audit (
    id     TEXT   NOT NULL PRIMARY KEY,
    at     BIGINT NOT NULL,
    actor  TEXT   NOT NULL,
    action TEXT   NOT NULL,
    target TEXT   NOT NULL,
    reason TEXT   NOT NULL
);

-- SQLite: from the machine's time since boot to the time that leases are counted in.
CREATE TABLE clock (
    boot_id   TEXT   NOT NULL PRIMARY KEY,
    offset_ms BIGINT NOT NULL
);
