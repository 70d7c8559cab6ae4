package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/reprisemq/reprise/topology"
)

// Names of the exchanges and queues of announced workers: see WorkerStatus and Command.
const (
	// WorkersExchange is the topic exchange to which workers publish their statuses. The routing key is the name of the
	// work queue.
	WorkersExchange = "reprise.workers"

	// ControlExchange is the topic exchange for commands to workers. The routing key is the name of the work queue.
	ControlExchange = "reprise.control"

	// ControlQueuePrefix is the prefix of the names of the queues in which clients receive commands: see ControlQueue.
	ControlQueuePrefix = "reprise.control."

	// LimitQueuePrefix is the prefix of the names of the queues through which processes share limits: see package limit.
	LimitQueuePrefix = "reprise.limits."

	// PauseQueuePrefix is the prefix of the names of the queues that store pauses: see PauseQueue.
	PauseQueuePrefix = "reprise.paused."
)

// IsControlQueue reports whether a queue is for statuses, commands, pauses or retry reports, and not for user messages.
func IsControlQueue(name string) bool {
	return strings.HasPrefix(name, ControlQueuePrefix) || strings.HasPrefix(name, PauseQueuePrefix) || strings.HasPrefix(name, LimitQueuePrefix) || strings.HasPrefix(name, WorkersExchange+".") ||
		strings.HasPrefix(name, RetriesQueuePrefix)
}

// Workers returns the topology of announced workers: WorkersExchange and ControlExchange.
func Workers() topology.Topology {
	return topology.Topology{Exchanges: []topology.Exchange{{Name: WorkersExchange, Kind: topology.Topic}, {Name: ControlExchange, Kind: topology.Topic}}}
}

// ControlQueue returns a queue in which a client receives commands. The random id distinguishes the queues of different
// clients. The queue is exclusive to a connection.
func ControlQueue(id string) topology.Queue {
	return topology.Queue{
		Name: ControlQueuePrefix + id, Transient: true, Exclusive: true, AutoDelete: true,
		Args: topology.Table{"x-queue-type": "classic", "x-max-length": int64(1000)},
	}
}

// PauseQueue returns the queue that stores the pause of a work queue. It returns false if the name of the work queue is too
// long. The work queue is paused if the pause queue has a message (a Pause in JSON) or a consumer. A consumer reads the
// message without acknowledging it, so the broker requeues it when the channel of the consumer closes. If Pause.Until is
// set, the message expires at that time. The pause queue holds at most one message, the newest.
//
// The pause queue must be classic. RabbitMQ reports zero messages for a quorum queue whose leader is unreachable, but
// returns an error for a classic queue on an unreachable node.
func PauseQueue(queue string) (topology.Queue, bool) {
	name := PauseQueuePrefix + queue
	return topology.Queue{Name: name, Args: topology.Table{"x-queue-type": "classic", "x-max-length": int64(1)}}, len(name) <= maxName
}

// States of a worker.
const (
	WorkerConnecting = "connecting" // has no consumer, and is trying to create one
	WorkerConsuming  = "consuming"
	WorkerPaused     = "paused" // deliberately has no consumer
	WorkerStopped    = "stopped"
)

// StatusInterval is the interval at which a worker sends its status. The worker also sends a status when its state
// changes.
const StatusInterval = 15 * time.Second

// StatusVersion is the version that this package writes to WorkerStatus.Version and Command.Version.
const StatusVersion = 1

// WorkerStatus is the status of a worker. Every StatusInterval, and when State changes, the worker publishes its status to
// WorkersExchange, as the JSON body (at most MaxStatus bytes) of a transient message.
type WorkerStatus struct {
	Version int    `json:"v"`
	ID      string `json:"id"` // random, new in each call of Worker.Run
	Queue   string `json:"queue"`

	Client  string `json:"client"` // Config.Name
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Program string `json:"program,omitempty"` // version of the program
	Reprise string `json:"reprise,omitempty"` // version of this module

	Started     time.Time `json:"started"`
	Sent        time.Time `json:"sent"`
	Concurrency int       `json:"concurrency"`

	State   string  `json:"state"`
	Trouble string  `json:"trouble,omitempty"` // reason for the state WorkerConnecting, or for messages that the worker cannot settle
	Pauses  []Pause `json:"pauses,omitempty"`  // all current pauses

	Running  int        `json:"running"`            // number of messages in handlers
	Handling []Handling `json:"handling,omitempty"` // the oldest of these messages, at most MaxHandling

	Keys *Keys `json:"keys,omitempty"` // nil: the worker does not keep the order of keys

	Counts Counts    `json:"counts"` // since Started
	Took   Histogram `json:"took"`   // handling times since Started
}

// MaxBlocked is the maximum length of Keys.Oldest in a status.
const MaxBlocked = 10

// Keys describes the blocked keys of a worker that keeps the order of keys. A key is blocked if its first message waits for a
// retry, or is being retried.
type Keys struct {
	Partitions int          `json:"partitions"`       // of the queue
	Owned      int          `json:"owned"`            // partitions that the worker owns
	Blocked    int          `json:"blocked"`          // number of blocked keys in these partitions
	Behind     int          `json:"behind"`           // messages that the worker has received, and that wait behind the first messages
	Oldest     []BlockedKey `json:"oldest,omitempty"` // the keys that have been blocked for the longest time
}

// BlockedKey is a blocked key.
type BlockedKey struct {
	Key      string    `json:"key"`
	Inexact  bool      `json:"inexact,omitempty"` // the status does not contain all bytes of the key
	Since    time.Time `json:"since,omitzero"`    // first failure of the first message
	Next     time.Time `json:"next,omitzero"`     // next attempt; past or zero: the attempt runs, or begins soon
	Attempts int       `json:"attempts"`          // failed attempts at the first message
	Behind   int       `json:"behind"`            // messages behind it
	Error    string    `json:"error,omitempty"`
}

// Is reports whether k can describe a key.
func (k BlockedKey) Is(key string) bool {
	return k.Key == key && !k.Inexact || k.Inexact && k.Key == truncateLine(key, maxStatusReason) && k.Key != key
}

// MaxHandling is the largest number of messages in WorkerStatus.Handling.
const MaxHandling = 16

// Handling is a message in the handler of a worker.
type Handling struct {
	MessageID string    `json:"id,omitempty"`
	Attempt   int       `json:"attempt"`
	Since     time.Time `json:"since"`
	Progress  *Progress `json:"progress,omitempty"` // nil: the handler has reported none
}

// Progress is the latest report of a handler.
type Progress struct {
	Fraction float64   `json:"fraction,omitzero"` // from 0 to 1
	Text     string    `json:"text,omitempty"`
	At       time.Time `json:"at"`
}

// NewProgress returns a report with valid values.
func NewProgress(fraction float64, text string, at time.Time) Progress {
	if !(fraction > 0) { // also NaN
		fraction = 0
	}
	const steps = 1000 // short JSON
	return Progress{math.Round(min(fraction, 1)*steps) / steps, truncateLine(text, maxStatusName), at.Round(time.Millisecond)}
}

// Counts are totals since a worker started. The difference between the Counts of two statuses with the same ID is the
// activity between the statuses, even if statuses between them were lost.
type Counts struct {
	Succeeded uint64 `json:"succeeded"` // messages that were acknowledged after their handler returned nil
	Failed    uint64 `json:"failed"`    // failed attempts
	Retried   uint64 `json:"retried"`
	Parked    uint64 `json:"parked"`
}

// Sub returns c minus the counts of an earlier status.
func (c Counts) Sub(earlier Counts) Counts {
	return Counts{c.Succeeded - earlier.Succeeded, c.Failed - earlier.Failed, c.Retried - earlier.Retried, c.Parked - earlier.Parked}
}

// TookBuckets is the number of buckets of a Histogram.
const TookBuckets = 25

// Histogram counts durations. Bucket i counts durations of at most TookBound(i) that no earlier bucket counts. The last
// bucket counts all longer durations.
type Histogram struct {
	Buckets [TookBuckets]uint64 `json:"buckets"`
	SumMS   uint64              `json:"sum_ms"` // of all durations, in milliseconds
}

// TookBound returns the upper bound of bucket i: 125 µs, doubled i times. The last bucket, TookBuckets-1, has no upper
// bound.
func TookBound(i int) time.Duration { return 125 * time.Microsecond << i }

// TookBucket returns the bucket of a duration.
func TookBucket(d time.Duration) int {
	if d <= 0 {
		return 0
	}
	return min(bits.Len64(uint64(d-1)/uint64(TookBound(0))), TookBuckets-1)
}

// Count returns the number of durations.
func (h Histogram) Count() (n uint64) {
	for _, b := range h.Buckets {
		n += b
	}
	return n
}

// Sub returns h minus the histogram of an earlier status.
func (h Histogram) Sub(earlier Histogram) Histogram {
	for i := range h.Buckets {
		h.Buckets[i] -= earlier.Buckets[i]
	}
	h.SumMS -= earlier.SumMS
	return h
}

// Add returns the sum of two histograms.
func (h Histogram) Add(other Histogram) Histogram {
	for i := range h.Buckets {
		h.Buckets[i] += other.Buckets[i]
	}
	h.SumMS += other.SumMS
	return h
}

// Quantile returns the upper bound of the bucket that contains the quantile q, such as 0.95. In all buckets between the
// first and the last, the upper bound is at most twice the quantile. For the last bucket, Quantile returns the lower bound.
// If h is empty, Quantile returns 0.
func (h Histogram) Quantile(q float64) time.Duration {
	n := h.Count()
	if n == 0 {
		return 0
	}
	rank := max(1, uint64(q*float64(n)+0.5))
	for i, b := range h.Buckets {
		if b >= rank {
			return TookBound(min(i, TookBuckets-2))
		}
		rank -= b
	}
	return TookBound(TookBuckets - 2)
}

// Values of Pause.Of.
const (
	PauseOfQueue  = "queue"  // an operator has paused all workers of the queue
	PauseOfWorker = "worker" // an operator has paused this worker
	PauseOfItself = "itself" // the worker has paused itself, because of PauseFor, a Breaker or a failed Limiter
)

// Pause is a pause of a worker or a work queue. The body of the message in a PauseQueue is a Pause in JSON.
type Pause struct {
	Of     string    `json:"of,omitempty"`
	By     string    `json:"by,omitempty"` // name of the operator; not verified
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at,omitzero"`
	Until  time.Time `json:"until,omitzero"` // zero: until an operator resumes the worker or queue, or unknown
}

// String returns a short description of the pause.
func (p Pause) String() string {
	var b strings.Builder
	b.WriteString("paused")
	if p.By != "" {
		b.WriteString(" by " + p.By)
	}
	if !p.Until.IsZero() {
		b.WriteString(" until " + p.Until.UTC().Format(time.RFC3339))
	}
	if p.Reason != "" {
		b.WriteString(": " + p.Reason)
	}
	return b.String()
}

// Values of Command.Do.
const (
	DoPause  = "pause"
	DoResume = "resume"
	DoReport = "report" // requests a status from the workers
)

// Command is the JSON body of a message to ControlExchange.
//
// DoPause and DoResume for a queue (Worker is empty) make its workers read the PauseQueue, which determines the pause. For a
// single worker, they pause or resume that worker. The pause of a single worker ends when the worker stops, if not earlier.
type Command struct {
	Version int    `json:"v"`
	Do      string `json:"do"`
	Queue   string `json:"queue,omitempty"`  // work queue; empty (only with DoReport): all queues
	Worker  string `json:"worker,omitempty"` // WorkerStatus.ID; empty: all workers of the queue
	Pause   Pause  `json:"pause,omitzero"`   // for DoPause
}

// MaxStatus is the maximum size of an encoded status, command or pause in bytes.
const MaxStatus = 4 << 10

// Limits of strings, in bytes.
const (
	maxStatusReason = 160
	maxStatusName   = 64
)

// Encode returns the JSON of a status. It truncates long strings other than ID and Queue. If the JSON exceeds MaxStatus,
// Encode removes texts and then messages from Handling, and returns an error if this is not sufficient.
func (s WorkerStatus) Encode() ([]byte, error) {
	s.Version = StatusVersion
	s.Client, s.Host = truncateLine(s.Client, maxStatusName), truncateLine(s.Host, maxStatusName)
	s.Program, s.Reprise = truncateLine(s.Program, maxStatusName), truncateLine(s.Reprise, maxStatusName)
	s.Trouble = truncateLine(s.Trouble, maxStatusReason)
	pauses := make([]Pause, len(s.Pauses))
	for i, p := range s.Pauses {
		pauses[i] = p.truncated()
	}
	s.Pauses = pauses
	handling := make([]Handling, 0, MaxHandling)
	for _, h := range s.Handling[:min(len(s.Handling), MaxHandling)] {
		h.MessageID = truncateLine(h.MessageID, maxStatusName)
		handling = append(handling, h)
	}
	if s.Keys != nil {
		keys := *s.Keys
		keys.Oldest = slices.Clone(keys.Oldest[:min(len(keys.Oldest), MaxBlocked)])
		for i := range keys.Oldest {
			k := &keys.Oldest[i]
			key := truncateLine(k.Key, maxStatusReason)
			k.Key, k.Inexact, k.Error = key, k.Inexact || key != k.Key, truncateLine(k.Error, maxStatusReason)
			k.Since, k.Next = k.Since.Round(time.Millisecond), k.Next.Round(time.Millisecond)
		}
		s.Keys = &keys
	}
	for s.Handling = handling; ; s.shorten() {
		b, err := encodeJSON(s)
		if err != nil || len(b) <= MaxStatus {
			return b, err
		}
		if len(s.Handling) == 0 && (s.Keys == nil || len(s.Keys.Oldest) == 0) {
			return nil, fmt.Errorf("protocol: status of a worker must have at most %d bytes: got %d", MaxStatus, len(b))
		}
	}
}

// shorten removes the text of the newest message that has one. If none has, it truncates the error of the newest key that has a long
// one, or removes the newest key or message.
func (s *WorkerStatus) shorten() {
	for i := len(s.Handling) - 1; i >= 0; i-- {
		if p := s.Handling[i].Progress; p != nil && p.Text != "" {
			short := *p
			short.Text = ""
			s.Handling[i].Progress = &short
			return
		}
	}
	if s.Keys != nil {
		for i := len(s.Keys.Oldest) - 1; i >= 0; i-- {
			if k := &s.Keys.Oldest[i]; len(k.Error) > maxStatusName {
				k.Error = truncateLine(k.Error, maxStatusName)
				return
			}
		}
	}
	if s.Keys != nil && len(s.Keys.Oldest) > len(s.Handling)/2 {
		s.Keys.Oldest = s.Keys.Oldest[:len(s.Keys.Oldest)-1]
		return
	}
	s.Handling = s.Handling[:len(s.Handling)-1]
}

// ReadWorkerStatus decodes the status in the body of a message, and reports whether the status is valid.
func ReadWorkerStatus(body []byte) (s WorkerStatus, ok bool) {
	ok = len(body) <= MaxStatus && json.Unmarshal(body, &s) == nil && s.Version == StatusVersion && s.ID != "" && s.Queue != "" && len(s.Handling) <= MaxHandling
	return s, ok
}

// Encode returns the JSON of a command. It truncates long strings in c.Pause.
func (c Command) Encode() ([]byte, error) {
	c.Version, c.Pause = StatusVersion, c.Pause.truncated()
	return encodeJSON(c)
}

// ReadCommand decodes the command in the body of a message, and reports whether the command is valid.
func ReadCommand(body []byte) (c Command, ok bool) {
	ok = len(body) <= MaxStatus && json.Unmarshal(body, &c) == nil && c.Version == StatusVersion
	return c, ok
}

// Encode returns the JSON of a pause. It truncates long strings.
func (p Pause) Encode() ([]byte, error) { return encodeJSON(p.truncated()) }

// ReadPause decodes the pause in the body of a message. If the body is not a valid pause, ReadPause returns the zero value.
func ReadPause(body []byte) (p Pause) {
	if len(body) > MaxStatus || json.Unmarshal(body, &p) != nil {
		return Pause{}
	}
	return p
}

func (p Pause) truncated() Pause {
	p.By, p.Reason = truncateLine(p.By, maxStatusName), truncateLine(p.Reason, maxStatusReason)
	return p
}

// encodeJSON encodes v. It does not escape <, > and &, because each escape sequence has six bytes.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// truncateLine truncates a string to at most limit bytes of valid UTF-8 in one line.
func truncateLine(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.ToValidUTF8(s, "")
}
