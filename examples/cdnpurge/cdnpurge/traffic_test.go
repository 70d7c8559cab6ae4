package cdnpurge_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise/examples/cdnpurge/cdnpurge"
)

// The load of the week and the capacity of the CDN.

const (
	day  = 24 * time.Hour
	week = 7 * day

	peakBegins, peakEnds = 20 * time.Hour, 26 * time.Hour // since midnight; the peak ends on the next day

	room = 70 // capacity of the CDN's queue, in purges
)

// peak reports whether an hour of the week is a peak hour of the CDN.
func peak(hour int) bool {
	h := time.Duration(hour%24) * time.Hour
	return h >= peakBegins || h < peakEnds-day
}

// perHour returns the number of purges that the service publishes in an hour of the week. The hours are counted from
// Monday, 0:00. The number is low at night and highest in the peak hours. On weekends, it is half as high.
func perHour(hour int) float64 {
	n := 80.0
	switch h := hour % 24; {
	case peak(hour):
		n = 160
	case h < 7:
		n = 10
	}
	if hour/24 >= 5 {
		n /= 2
	}
	return n
}

// capacity returns the number of purges per hour that the CDN processes for this service. It is low in the peak hours,
// in which all customers of the CDN purge.
func capacity(since time.Duration) float64 {
	hour := int(since.Hours()) % (7 * 24)
	if peak(hour) {
		if hour/24 >= 5 {
			return 60
		}
		return 40
	}
	return 400
}

// purge is a message of the week.
type purge struct {
	id, kind string
	at       time.Duration // since the beginning of the week
}

// traffic returns the purges of the week. The result depends only on the seed.
func traffic(seed uint64) (all []purge) {
	random := rand.New(rand.NewPCG(seed, 0))
	at := time.Duration(0)
	for at < week {
		at += time.Duration(random.ExpFloat64() / perHour(int(at.Hours())) * float64(time.Hour))
		all = append(all, purge{id: fmt.Sprint(len(all)), kind: cdnpurge.Kinds[random.IntN(len(cdnpurge.Kinds))], at: at})
	}
	return all[:len(all)-1]
}

// transport simulates the network between the purger and the CDN. A call takes one to three seconds. The exact duration
// depends only on the purge and on the number of calls for it, not on the order of other calls.
type transport struct {
	http.Handler

	mu    sync.Mutex
	calls map[string]uint64
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := r.GetBody()
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	id := strings.Trim(string(content), `{"objects:[]}`)
	t.mu.Lock()
	t.calls[id]++
	n := t.calls[id]
	t.mu.Unlock()
	if err := pause(r.Context(), time.Second+time.Duration(drawn(id, n)*float64(2*time.Second))); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	t.ServeHTTP(w, r)
	return w.Result(), nil
}

// drawn returns a pseudorandom number in [0, 1) that depends only on id and n.
func drawn(id string, n uint64) float64 {
	h := fnv.New64a()
	_, _ = h.Write(binary.BigEndian.AppendUint64([]byte(id), n))
	return rand.New(rand.NewPCG(h.Sum64(), n)).Float64()
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
