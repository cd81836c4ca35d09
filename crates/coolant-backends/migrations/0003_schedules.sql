-- Work that comes again and again.

CREATE TABLE schedules (
    tenant  TEXT   NOT NULL,
    name    TEXT   NOT NULL,
    -- Its own from its creation on: one made again under the same name is another.
    id      TEXT   NOT NULL,
    -- Null while it is paused.
    next_at BIGINT,
    record  TEXT   NOT NULL,
    version BIGINT NOT NULL,
    PRIMARY KEY (tenant, name)
);

CREATE INDEX schedules_due ON schedules (next_at) WHERE next_at IS NOT NULL;
