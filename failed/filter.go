package failed

import "time"

// Filter selects messages: those for which all that is set holds. The zero Filter
// selects all where messages are looked at. Where something is done to them it is ErrInvalid,
// lest one that was forgotten be taken for everything.
type Filter struct {
	// All says that all messages are meant. Nothing else is set then.
	All bool

	Queue  string  // the work queue
	States []State // nil: whatever the state; empty: none
	Group  GroupID

	// Since and Until bound the time of the last failure: Since ≤ it < Until.
	Since, Until time.Time

	// Text are words, all of which are in the errors, the ids or the body. It has
	// no syntax: all but letters and digits separates words.
	Text string

	// Error is a part of the last error, exactly as it is written there, from the middle of
	// a word on if need be. Quicker with a whole word in it. An Error of blanks alone is
	// ErrInvalid.
	Error string

	// Headers are names and values that top-level headers must have, as HeaderText
	// writes them.
	Headers map[string]string

	// MinAttempts and MaxAttempts bound the number of attempts, both included. 0:
	// not at all.
	MinAttempts, MaxAttempts int

	IDs []ID // if not nil: those alone

	// Replay selects what came back from a replay: see Message.Back.
	Replay ReplayID

	// Refused selects what a replay could not send: see Message.Refused.
	Refused bool

	// RefusedBy selects what this replay could not send, whatever has become of it since.
	// Summary.Refused is why, then, also where a later replay has sent it.
	RefusedBy ReplayID

	// AtMost makes an act (Discard, Restore, BeginReplay) return ErrState and change nothing
	// if it would be done to more messages, such as those that failed since a person
	// confirmed a number. It does not select messages. 0: no bound.
	AtMost int64 `json:",omitempty"`
}

// Page is a part of a list.
type Page struct {
	After Cursor
	Size  int // at most so many; default 50, at most 1000
}

// Defaults and bounds of Page.Size.
const (
	DefaultPageSize = 50
	MaxPageSize     = 1000
)

// Total is a number that may have been too costly to count to the end.
type Total struct {
	N    int64
	More bool // there are more than N
}
