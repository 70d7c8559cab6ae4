-- Real releases with the numbers of their real images; that one of them was merged
-- is made up, and so are the edits.

INSERT INTO musicbrainz.artist_credit (id, name) VALUES
    (1, 'm-flo'), (2, 'Portishead'), (3, 'Arctic Monkeys'), (4, 'Queen'), (5, 'Kylie Minogue'),
    (6, 'Florence + the Machine'), (7, 'Jungle'), (8, 'Motörhead');

INSERT INTO musicbrainz.release (id, gid, name, artist_credit) VALUES
    (59662, 'aff4a693-5970-4e2e-bd46-e2ee49c22de7', 'the Love Bug', 1),
    (2, '76df3287-6cda-33eb-8e9a-044b5e15ffdd', 'Dummy', 2),
    (3, 'd6d1140f-5b4f-422e-a8b0-a8c43732701f', 'The Car', 3),
    (4, '1ff94a0f-950e-448b-935c-9218740ca778', 'Face It Alone', 4),
    (5, '7c88cc10-33b8-4737-b64c-4da9d24c19d5', 'Tension', 5),
    (6, '27dd50ed-1446-4f14-8cda-23fe2f476ccc', 'Dance Fever (live at Madison Square Garden)', 6),
    (7, '14fbd2c0-0468-4cd7-9630-6aa655e11d5b', 'Volcano', 7),
    (8, '403a79a8-0cbd-4a6c-b694-39a2cbd6dc75', 'Motör‐ween', 8);

INSERT INTO musicbrainz.release_gid_redirect (gid, new_id) VALUES
    ('5ee38258-8dfa-4d79-b2aa-6bbfceaf6cce', 3);

INSERT INTO musicbrainz.edit (id, close_time) VALUES
    (1, '2018-01-06 05:33:28+00'), (2, NULL), (17462565, '2012-05-07 00:00:00+00');

INSERT INTO cover_art_archive.cover_art (id, release, comment, edit, ordering, mime_type) VALUES
    (4644074265, 59662, 'ping!', 2, 2, 'image/png'),
    (1031598329, 59662, '', 1, 1, 'image/jpeg'),
    (829521842, 2, '', 17462565, 1, 'image/jpeg'),
    (33381564513, 3, '', 1, 1, 'image/jpeg'),
    (33813499854, 4, '', 1, 1, 'image/jpeg'),
    (35632652601, 5, '', 1, 1, 'image/jpeg'),
    (33827447735, 6, '', 1, 1, 'image/jpeg'),
    (35241999771, 7, '', 1, 1, 'image/jpeg');

INSERT INTO cover_art_archive.cover_art_type (id, type_id) VALUES
    (1031598329, 1), (4644074265, 2), (4644074265, 7), (829521842, 1), (33381564513, 1), (33813499854, 1),
    (35632652601, 1), (33827447735, 1), (35241999771, 1);
