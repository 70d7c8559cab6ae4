package failed

import "time"

// Group are the failures of one work queue that have the same fingerprint.
type Group struct {
	ID      GroupID
	Queue   string
	Text    string // the fingerprint's text; "" where no error is known
	Example string // the error of the message that arrived last
	Counts  Counts
	First   time.Time // earliest of the first failures that the archive has ever had of it
	Last    time.Time // latest of the last failures that the archive has ever had of it

	// Hours and Days say how many messages failed when, whatever has become of them since.
	// Both go from older to newer, without gaps, and end with the bucket that is under way.
	Hours []Bucket // 24
	Days  []Bucket // 30, in UTC
}

// Counts are numbers of messages by state.
type Counts struct{ Failed, Replaying, Replayed, Discarded int64 }

// Total is the number of messages in whatever state.
func (c Counts) Total() int64 { return c.Failed + c.Replaying + c.Replayed + c.Discarded }

// Bucket counts the failures from Start until the next one's.
type Bucket struct {
	Start time.Time
	N     int64
}

// GroupFilter selects groups: those for which all that is set holds.
type GroupFilter struct {
	Queue string
	State State  // at least one message is in it
	Text  string // a part of Group.Text, exactly as it is written there

	// MostFailed lists the groups with the most messages in state failed first. Default: the
	// latest failure first.
	MostFailed bool
}

// QueueSummary is what the archive has of a work queue.
type QueueSummary struct {
	Queue  string
	Counts Counts
	Purged int64 // removed by retention, over all time

	// Last failures of the oldest and the newest message in state failed; zero if
	// none is.
	Oldest, Newest time.Time
}
