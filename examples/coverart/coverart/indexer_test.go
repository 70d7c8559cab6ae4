package coverart_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/examples/coverart/coverart"
)

const gidMerged = "00000000-0000-4000-8000-000000000001"

type fakeService struct{ err error }

func (s fakeService) ReleaseXML(_ context.Context, gid string) ([]byte, error) {
	return []byte("<metadata>" + gid + "</metadata>"), s.err
}

func newIndexer(t *testing.T) (*coverart.Indexer, *fakeArchive, *bytes.Buffer) {
	t.Helper()
	a := newArchive(t)
	var log bytes.Buffer
	return &coverart.Indexer{
		Catalogue: &coverart.Memory{
			Releases: []coverart.Release{
				{GID: gidA, Images: []coverart.Image{{ID: 829521842, Types: []string{"Front"}, Front: true, Approved: true, Edit: 17462565}}},
				{GID: gidB},
			},
			Redirects: map[string]string{gidMerged: gidA},
		},
		Archive: a.client, WebService: fakeService{}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}, a, &log
}

func message(body string) *reprise.Delivery {
	return &reprise.Delivery{Message: reprise.Message{Body: []byte(body), MessageID: "1"}}
}

func parked(err error) bool {
	_, ok := errors.AsType[*reprise.ParkError](err)
	return ok
}

func TestIndex(t *testing.T) {
	x, a, _ := newIndexer(t)
	if err := x.Index(t.Context(), message(gidA)); err != nil {
		t.Fatal(err)
	}
	asked := a.takeRequests()
	if len(asked) != 2 {
		t.Fatalf("requests: got %d, want 2", len(asked))
	}
	wantRequest(t, asked[0], "PUT", coverart.Location{Bucket: "mbid-" + gidA, Key: "index.json"}, map[string]string{
		"x-archive-auto-make-bucket": "1", "x-archive-keep-old-version": "1", "x-archive-meta-collection": "coverartarchive",
		"x-archive-meta-mediatype": "image", "x-archive-meta-noindex": "true",
	})
	wantRequest(t, asked[1], "PUT", coverart.Location{Bucket: "mbid-" + gidA, Key: "mbid-" + gidA + "_mb_metadata.xml"}, map[string]string{
		"x-archive-auto-make-bucket": "1", "x-archive-meta-collection": "coverartarchive",
		"x-archive-meta-mediatype": "image", "x-archive-meta-noindex": "true",
	})
	for i, want := range []string{"application/json; charset=utf-8", "application/xml; charset=utf-8"} {
		if got := asked[i].Header.Get("Content-Type"); got != want {
			t.Errorf("content type: got %q, want %q", got, want)
		}
	}
	if got := a.content(coverart.IndexLocation(gidA)); !strings.Contains(got, `"id":829521842`) {
		t.Errorf("index.json must contain image 829521842: got %s", got)
	}
	if got := a.content(coverart.MetadataLocation(gidA)); got != "<metadata>"+gidA+"</metadata>" {
		t.Errorf("metadata: got %s, want metadata of %s", got, gidA)
	}
}

func TestIndexFollowsRedirect(t *testing.T) {
	x, a, _ := newIndexer(t)
	if err := x.Index(t.Context(), message(gidMerged)); err != nil {
		t.Fatal(err)
	}
	if a.content(coverart.IndexLocation(gidA)) == "" || a.content(coverart.IndexLocation(gidMerged)) != "" {
		t.Error("index not found in the bucket of the merged release")
	}
}

func TestIndexSkipsUnknownRelease(t *testing.T) {
	x, a, log := newIndexer(t)
	if err := x.Index(t.Context(), message("00000000-0000-4000-8000-000000000002")); err != nil {
		t.Fatal(err)
	}
	if n := len(a.takeRequests()); n != 0 {
		t.Errorf("requests: got %d, want 0", n)
	}
	if !strings.Contains(log.String(), "unknown release, skipped") {
		t.Errorf("log must contain \"unknown release, skipped\": got %s", log)
	}
}

type brokenCatalogue struct{}

func (brokenCatalogue) Release(context.Context, string) (*coverart.Release, error) {
	return nil, errors.New("no connection")
}

// For each failure, the handler returns an error that leads to a retry. It does not repeat requests itself.
func TestIndexReturnsErrorsForRetries(t *testing.T) {
	tests := map[string]struct {
		prepare  func(*coverart.Indexer, *fakeArchive)
		want     string
		requests int
	}{
		"database": {func(x *coverart.Indexer, _ *fakeArchive) { x.Catalogue = brokenCatalogue{} }, "no connection", 0},
		"web service": {func(x *coverart.Indexer, _ *fakeArchive) {
			x.WebService = fakeService{err: errors.New("out of order")}
		}, "out of order", 1},
		"archive": {func(_ *coverart.Indexer, a *fakeArchive) { a.refuse = "PUT" }, "503 SlowDown: PUT mbid-" + gidA + "/index.json", 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			x, a, _ := newIndexer(t)
			tt.prepare(x, a)
			err := x.Index(t.Context(), message(gidA))
			if err == nil || parked(err) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q and without ParkError", err, tt.want)
			}
			if n := len(a.takeRequests()); n != tt.requests {
				t.Errorf("requests: got %d, want %d (the client must not retry)", n, tt.requests)
			}
		})
	}
}

func TestDelete(t *testing.T) {
	for body, l := range map[string]coverart.Location{
		"12\n" + gidA + "\npng":         {Bucket: "mbid-" + gidA, Key: "mbid-" + gidA + "-12.png"},
		"12\n" + gidA:                   {Bucket: "mbid-" + gidA, Key: "mbid-" + gidA + "-12.jpg"},
		"index.json\n" + gidA + "\njpg": {Bucket: "mbid-" + gidA, Key: "index.json"},
	} {
		x, a, _ := newIndexer(t)
		a.store(l, "picture")
		if err := x.Delete(t.Context(), message(body)); err != nil {
			t.Fatal(err)
		}
		asked := a.takeRequests()
		if len(asked) != 1 {
			t.Fatalf("requests: got %d, want 1", len(asked))
		}
		wantRequest(t, asked[0], "DELETE", l, map[string]string{"x-archive-keep-old-version": "1", "x-archive-cascade-delete": "1"})
		if a.content(l) != "" {
			t.Errorf("object %s still exists", l)
		}
	}
}

func TestDeleteIgnoresMissingObjects(t *testing.T) {
	x, a, log := newIndexer(t)
	if err := x.Delete(t.Context(), message("12\n"+gidA)); err != nil { // the bucket does not exist, either
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "already deleted") {
		t.Errorf("log must contain \"already deleted\": got %s", log)
	}
	a.store(coverart.IndexLocation(gidA), "{}")
	if err := x.Delete(t.Context(), message("12\n"+gidA)); err != nil {
		t.Fatal(err)
	}
	a.refuse = "DELETE"
	if err := x.Delete(t.Context(), message("12\n"+gidA)); err == nil || parked(err) {
		t.Errorf("refused request: got %v, want an error without ParkError", err)
	}
}

// For a removed item, the Internet Archive returns this error instead of status 404.
func TestDeleteOfRemovedItemReturnsErrNotInArchive(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`<Error><Code>BadContent</Code><Message>Uploaded content is unacceptable.</Message>` +
			`<Resource>FATAL ERROR: The item you are trying to edit cannot be retrieved.</Resource></Error>`))
	}))
	defer server.Close()
	archive, err := coverart.NewS3(coverart.S3Config{Endpoint: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if err := archive.Delete(t.Context(), coverart.IndexLocation(gidA), nil); !errors.Is(err, coverart.ErrNotInArchive) {
		t.Errorf("got %v, want ErrNotInArchive", err)
	}
}

func TestMove(t *testing.T) {
	x, a, log := newIndexer(t)
	from, to := coverart.ImageLocation(gidA, "12", "png"), coverart.ImageLocation(gidB, "12", "png")
	body := "12\n" + gidA + "\n" + gidB + "\npng"
	a.store(from, "picture")
	if err := x.Move(t.Context(), message(body)); err != nil {
		t.Fatal(err)
	}
	asked := a.takeRequests()
	if len(asked) != 2 {
		t.Fatalf("requests: got %d, want 2", len(asked))
	}
	wantRequest(t, asked[0], "PUT", to, map[string]string{
		"x-archive-auto-make-bucket": "1", "x-archive-keep-old-version": "1", "x-archive-meta-collection": "coverartarchive",
		"x-archive-meta-mediatype": "image", "x-archive-meta-noindex": "true",
	})
	if source := asked[0].Header.Get("x-amz-copy-source"); strings.TrimPrefix(source, "/") != from.String() {
		t.Errorf("x-amz-copy-source: got %q, want %q", source, from.String())
	}
	wantRequest(t, asked[1], "DELETE", from, map[string]string{"x-archive-keep-old-version": "1", "x-archive-cascade-delete": "1"})
	if a.content(to) != "picture" || a.content(from) != "" {
		t.Error("image not moved")
	}

	// If the image is already at its destination, for example in the attempt after a crash, Move succeeds.
	if err := x.Move(t.Context(), message(body)); err != nil {
		t.Fatal(err)
	}
	if a.content(to) != "picture" || !strings.Contains(log.String(), "already moved") {
		t.Errorf("second move: got object %q, log %s, want \"picture\" and \"already moved\"", a.content(to), log)
	}
}

func TestMoveOfMissingObjectReturnsError(t *testing.T) {
	x, _, _ := newIndexer(t)
	err := x.Move(t.Context(), message("12\n"+gidA+"\n"+gidB))
	if !errors.Is(err, coverart.ErrNotInArchive) || parked(err) {
		t.Errorf("got %v, want ErrNotInArchive without ParkError (a later event may upload the image)", err)
	}
}

// Move copies before it deletes, so that a crash between the two steps does not lose the image.
func TestMoveKeepsOriginalIfCopyFails(t *testing.T) {
	x, a, _ := newIndexer(t)
	from := coverart.ImageLocation(gidA, "12", "jpg")
	a.store(from, "picture")
	a.refuse = "PUT"
	if err := x.Move(t.Context(), message("12\n"+gidA+"\n"+gidB)); err == nil {
		t.Fatal("Move of a refused copy returned no error")
	}
	if a.content(from) != "picture" {
		t.Error("original image not found")
	}
}

func TestIndexerParksMalformedBodies(t *testing.T) {
	x, a, _ := newIndexer(t)
	for event, h := range map[string]reprise.HandlerFunc{"index": x.Index, "delete": x.Delete, "move": x.Move} {
		for body, want := range malformed[event] {
			if err := h(t.Context(), message(body)); !parked(err) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %q: got %v, want a ParkError with %q", event, body, err, want)
			}
		}
	}
	if n := len(a.takeRequests()); n != 0 {
		t.Errorf("requests: got %d, want 0", n)
	}
}
