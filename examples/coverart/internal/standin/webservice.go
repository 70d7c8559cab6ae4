// Package standin simulates, in this process, the services that the cover art indexer uses: the web service of
// MusicBrainz, and a store like the store of the Internet Archive. Both are HTTP handlers.
package standin

import (
	"encoding/xml"
	"errors"
	"io"
	"net/http"

	"github.com/reprisemq/reprise/examples/coverart/coverart"
)

// These types model the parts of a MusicBrainz response (inc=artists) that the stand-in returns.
type (
	mmdMetadata struct {
		XMLName xml.Name   `xml:"http://musicbrainz.org/ns/mmd-2.0# metadata"`
		Release mmdRelease `xml:"release"`
	}
	mmdRelease struct {
		ID     string `xml:"id,attr"`
		Title  string `xml:"title"`
		Artist string `xml:"artist-credit>name-credit>artist>name"`
		Date   string `xml:"date,omitempty"`
	}
)

// WebService simulates musicbrainz.org. It serves the releases of the catalogue at /ws/2/release/{gid}.
func WebService(c coverart.Catalogue) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ws/2/release/{gid}", func(w http.ResponseWriter, r *http.Request) {
		release, err := c.Release(r.Context(), r.PathValue("gid"))
		switch {
		case errors.Is(err, coverart.ErrUnknownRelease):
			http.Error(w, "Not Found", http.StatusNotFound)
			return
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/xml; charset=utf-8")
		_, _ = io.WriteString(w, xml.Header)
		_ = xml.NewEncoder(w).Encode(mmdMetadata{Release: mmdRelease{ // only the connection can cause an error
			ID: release.GID, Title: release.Title, Artist: release.Artist, Date: release.Date,
		}})
	})
	return mux
}
