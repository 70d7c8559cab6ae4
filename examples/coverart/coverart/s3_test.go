package coverart_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/examples/coverart/coverart"
)

func TestNewS3RejectsInvalidEndpoints(t *testing.T) {
	for _, endpoint := range []string{"", "s3.us.archive.org", "ftp://x", "http://", "http://x/path", "http://[::1"} {
		if _, err := coverart.NewS3(coverart.S3Config{Endpoint: endpoint}); err == nil {
			t.Errorf("endpoint %q accepted", endpoint)
		}
	}
}

// Amazon responds to a put with 200, to a delete with 204, and to a copy with 200 and a document. Other stores respond
// differently.
func TestS3AcceptsAnySuccessStatus(t *testing.T) {
	const failed = `<Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>`
	for _, tc := range []struct {
		status               int
		body                 string
		putFails, othersFail bool
	}{
		{status: 200},
		{status: 201},
		{status: 202, body: "queued"},
		{status: 204},
		{status: 200, body: failed, othersFail: true},
		{status: 307, putFails: true, othersFail: true},
		{status: 403, putFails: true, othersFail: true},
		{status: 500, body: failed, putFails: true, othersFail: true},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tc.status)
			if tc.status != http.StatusNoContent {
				_, _ = io.WriteString(w, tc.body)
			}
		}))
		archive, err := coverart.NewS3(coverart.S3Config{Endpoint: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		l := coverart.IndexLocation(gidA)
		if err := archive.Put(t.Context(), coverart.Object{Location: l, Body: []byte("{}")}); (err != nil) != tc.putFails {
			t.Errorf("%d %q: put: got %v, want failure %t", tc.status, tc.body, err, tc.putFails)
		}
		if err := archive.Delete(t.Context(), l, nil); (err != nil) != tc.othersFail {
			t.Errorf("%d %q: delete: got %v, want failure %t", tc.status, tc.body, err, tc.othersFail)
		}
		if err := archive.Copy(t.Context(), l, coverart.IndexLocation(gidB), nil); (err != nil) != tc.othersFail {
			t.Errorf("%d %q: copy: got %v, want failure %t", tc.status, tc.body, err, tc.othersFail)
		} else if err != nil && strings.Contains(tc.body, "Error") && !strings.Contains(err.Error(), "InternalError") {
			t.Errorf("copy: got %v, want the code InternalError of the store", err)
		}
		server.Close()
	}
}
