package pages

import (
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
)

// rateWindow is the period over which the rate of a replay is measured.
const rateWindow = 10 * time.Second

// replayRates measures the rates of running replays. It has samples only while pages listen for events (see live).
type replayRates struct {
	mu      sync.Mutex
	samples map[failed.ReplayID][]rateSample // oldest first; at most one sample is older than rateWindow
}

type rateSample struct {
	at   time.Time
	sent int64
}

// observe records the progress of the running replays.
func (r *replayRates) observe(now time.Time, running []failed.Replay) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.samples
	r.samples = make(map[failed.ReplayID][]rateSample, len(running))
	for _, replay := range running {
		all := before[replay.ID]
		for len(all) > 1 && now.Sub(all[1].at) >= rateWindow {
			all = all[1:]
		}
		if n := len(all); n == 0 || now.Sub(all[n-1].at) >= time.Second/2 {
			all = append(all, rateSample{now, replay.Sent})
		}
		r.samples[replay.ID] = all
	}
}

// rate returns the current rate of a replay in messages per second. If the samples span less than two seconds, rate
// returns the average since the start of the replay.
func (r *replayRates) rate(now time.Time, replay *failed.Replay) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if all := r.samples[replay.ID]; len(all) > 0 && now.Sub(all[0].at) >= 2*time.Second {
		return float64(max(replay.Sent-all[0].sent, 0)) / now.Sub(all[0].at).Seconds()
	}
	return float64(replay.Sent) / max(now.Sub(replay.Begun).Seconds(), 1)
}
