package failed

import (
	"errors"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/topology"
)

// ID identifies a message in an archive. IDs begin with 1, ascend in order of arrival, and are never reused.
type ID int64

// GroupID identifies a Group.
type GroupID int64

// ReplayID identifies a Replay.
type ReplayID int64

// State is the state of a message in the archive.
type State string

// The states of a message.
const (
	Failed    State = "failed"    // needs attention
	Replaying State = "replaying" // part of a replay, and not sent yet
	Replayed  State = "replayed"  // sent by a replay
	Discarded State = "discarded" // discarded by an operator
)

// States returns all states.
func States() []State { return []State{Failed, Replaying, Replayed, Discarded} }

// Actor names the user or policy that performed an action, for example "cli:root@host", "policy:retention" or the name
// of a token. It is never empty in an Act.
type Actor string

// Errors that methods of Archive wrap.
var (
	// ErrNotFound is returned if the archive does not contain the message, revision, group or replay, or if a new
	// replay would have no messages.
	ErrNotFound = errors.New("not found")

	// ErrState is returned if the state of a message or a replay does not allow the
	// action, or if it has changed since the caller read it. The archive is unchanged.
	ErrState = errors.New("wrong state")

	// ErrInvalid is returned for an invalid argument.
	ErrInvalid = errors.New("invalid")

	// ErrUnstorable is returned if the archive cannot store a message, because a header has a type
	// that AMQP does not define, or is nested deeper than AMQP clients can read. Delivered messages
	// do not have such headers.
	ErrUnstorable = errors.New("cannot store message")
)

// Message is a failed message with all its recorded details.
type Message struct {
	ID    ID // 0 on arrival, because the archive assigns it
	Group GroupID
	State State

	// Queue is the work queue in which the message failed. FailedQueue is the queue from which the archive took it. If
	// Queue is empty on arrival, it is set to FailedQueue without ".failed".
	Queue, FailedQueue string

	// Archived is the time of arrival in the archive, to the millisecond.
	Archived time.Time

	// Exchange and RoutingKey are the destination of the first publish, if known.
	Exchange, RoutingKey string

	Attempts      int
	Errors        []reprise.AttemptError // oldest first; errors in the middle may be missing
	ErrorsDropped int                    // number of missing errors
	Reason        string                 // reason why the worker parked the message, in addition to the last error

	// Error is the last error. If it is unknown, Error is the broker's reason for
	// dead-lettering the message. The fingerprint of Error determines the group.
	Error string

	// FirstFailed and LastFailed are the times of the first and the last failure, to the millisecond. If LastFailed is
	// zero on arrival, it is set to Archived; if FirstFailed is zero, it is set to LastFailed.
	FirstFailed, LastFailed time.Time

	// Content is the content of the message in the failed queue, without the request for an outcome report.
	Content

	// Edited is the edited content, which a replay sends instead of Content. It is nil if Revision is 0.
	Edited *Content

	// Revision is the number of the edit in Edited. It is 0 if the message was not edited or the edits were undone.
	// Pass it to Edit or Revert, which then detect other edits.
	Revision int

	// ReplayedBy is the latest replay that includes or included the message, or 0. Replays that could not send the
	// message, or ended before they sent it, do not count.
	ReplayedBy ReplayID

	// Outcome is the outcome of the message after ReplayedBy sent it, or "" if it was not sent. WhyUnknown is the
	// reason for OutcomeUnknown.
	Outcome    Outcome
	WhyUnknown string

	// Back is the replay that sent this message before it failed again. BackOf is the ID that the message had in that
	// replay. Both are 0 if no replay sent it.
	Back   ReplayID
	BackOf ID

	// Discarded is the reason for the discard, or "" if the message is not discarded.
	Discarded string

	// Erased reports whether Archive.Erase has deleted the content, the errors, the message ID and the routing key. An
	// erased message can be neither replayed nor restored.
	Erased bool

	// Refused is the reason why the latest replay could not send the message. It is "" if the replay sent the message
	// or did not try to. The cause is the message itself, so an edit may remove the cause. If the work queue is
	// unknown, set Plan.To.
	Refused string
}

// Current returns the content that a replay sends: Edited if it is set, else Content.
func (m *Message) Current() Content {
	if m.Edited != nil {
		return *m.Edited
	}
	return m.Content
}

// Content is the body, headers and properties of a message.
type Content struct {
	Body []byte

	// Headers are all headers except protocol.HeaderOutcome, including the headers of Reprise and of the broker. They
	// have the exact types of topology.Table. A program may also set values of type int, which the archive returns as int64, or
	// map[string]any, which it returns as topology.Table.
	Headers topology.Table

	Properties Properties
}

// Properties are the properties of a message as the broker delivered them. Strings contain the bytes on the wire, which are
// not necessarily UTF-8.
type Properties struct {
	ContentType     string
	ContentEncoding string
	CorrelationID   string
	ReplyTo         string
	MessageID       string
	Type            string
	AppID           string
	UserID          string
	Expiration      string // milliseconds, in decimal
	Priority        uint8
	Timestamp       time.Time // in whole seconds

	// Zero contains the properties that are present with an empty value, or with priority 0.
	Zero reprise.PropertySet

	// Exchange and RoutingKey are the destination of the last publish, as in the delivery.
	Exchange, RoutingKey string
}

// Summary is a message in a list, without its content.
type Summary struct {
	ID                   ID
	Group                GroupID
	State                State
	Queue, FailedQueue   string
	Archived             time.Time
	Exchange, RoutingKey string
	Attempts             int
	Reason               string
	Error                string // truncated to 1 KiB
	FirstFailed          time.Time
	LastFailed           time.Time
	Edited               bool
	ReplayedBy           ReplayID
	Outcome              Outcome // for the latest replay, or for Filter.SentBy
	WhyUnknown           string  // reason for OutcomeUnknown
	Back                 ReplayID
	BackOf               ID
	Discarded            string
	Refused              string // reason of the latest replay, or of Filter.RefusedBy
	MessageID            string
	Size                 int // size of the body on arrival, in bytes
}

// Arrived is a message that an Ingest takes from a failed queue.
type Arrived struct {
	Message

	// Redelivered is the redelivered flag of the delivery. Only a redelivered message can already be in the archive.
	Redelivered bool

	// Session identifies a period in which the broker delivers each message at most once, such as a connection. In a
	// later session, the broker may redeliver messages of earlier sessions.
	Session string

	// Owner is the owner of the lease of FailedQueue, see ClaimQueue. AddDelivered returns ErrState if Owner was not the last
	// owner to claim the lease. If Owner is empty, AddDelivered does not require a lease.
	Owner string
}

// Validate returns ErrInvalid for an invalid name.
func (who Actor) Validate() error {
	if who == "" {
		return Invalid("Actor must not be empty (example: \"cli:root@host\")")
	}
	return nil
}
