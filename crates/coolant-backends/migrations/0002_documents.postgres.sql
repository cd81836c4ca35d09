CREATE INDEX chunks_terms ON chunks USING gin (to_tsvector('simple', terms));
