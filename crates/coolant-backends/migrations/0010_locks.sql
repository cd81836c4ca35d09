-- Leaky locks: leases on names, without jobs.

CREATE TABLE locks (
    name      TEXT   NOT NULL PRIMARY KEY,
    -- The newest that was given out.
    token     BIGINT NOT NULL,
    -- As it was left. One that is held or cools down is free once its time has ended.
    state     TEXT   NOT NULL CHECK (state IN ('free', 'held', 'cooling', 'closed')),
    holder    TEXT,
    reason    TEXT,
    until_at  BIGINT,
    -- From when on nobody needs the row any more; null while it is closed.
    forget_at BIGINT,
    CHECK ((state IN ('held', 'cooling')) = (until_at IS NOT NULL)),
    CHECK ((state = 'free') = (holder IS NULL)),
    CHECK ((state IN ('cooling', 'closed')) = (reason IS NOT NULL)),
    CHECK ((state = 'closed') = (forget_at IS NULL))
);

CREATE INDEX locks_forget ON locks (forget_at) WHERE forget_at IS NOT NULL;

-- No smaller than the token of any lock that was forgotten: tokens of a name go on from here.
CREATE TABLE lock_floor (token BIGINT NOT NULL);
INSERT INTO lock_floor (token) VALUES (0);
