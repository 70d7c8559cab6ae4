package simulation

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/reprisemq/reprise/broker/internal/simulation/archive"
)

// Shape describes the parts of a simulated system.
type Shape struct {
	Disk    bool          // the broker has a data directory
	Horizon time.Duration // latest time of a step
	Acts    int           // number of drawn acts
	Latency time.Duration // of each direction of a connection
	Sync    time.Duration // duration of an fsync
	Works   []Work
	Archive *archive.Options // nil: failed messages stay in their queues
	Outbox  *Outbox          // nil: all publishers publish to the broker

	// Compaction is the duration of each fsync of a compaction. If it is not 0, a table has few messages, so that
	// compactions are frequent.
	Compaction time.Duration
}

// Work is a work queue with its workers.
type Work struct {
	Design      string // name of a registered design
	Name        string // short and unique, without dots
	Classic     bool   // the work queue is classic
	Attempts    int    // Policy.MaxAttempts
	Delays      []time.Duration
	Workers     int // processes
	Concurrency int
	FailedMax   int // maximum length of the failed queue; 0: no limit
	Foreign     int // number of other programs that consume the queue
}

// Names returns the names of the works.
func (s Shape) Names() (names []string) {
	for _, w := range s.Works {
		names = append(names, w.Name)
	}
	return names
}

// Only contains the designs that a shape may use; empty: all designs.
var Only []string

func drawShape(random *rand.Rand) Shape {
	s := Shape{Disk: random.IntN(2) == 0, Acts: 20 + random.IntN(60)}
	if s.Disk {
		s.Horizon = between(random, 10*time.Minute, 4*time.Hour)
		s.Sync = oneOf(random, 0, time.Millisecond, 5*time.Millisecond, 20*time.Millisecond, 2*time.Second)
		s.Compaction = oneOf(random, 0, 50*time.Millisecond, 5*time.Second)
	} else {
		s.Horizon = between(random, time.Hour, 3*24*time.Hour)
	}
	s.Latency = oneOf(random, 0, 0, 100*time.Microsecond, 5*time.Millisecond, 80*time.Millisecond)
	var names []string
	for _, d := range designs {
		if d.Name != steadyName && (len(Only) == 0 || slices.Contains(Only, d.Name)) {
			names = append(names, d.Name)
		}
	}
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names[:min(len(names), 2+random.IntN(3))] {
		s.Works = append(s.Works, drawWork(random, name))
	}
	s.Works = append(s.Works, drawSteady())
	return s
}

func drawWork(random *rand.Rand, design string) Work {
	w := Work{
		Design: design, Name: design, Classic: random.IntN(3) == 0,
		Attempts: 1 + random.IntN(5), Workers: 1 + random.IntN(2), Concurrency: 1 + random.IntN(4),
	}
	for range 3 {
		w.Delays = append(w.Delays, between(random, 500*time.Millisecond, time.Hour).Truncate(time.Millisecond))
	}
	slices.Sort(w.Delays)
	if d := findDesign(design); d.Quorum {
		w.Classic = false
	}
	if slices.Contains([]string{"buckets", "levels", "deadletter", "requeue", "delayed"}, design) && random.IntN(4) == 0 {
		w.FailedMax = 5 + random.IntN(30)
	}
	if design == onceName { // so that duplicates have time to arrive
		w.Attempts, w.Delays[2] = 12, max(w.Delays[2], 10*time.Minute)
	}
	if design == "coverart" { // with 0 retries, the default would apply
		w.Attempts = max(2, w.Attempts)
	}
	if findDesign(design).Foreign != nil {
		w.Foreign = random.IntN(2)
	}
	if w.Foreign > 0 && design == "coverart" {
		w.Attempts = 1 + coverArtRetries
	}
	if w.Foreign > 0 && design == "cdnpurge" { // each delay is three times the previous delay
		w.Delays[0] = min(w.Delays[0], 30*time.Second)
	}
	return w
}
