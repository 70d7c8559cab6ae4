package standin_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/examples/coverart/coverart"
	"github.com/reprisemq/reprise/examples/coverart/internal/standin"
)

func serve(t *testing.T, h http.Handler) (url string, client *http.Client) {
	t.Helper()
	s, err := standin.Serve(h)
	if err != nil {
		t.Fatal(err)
	}
	client = &http.Client{Transport: &http.Transport{}}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.URL, client
}

func TestWebService(t *testing.T) {
	url, client := serve(t, standin.WebService(&coverart.Memory{Releases: []coverart.Release{
		{GID: "76df3287-6cda-33eb-8e9a-044b5e15ffdd", Title: "Dummy", Artist: "Portishead"},
		{GID: "2", Title: "Third", Artist: "Portishead", Date: "2008-04-28"},
	}}))
	service := &coverart.HTTPWebService{BaseURL: url, Client: client}
	for gid, want := range map[string]string{
		"76df3287-6cda-33eb-8e9a-044b5e15ffdd": `<metadata xmlns="http://musicbrainz.org/ns/mmd-2.0#"><release id="76df3287-6cda-33eb-8e9a-044b5e15ffdd"><title>Dummy</title>` +
			`<artist-credit><name-credit><artist><name>Portishead</name></artist></name-credit></artist-credit></release></metadata>`,
		"2": `</artist-credit><date>2008-04-28</date></release>`,
	} {
		if xml, err := service.ReleaseXML(t.Context(), gid); err != nil || !strings.Contains(string(xml), want) {
			t.Errorf("%s: got %s, %v\nwant: %s", gid, xml, err, want)
		}
	}
	if _, err := service.ReleaseXML(t.Context(), "3"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("unknown release: got %v, want status 404", err)
	}
}

// The client of the indexer can create buckets in the Store, and finds objects from Upload.
func TestStore(t *testing.T) {
	store := standin.NewStore()
	url, client := serve(t, store)
	archive, err := coverart.NewS3(coverart.S3Config{Endpoint: url, Transport: client.Transport})
	if err != nil {
		t.Fatal(err)
	}
	uploaded, created := coverart.Location{Bucket: "mbid-1", Key: "mbid-1-1.jpg"}, coverart.Location{Bucket: "mbid-2", Key: "mbid-2-1.jpg"}
	if err := store.Upload(uploaded, []byte("picture")); err != nil {
		t.Fatal(err)
	}
	err = archive.Put(t.Context(), coverart.Object{Location: created, ContentType: "text/plain", Body: []byte("x"), Headers: http.Header{"X-Archive-Auto-Make-Bucket": {"1"}}})
	if err != nil {
		t.Errorf("cannot create bucket on demand: %v", err)
	}
	if err := errors.Join(archive.Delete(t.Context(), uploaded, nil), archive.Delete(t.Context(), created, nil)); err != nil {
		t.Error(err)
	}
}
