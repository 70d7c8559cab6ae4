-- What the indexer reads of a MusicBrainz database: tables and columns that it
-- reads, or that the view index_listing is made of, and no others. Names and types
-- are MusicBrainz's. For tests and rehearsals: a real database has them, and much
-- more.

CREATE SCHEMA musicbrainz;
CREATE SCHEMA cover_art_archive;

CREATE TABLE musicbrainz.artist_credit (
    id   SERIAL PRIMARY KEY,
    name VARCHAR NOT NULL
);

CREATE TABLE musicbrainz.release (
    id            SERIAL PRIMARY KEY,
    gid           UUID NOT NULL UNIQUE,
    name          VARCHAR NOT NULL,
    artist_credit INTEGER NOT NULL REFERENCES musicbrainz.artist_credit (id)
);

-- Where the gids lead to of releases that were merged into others.
CREATE TABLE musicbrainz.release_gid_redirect (
    gid    UUID PRIMARY KEY,
    new_id INTEGER NOT NULL REFERENCES musicbrainz.release (id)
);

-- An edit that is closed was voted on, or needed no vote.
CREATE TABLE musicbrainz.edit (
    id         SERIAL PRIMARY KEY,
    close_time TIMESTAMP WITH TIME ZONE
);

CREATE TABLE cover_art_archive.art_type (
    id   SERIAL PRIMARY KEY,
    name TEXT NOT NULL
);

CREATE TABLE cover_art_archive.image_type (
    mime_type TEXT PRIMARY KEY,
    suffix    TEXT NOT NULL
);

CREATE TABLE cover_art_archive.cover_art (
    id        BIGINT PRIMARY KEY,
    release   INTEGER NOT NULL REFERENCES musicbrainz.release (id),
    comment   TEXT NOT NULL DEFAULT '',
    edit      INTEGER NOT NULL,
    ordering  INTEGER NOT NULL CHECK (ordering > 0),
    mime_type TEXT NOT NULL REFERENCES cover_art_archive.image_type (mime_type)
);

CREATE TABLE cover_art_archive.cover_art_type (
    id      BIGINT NOT NULL REFERENCES cover_art_archive.cover_art (id),
    type_id INTEGER NOT NULL REFERENCES cover_art_archive.art_type (id),
    PRIMARY KEY (id, type_id)
);

-- The front of a release is the first of its images that is a front at all
-- (type 1); the back likewise (type 2).
CREATE VIEW cover_art_archive.index_listing AS
WITH firsts AS (
    SELECT DISTINCT ON (c.release, t.type_id) c.release, t.type_id, c.id
    FROM cover_art_archive.cover_art c
    JOIN cover_art_archive.cover_art_type t ON t.id = c.id
    WHERE t.type_id IN (1, 2)
    ORDER BY c.release, t.type_id, c.ordering
)
SELECT c.*,
       e.close_time IS NOT NULL AS approved,
       EXISTS (SELECT FROM firsts f WHERE f.id = c.id AND f.type_id = 1) AS is_front,
       EXISTS (SELECT FROM firsts f WHERE f.id = c.id AND f.type_id = 2) AS is_back,
       ARRAY(SELECT a.name
             FROM cover_art_archive.cover_art_type t
             JOIN cover_art_archive.art_type a ON a.id = t.type_id
             WHERE t.id = c.id
             ORDER BY a.id) AS types
FROM cover_art_archive.cover_art c
LEFT JOIN musicbrainz.edit e ON e.id = c.edit;

-- The first of MusicBrainz's own kinds of images, and all of their file types.
INSERT INTO cover_art_archive.art_type (id, name) VALUES
    (1, 'Front'), (2, 'Back'), (3, 'Booklet'), (4, 'Medium'), (5, 'Tray'), (6, 'Obi'), (7, 'Spine'), (8, 'Other');
INSERT INTO cover_art_archive.image_type (mime_type, suffix) VALUES
    ('image/jpeg', 'jpg'), ('image/png', 'png'), ('image/gif', 'gif'), ('application/pdf', 'pdf');
