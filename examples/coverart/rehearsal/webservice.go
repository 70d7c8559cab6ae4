package rehearsal

import (
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/reprisemq/reprise/examples/coverart"
)

// The part of a MusicBrainz document that inc=artists asks for.
type (
	mmdMetadata struct {
		XMLName xml.Name   `xml:"http://musicbrainz.org/ns/mmd-2.0# metadata"`
		Release mmdRelease `xml:"release"`
	}
	mmdRelease struct {
		ID     string `xml:"id,attr"`
		Title  string `xml:"title"`
		Artist string `xml:"artist-credit>name-credit>artist>name"`
	}
)

// webService stands for musicbrainz.org: it knows the releases of the catalogue, and
// is too busy the first times it is asked about one of them.
type webService struct {
	catalogue coverart.Catalogue
	busyGID   string

	mu   sync.Mutex
	busy int // how often yet
}

// ServeHTTP implements http.Handler.
func (s *webService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	gid := r.PathValue("gid")
	if s.isBusy(gid) {
		http.Error(w, "The MusicBrainz web server is currently busy.", http.StatusServiceUnavailable)
		return
	}
	release, err := s.catalogue.Release(r.Context(), gid)
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
	// It cannot fail but by the connection.
	_ = xml.NewEncoder(w).Encode(mmdMetadata{Release: mmdRelease{ID: release.GID, Title: release.Title, Artist: release.Artist}})
}

func (s *webService) isBusy(gid string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if gid != s.busyGID || s.busy == 0 {
		return false
	}
	s.busy--
	return true
}
