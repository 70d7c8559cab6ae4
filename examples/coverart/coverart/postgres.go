package coverart

import (
	"context"
	"database/sql"
	_ "embed" // schema.sql
	"encoding/json"
	"errors"
	"fmt"
)

// Schema contains the statements that create the part of a MusicBrainz database that Postgres reads. The statements
// require an empty database on PostgreSQL 12 or later. A real MusicBrainz database already has these tables.
//
//go:embed schema.sql
var Schema string

// Postgres is a Catalogue in a MusicBrainz database. It reads
//
//	musicbrainz.release, .artist_credit, .release_gid_redirect
//	cover_art_archive.index_listing, .image_type
//
// with any search path, and requires only SELECT permissions. If the database or a table is missing, Release returns an
// error, and the message is retried.
type Postgres struct {
	// DB is the database, with any driver. If a connection pooler uses transaction mode, the driver must not keep
	// prepared statements. For pgx, set default_query_exec_mode=exec in the URL.
	DB *sql.DB
}

// A gid either belongs to a release, or redirects to the target of a merge.
const releaseQuery = `
SELECT r.id, r.gid::text, r.name, a.name
FROM musicbrainz.release r
JOIN musicbrainz.artist_credit a ON a.id = r.artist_credit
WHERE r.gid = $1::uuid
   OR r.id = (SELECT new_id FROM musicbrainz.release_gid_redirect WHERE gid = $1::uuid)`

// The types are JSON, because drivers differ in their support for arrays.
const imagesQuery = `
SELECT i.id, array_to_json(i.types)::text, i.is_front, i.is_back, i.comment, t.suffix, i.approved, i.edit
FROM cover_art_archive.index_listing i
JOIN cover_art_archive.image_type t ON t.mime_type = i.mime_type
WHERE i.release = $1
ORDER BY i.ordering, i.id`

// Release implements Catalogue. It reads the release and its images in one snapshot.
func (p *Postgres) Release(ctx context.Context, gid string) (*Release, error) {
	r, err := p.release(ctx, gid)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, ErrUnknownRelease
	case err != nil:
		return nil, fmt.Errorf("coverart: cannot query database: %w", err)
	}
	return r, nil
}

func (p *Postgres) release(ctx context.Context, gid string) (*Release, error) {
	tx, err := p.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // the transaction is read-only
	var (
		r  Release
		id int64
	)
	if err := tx.QueryRowContext(ctx, releaseQuery, gid).Scan(&id, &r.GID, &r.Title, &r.Artist); err != nil {
		return nil, err
	}
	rows, err := tx.QueryContext(ctx, imagesQuery, id)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err returns the error
	for rows.Next() {
		var (
			i     Image
			types []byte
		)
		if err := rows.Scan(&i.ID, &types, &i.Front, &i.Back, &i.Comment, &i.Suffix, &i.Approved, &i.Edit); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(types, &i.Types); err != nil {
			return nil, fmt.Errorf("cannot parse types of image %d: %w", i.ID, err)
		}
		r.Images = append(r.Images, i)
	}
	return &r, rows.Err()
}
