package api

import (
	"time"

	"github.com/reprisemq/reprise/failed"
)

// Counts are numbers of messages by state.
type Counts struct {
	Failed    int64 `json:"failed"`
	Replaying int64 `json:"replaying"`
	Replayed  int64 `json:"replayed"`
	Discarded int64 `json:"discarded"`
}

// Group are the failures of one work queue that have the same fingerprint.
type Group struct {
	ID      int64     `json:"id"`
	Queue   Text      `json:"queue"`
	Text    string    `json:"text"` // error with numbers, ids and addresses blanked; "": none is known
	Example string    `json:"example"`
	Counts  Counts    `json:"counts"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
	Hours   []Bucket  `json:"hours"` // 24, from older to newer
	Days    []Bucket  `json:"days"`  // 30
}

// Bucket counts the failures from Start until the next one's.
type Bucket struct {
	Start time.Time `json:"start"`
	N     int64     `json:"n"`
}

// Groups are a page of a list.
type Groups struct {
	Groups []Group `json:"groups"`
	Next   string  `json:"next,omitempty"`
}

// GroupOf returns a group as it is shown.
func GroupOf(g failed.Group) Group {
	return Group{
		ID: int64(g.ID), Queue: Text(g.Queue), Text: g.Text, Example: g.Example, Counts: Counts(g.Counts),
		First: g.First, Last: g.Last, Hours: bucketsOf(g.Trend.Hours), Days: bucketsOf(g.Trend.Days),
	}
}

func bucketsOf(buckets []failed.Bucket) []Bucket {
	shown := make([]Bucket, len(buckets))
	for i, b := range buckets {
		shown[i] = Bucket(b)
	}
	return shown
}

// Queue is what the archive has of a work queue.
type Queue struct {
	Queue  Text      `json:"queue"`
	Counts Counts    `json:"counts"`
	Purged int64     `json:"purged"`          // removed by retention
	Oldest time.Time `json:"oldest,omitzero"` // last failure of the oldest message in state failed
	Newest time.Time `json:"newest,omitzero"`
}

// Queues are all work queues of which there ever was a message.
type Queues struct {
	Queues []Queue `json:"queues"`
}

// QueueOf returns a work queue as it is shown.
func QueueOf(q failed.QueueSummary) Queue {
	return Queue{Queue: Text(q.Queue), Counts: Counts(q.Counts), Purged: q.Purged, Oldest: q.Oldest, Newest: q.Newest}
}
