package console

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/console/internal/figures"
	"github.com/reprisemq/reprise/internal/mgmtapi"
)

// If the management API is not reachable, pages report that there are no live figures, but otherwise work.
func TestConsoleWorksWithoutManagement(t *testing.T) {
	if _, err := figures.NewBroker(mgmtapi.API{}, "").Queues(t.Context()); !errors.Is(err, figures.ErrNoFigures) {
		t.Error(err)
	}
	s := httptest.NewServer(nil)
	s.Close()
	c := newConsole(t, Config{Management: &Management{URL: s.URL}})
	add(t, c.cfg.Archive, nil)
	for path, text := range map[string]string{"/": "No live figures.", "/topology": "No live figures."} {
		if w := ask(t, c, "GET", path, nil); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), text) {
			t.Errorf("GET %s: got status %d, want 200; body %s", path, w.Code, w.Body)
		}
	}
}
