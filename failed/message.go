package failed

import (
	"errors"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/topology"
)

// ID identifies a message in an archive. IDs ascend in order of arrival, begin
// with 1, and are never used again.
type ID int64

// GroupID identifies a Group.
type GroupID int64

// ReplayID identifies a Replay.
type ReplayID int64

// State is what has become of a message in the archive.
type State string

// The states.
const (
	Failed    State = "failed"    // waits for a person
	Replaying State = "replaying" // part of a replay, and not sent yet
	Replayed  State = "replayed"  // sent back
	Discarded State = "discarded" // dropped by a person
)

// States are all states.
func States() []State { return []State{Failed, Replaying, Replayed, Discarded} }

// Actor is who did something: "cli:root@host", the name of a token,
// "policy:retention". It is never empty in an Act.
type Actor string

// Errors that methods of Archive wrap.
var (
	// ErrNotFound says that the archive has no such message, group or replay.
	ErrNotFound = errors.New("failed: not found")

	// ErrState says that a message or a replay is in a state that does not allow
	// what was asked for, or is not any more what whoever asked has seen; nothing
	// was changed.
	ErrState = errors.New("failed: wrong state")

	// ErrInvalid says that an argument cannot be used, and what to write instead.
	ErrInvalid = errors.New("failed: invalid")

	// ErrUnstorable says that the archive cannot keep a message: a header has a type that AMQP
	// does not know, or nests deeper than any AMQP client reads. No delivered message is like
	// that.
	ErrUnstorable = errors.New("failed: cannot be stored")
)

// Message is a failed message with all that is known of it.
type Message struct {
	ID    ID // 0 on arrival: the archive chooses it
	Group GroupID
	State State

	// Queue is the work queue it failed in, FailedQueue the queue it was taken
	// from. If Queue is empty on arrival, it is FailedQueue without ".failed".
	Queue, FailedQueue string

	// Archived is when it arrived in the archive, to the millisecond.
	Archived time.Time

	// Exchange and RoutingKey are where it was first published, if that is known.
	Exchange, RoutingKey string

	Attempts      int
	Errors        []reprise.AttemptError // oldest first; the middle may be missing
	ErrorsDropped int                    // how many are missing
	Reason        string                 // why it was parked, beside the last error

	// Error is the text of the last error, or why the broker dead-lettered the
	// message, where nothing else is known. Its fingerprint makes the group.
	Error string

	// When it failed first and last, to the millisecond. If LastFailed is zero on
	// arrival, it is Archived.
	FirstFailed, LastFailed time.Time

	// Content is the message as it lay in the failed queue. Nothing is left out but a request for a report.
	Content

	// Edited is what a person made of it; nil if nobody did. It is replayed in
	// place of Content.
	Edited *Content

	// Revision is the number of the edit that Edited is; 0 if nobody has edited it, or
	// the edits were taken back. Whoever edits says which they have seen.
	Revision int

	// ReplayedBy is the latest replay that the message is or was part of, 0 if
	// none has been. A replay that ended before the message was sent is none.
	ReplayedBy ReplayID

	// Outcome is what became of it after ReplayedBy had sent it; "" if it was not sent. WhyUnknown says why it is OutcomeUnknown.
	Outcome    Outcome
	WhyUnknown string

	// Back is the replay that had sent this message before it failed again, and
	// BackOf what it was in that replay; 0 if no replay had sent it.
	Back   ReplayID
	BackOf ID

	// Discarded is why it was discarded, "" if it is not.
	Discarded string

	// Erased says that Archive.Erase has deleted the content, the errors and the ids. It can neither be replayed nor restored.
	Erased bool

	// Refused is why the latest replay could not send it, "" if that did not come
	// to be tried, or has succeeded. It is about the message itself: an edit may mend
	// it, or another target, where nobody knows in which queue it failed.
	Refused string
}

// Current is what a replay sends: Edited if there is such, else Content.
func (m *Message) Current() Content {
	if m.Edited != nil {
		return *m.Edited
	}
	return m.Content
}

// Content is a message's body, headers and properties.
type Content struct {
	Body []byte

	// Headers are all headers but topology.HeaderOutcome, also Reprise's and the broker's own, with the exact
	// types of topology.Table. Values that a program made up may also be int, as
	// 64 bits, and map[string]any: they come back as int64 and topology.Table.
	Headers topology.Table

	Properties Properties
}

// Properties are the properties of a message, as the broker had them. Strings are
// bytes as on the wire, not necessarily UTF-8.
type Properties struct {
	ContentType     string
	ContentEncoding string
	CorrelationID   string
	ReplyTo         string
	MessageID       string
	Type            string
	AppID           string
	UserID          string
	Expiration      string // milliseconds, as text
	Priority        uint8
	Timestamp       time.Time // whole seconds

	// Where it was published to last: as delivered.
	Exchange, RoutingKey string
}

// Summary is a line of a list: a message without its content.
type Summary struct {
	ID                   ID
	Group                GroupID
	State                State
	Queue, FailedQueue   string
	Archived             time.Time
	Exchange, RoutingKey string
	Attempts             int
	Reason               string
	Error                string // cut at 1 KiB
	FirstFailed          time.Time
	LastFailed           time.Time
	Edited               bool
	ReplayedBy           ReplayID
	Outcome              Outcome // of the latest replay, or of that of Filter.SentBy
	WhyUnknown           string  // why Outcome is OutcomeUnknown
	Back                 ReplayID
	BackOf               ID
	Discarded            string
	Refused              string // by the latest replay, or by that of Filter.RefusedBy
	MessageID            string
	Size                 int // of the body as it arrived, in bytes
}

// delivered is a message as an Ingest takes it out of a failed queue.
type delivered struct {
	Message

	// Redelivered is what the broker said. Only a message that was delivered
	// before can be in the archive already.
	Redelivered bool

	// Session is a text that is another one for each connection that messages are
	// delivered on. A delivery of another session is taken to be void, so that its
	// message comes again; within one session no message comes twice.
	Session string

	// Owner has claimed the FailedQueue (claimQueue); ErrState if it is another's
	// now. Empty: nobody needs to have claimed it.
	Owner string
}
