package demo

import (
	"encoding/xml"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise/examples/coverart"
)

// The store refuses one and the same request maxStreak times in a row at most,
// and when it was let through at last, spares it the next times. Work that
// takes two requests then fails four times, which is what the design allows: so
// next to nothing ends in the failed queue by mere bad luck, and every run
// tells the same story.
const (
	maxStreak = 2
	spared    = 8
)

// faults makes a store behave as one does that many people use: it takes its
// time, refuses a share of the requests, and one bucket altogether.
type faults struct {
	rate    float64       // share of requests that are refused
	latency time.Duration // longest delay of an answer
	refused string        // bucket that nothing can be done with
	next    http.Handler

	mu      sync.Mutex
	rng     *rand.Rand
	streaks map[string]int // by request: refusals in a row; negative: how often it is spared yet
}

func newFaults(o Options) *faults {
	return &faults{
		rate: o.FaultRate, latency: o.Latency, refused: coverart.Bucket(refusedGID),
		rng: rand.New(rand.NewPCG(o.Seed, 2)), streaks: map[string]int{},
	}
}

// slowDown is S3's error document.
type slowDown struct {
	XMLName   xml.Name `xml:"Error"`
	Code      string
	Message   string
	Resource  string
	RequestID string `xml:"RequestId"`
}

// ServeHTTP implements http.Handler.
func (f *faults) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	wait, refuse := f.roll(r)
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
	}
	if !refuse {
		f.next.ServeHTTP(w, r)
		return
	}
	// A client that is still writing when the connection goes would see a
	// broken pipe in place of the answer.
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = io.WriteString(w, xml.Header)
	_ = xml.NewEncoder(w).Encode(slowDown{ // it cannot fail but by the connection
		Code: "SlowDown", Message: "Please reduce your request rate.", Resource: r.URL.Path, RequestID: "demo",
	})
}

// roll decides about one request.
func (f *faults) roll(r *http.Request) (wait time.Duration, refuse bool) {
	bucket, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	what := r.Method + " " + r.URL.Path
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.latency > 0 {
		wait = time.Duration(f.rng.Int64N(int64(f.latency)))
	}
	if bucket == f.refused {
		return wait, true
	}
	switch streak := f.streaks[what]; {
	case streak < 0:
		f.streaks[what]++
		return wait, false
	case streak < maxStreak && f.rng.Float64() < f.rate:
		f.streaks[what]++
		return wait, true
	case streak > 0:
		f.streaks[what] = -spared
	}
	return wait, false
}
