package handler

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The services of this test repeat parts of the request in their responses.
func TestHTTPErrorsHideSecrets(t *testing.T) {
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"a body": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, "not for "+r.URL.String()+" "+r.URL.Query().Get("token")+" "+r.Header.Get("Authorization"))
		}, "500 Internal Server Error: not for /hook/xxxxx?"},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "https://other.example"+r.URL.String())
			w.WriteHeader(http.StatusMovedPermanently)
		}, "if https://other.example/hook/xxxxx?token=xxxxx&pin=xxxxx&xxxxx is the right place"},
		"a broken connection": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(tc.answer)
			s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
			defer s.Close()
			base := strings.Replace(s.URL, "http://", "http://user:hushpass@", 1)
			h := newHTTP(t, HTTPConfig{
				URL:     base + "/hook/hush%2Fpath?token=hush%26token&pin=12&hushbare#hushfragment",
				Headers: http.Header{"Authorization": {"Bearer hushheader"}},
				Secrets: []string{"hush/path", "hushheader"},
			})
			err := h.Handle(bounded(t), full())
			if err == nil || strings.Contains(err.Error(), "hush") || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one with %q", err, tc.want)
			}
			if shown := "/hook/xxxxx?token=xxxxx&pin=xxxxx&xxxxx: "; !strings.Contains(err.Error(), shown) {
				t.Errorf("error %v does not contain the URL", err)
			}
		})
	}
}
