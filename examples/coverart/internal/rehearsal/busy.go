package rehearsal

import (
	"net/http"
	"strings"
	"sync"
)

// overloadedService simulates an overloaded web service, which rejects the first busyTimes requests for one release.
type overloadedService struct {
	gid  string
	next http.Handler

	mu    sync.Mutex
	times int // number of requests that are still to be rejected
}

// ServeHTTP implements http.Handler.
func (b *overloadedService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/"+b.gid) && b.still() {
		http.Error(w, "The MusicBrainz web server is currently busy.", http.StatusServiceUnavailable)
		return
	}
	b.next.ServeHTTP(w, r)
}

func (b *overloadedService) still() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.times == 0 {
		return false
	}
	b.times--
	return true
}
