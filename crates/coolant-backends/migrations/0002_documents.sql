-- Documents, their published chunks, and vectors by the content they were made from.

CREATE TABLE documents (
    tenant            TEXT   NOT NULL,
    id                TEXT   NOT NULL,
    -- Goes on after a deletion: a version names one content for ever, since jobs are keyed by it.
    latest_version    BIGINT NOT NULL,
    deleted_at        BIGINT,
    published_version BIGINT,
    pipeline          TEXT,
    model             TEXT,
    chunks            BIGINT,
    published_at      BIGINT,
    -- Since when its chunks are not what the index of vectors has; only PostgreSQL with pgvector has one.
    fresh_since       BIGINT,
    PRIMARY KEY (tenant, id)
);

CREATE TABLE document_versions (
    tenant       TEXT    NOT NULL,
    document_id  TEXT    NOT NULL,
    version      BIGINT  NOT NULL,
    sha256       TEXT    NOT NULL,
    bytes        BIGINT  NOT NULL,
    content_type TEXT,
    filename     TEXT,
    created_at   BIGINT  NOT NULL,
    data         {bytes} NOT NULL,
    PRIMARY KEY (tenant, document_id, version)
);

-- Only chunks of published versions are here, so that a search needs no further condition.
CREATE TABLE chunks (
    seq         {sequence},
    tenant      TEXT    NOT NULL,
    document_id TEXT    NOT NULL,
    version     BIGINT  NOT NULL,
    n           BIGINT  NOT NULL,
    model       TEXT    NOT NULL,
    hash        {bytes} NOT NULL,
    text        TEXT    NOT NULL,
    terms       TEXT    NOT NULL,
    heading     TEXT,
    page        BIGINT,
    UNIQUE (tenant, document_id, n)
);

CREATE TABLE vectors (
    tenant TEXT    NOT NULL,
    model  TEXT    NOT NULL,
    hash   {bytes} NOT NULL,
    vector {bytes} NOT NULL,
    PRIMARY KEY (tenant, model, hash)
);
