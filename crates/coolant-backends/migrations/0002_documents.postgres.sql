-- Words as `simple` has them, those of ASCII letters stemmed, and none left out: what `porter` does in SQLite.
CREATE TEXT SEARCH DICTIONARY english_words (TEMPLATE = snowball, LANGUAGE = english);
CREATE TEXT SEARCH CONFIGURATION words (COPY = pg_catalog.simple);
ALTER TEXT SEARCH CONFIGURATION words ALTER MAPPING FOR asciiword WITH english_words;

-- Kept, because ranking needs it for every match. The tenant is among the words, behind a space that no
-- word has: so the index finds a tenant's matches without reading those of all others.
ALTER TABLE chunks ADD COLUMN lexemes TSVECTOR GENERATED ALWAYS AS
    (to_tsvector('coolant.words', terms) || array_to_tsvector(ARRAY[' ' || tenant])) STORED;
-- No list of entries to be sorted in later: while it is long, a search reads the whole table instead.
CREATE INDEX chunks_lexemes ON chunks USING gin (lexemes) WITH (fastupdate = off);

CREATE INDEX chunks_content ON chunks (tenant, document_id, hash);
CREATE INDEX documents_fresh ON documents (fresh_since) WHERE fresh_since IS NOT NULL;

-- Floats do not compress, and one that is read is read whole: in the row, if a page holds it.
ALTER TABLE vectors ALTER COLUMN vector SET STORAGE EXTERNAL;
ALTER TABLE vectors SET (toast_tuple_target = 8160);
