CREATE VIRTUAL TABLE chunk_terms USING fts5 (terms, content = 'chunks', content_rowid = 'seq', tokenize = 'porter unicode61');

CREATE TRIGGER chunks_added AFTER INSERT ON chunks BEGIN
    INSERT INTO chunk_terms (rowid, terms) VALUES (new.seq, new.terms);
END;

CREATE TRIGGER chunks_removed AFTER DELETE ON chunks BEGIN
    INSERT INTO chunk_terms (chunk_terms, rowid, terms) VALUES ('delete', old.seq, old.terms);
END;
