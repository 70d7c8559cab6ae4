package coverart_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"

	"github.com/reprisemq/reprise/examples/coverart/coverart"
	"github.com/reprisemq/reprise/examples/coverart/internal/rehearsal"
	"github.com/reprisemq/reprise/internal/testkit/pgtest"
)

// newDatabase creates a database with the releases of the rehearsal, for one test.
func newDatabase(t *testing.T) *sql.DB {
	t.Helper()
	db, remove, err := rehearsal.NewDatabase(t.Context(), pgtest.Server(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := remove(); err != nil {
			t.Error(err)
		}
	})
	return db
}

const loveBug = "aff4a693-5970-4e2e-bd46-e2ee49c22de7"

func TestPostgresReadsRelease(t *testing.T) {
	db := newDatabase(t)
	p := &coverart.Postgres{DB: db}
	// The release gets a second front image, whose edit is still open, and a third image without a known edit.
	for _, statement := range []string{
		`INSERT INTO cover_art_archive.cover_art (id, release, comment, edit, ordering, mime_type)
		 VALUES (10, 59662, 'later', 2, 3, 'application/pdf'), (11, 59662, '', 999, 4, 'image/gif')`,
		`INSERT INTO cover_art_archive.cover_art_type (id, type_id) VALUES (10, 1), (10, 2)`,
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	got, err := p.Release(t.Context(), loveBug)
	if err != nil {
		t.Fatal(err)
	}
	want := &coverart.Release{GID: loveBug, Title: "the Love Bug", Artist: "m-flo", Images: []coverart.Image{
		{ID: 1031598329, Types: []string{"Front"}, Front: true, Suffix: "jpg", Approved: true, Edit: 1},
		{ID: 4644074265, Types: []string{"Back", "Spine"}, Back: true, Comment: "ping!", Suffix: "png", Edit: 2},
		{ID: 10, Types: []string{"Front", "Back"}, Comment: "later", Suffix: "pdf", Edit: 2},
		{ID: 11, Types: []string{}, Suffix: "gif", Edit: 999},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A redirect refers to the row of a release, so that a single redirect is sufficient even after several merges.
func TestPostgresFollowsRedirects(t *testing.T) {
	p := &coverart.Postgres{DB: newDatabase(t)}
	r, err := p.Release(t.Context(), "5ee38258-8dfa-4d79-b2aa-6bbfceaf6cce")
	if err != nil || r.GID != "d6d1140f-5b4f-422e-a8b0-a8c43732701f" || len(r.Images) != 1 {
		t.Errorf("release: got %+v, %v, want one image of d6d1140f-5b4f-422e-a8b0-a8c43732701f", r, err)
	}
}

func TestPostgresReturnsErrUnknownReleaseOnlyIfNotFound(t *testing.T) {
	db := newDatabase(t)
	p := &coverart.Postgres{DB: db}
	if _, err := p.Release(t.Context(), "00000000-0000-4000-8000-000000000002"); !errors.Is(err, coverart.ErrUnknownRelease) {
		t.Errorf("unknown release: got %v, want ErrUnknownRelease", err)
	}
	if r, err := p.Release(t.Context(), "403a79a8-0cbd-4a6c-b694-39a2cbd6dc75"); err != nil || len(r.Images) != 0 {
		t.Errorf("release without images: got %+v, %v, want no images", r, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Release(ctx, loveBug); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled context: got %v, want context.Canceled", err)
	}
	if _, err := db.ExecContext(t.Context(), "DROP VIEW cover_art_archive.index_listing"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Release(t.Context(), loveBug); err == nil || errors.Is(err, coverart.ErrUnknownRelease) {
		t.Errorf("missing view: got %v, want an error other than ErrUnknownRelease", err)
	}
}

func TestIndexFromPostgres(t *testing.T) {
	x, a, _ := newIndexer(t)
	x.Catalogue = &coverart.Postgres{DB: newDatabase(t)}
	if err := x.Index(t.Context(), message(loveBug)); err != nil {
		t.Fatal(err)
	}
	const at = "http://coverartarchive.org/release/" + loveBug + "/"
	want := `{"images":[` +
		`{"approved":true,"back":false,"comment":"","edit":1,"front":true,"id":1031598329,"image":"` + at + `1031598329.jpg",` +
		`"thumbnails":{"1200":"` + at + `1031598329-1200.jpg","250":"` + at + `1031598329-250.jpg","500":"` + at + `1031598329-500.jpg",` +
		`"large":"` + at + `1031598329-500.jpg","small":"` + at + `1031598329-250.jpg"},"types":["Front"]},` +
		`{"approved":false,"back":true,"comment":"ping!","edit":2,"front":false,"id":4644074265,"image":"` + at + `4644074265.png",` +
		`"thumbnails":{"1200":"` + at + `4644074265-1200.jpg","250":"` + at + `4644074265-250.jpg","500":"` + at + `4644074265-500.jpg",` +
		`"large":"` + at + `4644074265-500.jpg","small":"` + at + `4644074265-250.jpg"},"types":["Back","Spine"]}` +
		`],"release":"https://musicbrainz.org/release/` + loveBug + `"}`
	if got := a.content(coverart.IndexLocation(loveBug)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
