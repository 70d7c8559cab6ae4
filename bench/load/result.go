package load

import (
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result contains the measurements of a run. Each rate is in messages per second, from the start of the measurement to
// the last publish, confirm or delivery, respectively.
type Result struct {
	Published          int64   `json:"published"`
	Confirmed          int64   `json:"confirmed"`
	Delivered          int64   `json:"delivered"`
	PublishedPerSecond float64 `json:"published_per_s"`
	ConfirmedPerSecond float64 `json:"confirmed_per_s"`
	DeliveredPerSecond float64 `json:"delivered_per_s"`
	Seconds            float64 `json:"seconds"` // time from the start of the measurement to the last of these events

	Latency  *Percentiles `json:"publish_to_deliver,omitempty"`
	Lateness *Lateness    `json:"lateness,omitempty"` // nil unless Options.TTL is set

	CPUSeconds float64 `json:"cpu_s"` // processor time of the generator during the measurement
}

// Percentiles contains percentiles of measured durations, in microseconds.
type Percentiles struct {
	P50  float64 `json:"p50_us"`
	P90  float64 `json:"p90_us"`
	P99  float64 `json:"p99_us"`
	P999 float64 `json:"p999_us"`
	Max  float64 `json:"max_us"`
}

// Lateness describes the time from the expiry of the TTL to the delivery. A message that is delivered before the expiry
// counts as early, with a lateness of 0.
type Lateness struct {
	Percentiles
	Late  int64 `json:"late"`
	Early int64 `json:"early"`
}

func percentiles(h *hdrhistogram.Histogram) Percentiles {
	at := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1e3 }
	return Percentiles{P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: float64(h.Max()) / 1e3}
}

func rate(n, from, to int64) float64 {
	if n == 0 || to <= from {
		return 0
	}
	return float64(n) / time.Duration(to-from).Seconds()
}

// cpu returns the processor time that this process has used, in seconds.
func cpu() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
