package failed

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/params"
)

// Filter selects the messages that meet all conditions that are set. For reads, the zero Filter selects all messages.
// Actions refuse the zero Filter with ErrInvalid, so that a filter that is empty by mistake does not select all
// messages.
//
// A Filter can be written as URL parameters (Values, ParseFilter), as JSON and as text (String).
type Filter struct {
	// All selects all messages for an action. It cannot be combined with other conditions.
	All bool `json:"-"`

	Queue  params.Text `json:"queue,omitempty"` // the work queue
	States []State     `json:"states,omitzero"` // nil: all states; empty but not nil: no messages
	Group  GroupID     `json:"group,omitempty"`

	// Since and Until limit the time of the last failure: Since ≤ time < Until.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`

	// Text contains words. Each word must occur in the errors, the reason, the message id, the correlation id or the
	// first 256 KiB of a textual body. The search does not cover edits. It matches whole words and ignores case. Text
	// has no syntax: all characters except letters and digits separate words. The search does not find secrets that
	// Config.Redact hides.
	Text string `json:"text,omitempty"`

	// Error is a case-sensitive substring of the last error. It may begin inside a word. The search is faster if Error
	// includes a whole word. Validate returns ErrInvalid for an Error that contains only blanks.
	Error string `json:"error,omitempty"`

	// Headers contains names and values of top-level headers. Write numbers in decimal, and times in UTC in the format
	// of RFC 3339. The search does not find tables, arrays, bytes, or strings of more than 256 bytes.
	Headers params.Texts `json:"headers,omitempty"`

	// MinAttempts and MaxAttempts are inclusive bounds of the number of attempts. 0: no bound.
	MinAttempts int `json:"min_attempts,omitempty"`
	MaxAttempts int `json:"max_attempts,omitempty"`

	IDs []ID `json:"ids,omitzero"` // nil: no restriction

	// Replay selects the messages that failed again after this replay, see Message.Back.
	Replay ReplayID `json:"replay,omitempty"`

	// Refused selects the messages that their latest replay could not send, see Message.Refused.
	Refused bool `json:"refused,omitempty"`

	// RefusedBy selects the messages that this replay could not send, regardless of their current
	// state. Summary.Refused then contains the reason of this replay, even if a later replay sent the message.
	RefusedBy ReplayID `json:"refused_by,omitempty"`

	// SentBy selects the messages that this replay sent, regardless of their current state.
	SentBy ReplayID `json:"sent_by,omitempty"`

	// Outcome selects the messages with this outcome among the messages of SentBy. Summary.Outcome then refers to that
	// replay.
	Outcome Outcome `json:"outcome,omitempty"`

	// Act selects the messages that were last discarded, restored or reverted by this act. Restore with the act of a
	// Discard therefore restores only the messages that this Discard discarded.
	Act int64 `json:"act,omitempty"`

	// AtMost limits an action (Discard, Restore, Erase, BeginReplay). If the filter selects more messages, the action
	// returns ErrState and changes nothing. This protects against acting on messages that failed after an operator
	// confirmed the number. AtMost is not a condition for selecting messages. 0: no limit.
	AtMost int64 `json:"-"`

	// Through selects the messages that were in the archive when Archive.Newest returned this ID. With AtMost, it limits
	// an action to the messages of a confirmation, while further messages arrive. Like AtMost, it is not a condition in
	// the sense of IsZero. 0: no limit.
	Through ID `json:"-"`
}

// FilterParam describes a condition of a Filter as a URL parameter, form field or command-line flag.
type FilterParam struct {
	Name     string // name of the parameter
	Flag     string // name of the flag, without leading dashes; "" for an argument
	Value    string // kind of value, such as "NAME"; "" for a boolean
	Help     string
	Param    string // help for the parameter of a URL; "": Help
	Repeated bool   // may be given several times
}

// FilterParams returns all conditions of a Filter except All, AtMost and Through.
func FilterParams() []FilterParam {
	all := make([]FilterParam, len(conditions))
	for i, c := range conditions {
		all[i] = c.FilterParam
	}
	return all
}

// ParamsOf returns the conditions of a filter as URL parameters.
func ParamsOf(f *Filter) params.Params {
	all := make(params.Params, len(conditions))
	for i, c := range conditions {
		all[i] = params.Param{Name: c.Name, Of: c.field(f), Help: cmp.Or(c.Param, c.Help)}
	}
	return all
}

// condition describes a field of a Filter. A new condition also needs SQL, see selection.
type condition struct {
	FilterParam
	json  string // name in JSON
	field func(*Filter) any
	words string // format of the condition as text
}

var conditions = []condition{
	{
		FilterParam{Name: "queue", Flag: "queue", Value: "NAME", Help: "Work queue of the failure."},
		"queue", func(f *Filter) any { return &f.Queue }, "queue %s",
	},
	{
		FilterParam{Name: "state", Flag: "state", Value: "STATE", Help: "In this state: failed, replaying, replayed or discarded.", Repeated: true, Param: "One parameter for each state: failed, replaying, replayed or discarded. all: any state (default); none: no state."},
		"states", func(f *Filter) any { return &f.States }, "in state %s",
	},
	{
		FilterParam{Name: "group", Flag: "group", Value: "ID", Help: "ID of an error group."},
		"group", func(f *Filter) any { return &f.Group }, "group %d",
	},
	{
		FilterParam{Name: "since", Flag: "since", Value: "TIME", Help: "Time of the last failure, or later: 2026-03-01T09:00:00Z, 2026-03-01 (local time), or 2h for two hours ago."},
		"since", func(f *Filter) any { return &f.Since }, "failed since %s",
	},
	{
		FilterParam{Name: "until", Flag: "until", Value: "TIME", Help: "Upper limit for the time of the last failure."},
		"until", func(f *Filter) any { return &f.Until }, "failed before %s",
	},
	{
		FilterParam{Name: "text", Flag: "text", Value: "WORDS", Help: "Words in errors, the message ID, the correlation ID or a text body."},
		"text", func(f *Filter) any { return &f.Text }, "with the words “%s”",
	},
	{
		FilterParam{Name: "error", Flag: "error", Value: "TEXT", Help: "Part of the last error, with the same case."},
		"error", func(f *Filter) any { return &f.Error }, "error contains “%s”",
	},
	{
		FilterParam{Name: "header", Flag: "header", Value: "K=V", Help: "Header, as name=value. Repeatable.", Repeated: true, Param: "NAME:VALUE, one parameter for each. Escape % as %25, : in the name as %3A, and a leading or trailing space as %20."},
		"headers", func(f *Filter) any { return &f.Headers }, "header %s",
	},
	{
		FilterParam{Name: "min_attempts", Flag: "min-attempts", Value: "N", Help: "Minimum number of attempts."},
		"min_attempts", func(f *Filter) any { return &f.MinAttempts }, "attempts from %d",
	},
	{
		FilterParam{Name: "max_attempts", Flag: "max-attempts", Value: "N", Help: "Maximum number of attempts."},
		"max_attempts", func(f *Filter) any { return &f.MaxAttempts }, "attempts up to %d",
	},
	{
		FilterParam{Name: "id", Value: "ID", Help: "These messages alone.", Repeated: true, Param: "One parameter for each message. none: no messages."},
		"ids", func(f *Filter) any { return &f.IDs }, "messages %s",
	},
	{
		FilterParam{Name: "replay", Flag: "back-from", Value: "ID", Help: "Messages that failed again after this replay."},
		"replay", func(f *Filter) any { return &f.Replay }, "failed again after replay %d",
	},
	{
		FilterParam{Name: "refused", Flag: "refused", Help: "Messages that their latest replay could not send."},
		"refused", func(f *Filter) any { return &f.Refused }, "could not be sent",
	},
	{
		FilterParam{Name: "refused_by", Flag: "refused-by", Value: "ID", Help: "Messages that this replay could not send, in any state."},
		"refused_by", func(f *Filter) any { return &f.RefusedBy }, "could not be sent by replay %d",
	},
	{
		FilterParam{Name: "sent_by", Flag: "sent-by", Value: "ID", Help: "Messages that this replay sent, in any state."},
		"sent_by", func(f *Filter) any { return &f.SentBy }, "sent by replay %d",
	},
	{
		FilterParam{Name: "outcome", Flag: "outcome", Value: "OUTCOME", Help: "Outcome for --sent-by: pending, retrying, settled, succeeded, 'failed again' or unknown.", Param: "Outcome after the replay sent_by: pending, retrying, settled, succeeded, failed again or unknown."},
		"outcome", func(f *Filter) any { return &f.Outcome }, "with the outcome %s",
	},
	{
		FilterParam{Name: "act", Flag: "act", Value: "ID", Help: "Messages that this act of the audit log discarded, restored or reverted, unless a later act did."},
		"act", func(f *Filter) any { return &f.Act }, "changed by act %d",
	},
}

// set yields each condition that is set, with a pointer to its value.
func (f *Filter) set(yield func(condition, any) bool) {
	for _, c := range conditions {
		if field := c.field(f); !params.IsZero(field) && !yield(c, field) {
			return
		}
	}
}

// IsZero reports whether no condition is set, so that the filter selects all messages. It ignores All, AtMost and Through.
func (f Filter) IsZero() bool {
	for range f.set {
		return false
	}
	return true
}

// anyState is the value of the parameter state for messages in any state. Values always writes the state, so that an
// intended filter without conditions differs from a missing filter.
const anyState = "all"

// Values returns the conditions as URL parameters.
func (f Filter) Values() url.Values {
	v := url.Values{}
	for c, field := range f.set {
		params.Write(v, c.Name, field)
	}
	if f.States == nil {
		v.Set("state", anyState)
	}
	return v
}

// ParseFilter reads conditions from URL parameters, and ignores parameters that are not in FilterParams. It returns a
// *FilterError for a malformed or empty parameter. A time may also be a duration before now: 90m, 24h, 7d.
func ParseFilter(v url.Values, now time.Time) (Filter, error) {
	r := params.Reader{Values: v, Now: now}
	var f Filter
	for _, c := range conditions {
		if c.Name != "state" || !slices.Equal(v["state"], []string{anyState}) {
			r.Read(c.Name, c.field(&f))
		}
	}
	if wrong, ok := errors.AsType[*params.Error](r.Err); ok {
		return f, &FilterError{wrong.Name, wrong}
	}
	return f, f.Validate()
}

// maxNamed is the maximum number of IDs in the result of String.
const maxNamed = 10

// String returns the conditions as text. It does not escape the values.
func (f Filter) String() string {
	var parts []string
	for c, field := range f.set {
		part := fmt.Sprintf(c.words, wordsOf(field))
		switch n := len(f.IDs); {
		case c.Name == "id" && n > maxNamed:
			part = fmt.Sprintf("%d messages picked by hand, among them %s", n, Join(f.IDs[:maxNamed], ", "))
		case c.Name == "id" && n == 1:
			part = fmt.Sprint("message ", f.IDs[0])
		case c.Name == "id" && n == 0:
			part = "no messages"
		case c.Name == "refused":
			part = c.words
		}
		parts = append(parts, part)
	}
	if parts == nil {
		return "all messages"
	}
	return strings.Join(parts, ", ")
}

func wordsOf(field any) any {
	switch x := field.(type) {
	case *time.Time:
		return x.UTC().Format("2006-01-02 15:04:05 UTC")
	case *[]ID:
		return Join(*x, ", ")
	case *[]State:
		return Join(*x, " or ")
	case *params.Texts:
		var pairs []string
		for _, name := range slices.Sorted(maps.Keys(*x)) {
			pairs = append(pairs, name+": "+(*x)[name])
		}
		return strings.Join(pairs, ", header ")
	}
	return reflect.ValueOf(field).Elem()
}

func Join[T any](list []T, separator string) string {
	texts := make([]string, len(list))
	for i, x := range list {
		texts[i] = fmt.Sprint(x)
	}
	return strings.Join(texts, separator)
}

// Validate returns a *FilterError that wraps ErrInvalid if conditions are invalid or contradict each other.
// FilterError.Param names the condition. If several are involved, it names one of them or is empty.
func (f Filter) Validate() error {
	invalid := func(param, format string, args ...any) error {
		return &FilterError{param, Invalid(format, args...)}
	}
	for _, text := range []struct{ name, value string }{{"text", f.Text}, {"error", f.Error}} {
		// Almost every error contains blanks, so such a filter would select almost all messages.
		if text.value != "" && strings.TrimSpace(text.value) == "" {
			return invalid(text.name, "%s must not be blank: got %s (leave it out)", text.name, brief.Quoted(text.value))
		}
	}
	if f.Text != "" && !hasWord(f.Text) {
		return invalid("text", "text must have a letter or a digit: got %s", brief.Quoted(f.Text))
	}
	for _, s := range f.States {
		if !slices.Contains(States(), s) {
			return invalid("state", "state %s not found (use failed, replaying, replayed or discarded)", brief.Quoted(string(s)))
		}
	}
	for _, id := range f.IDs {
		if id < 1 {
			return invalid("id", "id must be at least 1: got %d", id)
		}
	}
	switch {
	case f.All && !f.IsZero():
		return invalid("", "all must not be combined with other conditions")
	case f.Outcome != "" && !slices.Contains(Outcomes(), f.Outcome):
		return invalid("outcome", "outcome %s not found (use pending, retrying, settled, succeeded, failed again or unknown)", brief.Quoted(string(f.Outcome)))
	case f.Outcome != "" && f.SentBy == 0:
		return invalid("outcome", "outcome must be combined with sent_by")
	case f.SentBy != 0 && f.RefusedBy != 0:
		return invalid("sent_by", "sent_by must not be combined with refused_by")
	case f.Group < 0 || f.Replay < 0 || f.RefusedBy < 0 || f.SentBy < 0 || f.Act < 0 || f.MinAttempts < 0 || f.MaxAttempts < 0 || f.AtMost < 0 || f.Through < 0:
		return invalid("", "group, replay, refused_by, sent_by, act, at_most, through, min_attempts and max_attempts must not be negative")
	case f.MaxAttempts > 0 && f.MinAttempts > f.MaxAttempts:
		return invalid("min_attempts", "min_attempts must not be more than max_attempts: got %d and %d (swap them)", f.MinAttempts, f.MaxAttempts)
	case !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until):
		return invalid("since", "since must be before until: got %s and %s (swap them)", f.Since.Format(time.RFC3339), f.Until.Format(time.RFC3339))
	}
	return nil
}

// CheckForAct returns ErrInvalid if the filter is empty and All is not set.
func (f Filter) CheckForAct() error {
	if f.IsZero() && !f.All {
		return Invalid("Filter must not be empty (Filter{All: true} selects all messages)")
	}
	return nil
}

// Allows returns ErrState if n is more than Filter.AtMost.
func (f Filter) Allows(n int64) error {
	if f.AtMost > 0 && n > f.AtMost {
		return fmt.Errorf("%w: filter must select at most %d messages: got %d", ErrState, f.AtMost, n)
	}
	return nil
}

// maxLogged is the maximum number of IDs of a filter in the audit log. Operators read the log, so its entries must be
// short.
const maxLogged = 100

// Describe returns the filter for the audit log.
func (f Filter) Describe() map[string]any { return f.Described("") }

// Described returns the filter for the audit log. If instead is not empty, it replaces each free text: Text, Error
// and Headers.
func (f Filter) Described(instead string) map[string]any {
	if instead != "" {
		for _, text := range []*string{&f.Text, &f.Error} {
			if *text != "" {
				*text = instead
			}
		}
		if len(f.Headers) > 0 {
			f.Headers = map[string]string{instead: ""}
		}
	}
	details := map[string]any{}
	if f.All {
		details["all"] = true
	}
	if f.Through > 0 {
		details["through"] = f.Through
	}
	if n := len(f.IDs); n > maxLogged {
		details["ids_in_all"] = n
		f.IDs = f.IDs[:maxLogged]
	}
	for c, field := range f.set {
		details[c.json] = field
	}
	return details
}

// Subject returns the subject of an action on the selected messages, for the audit log: "message/ID" for a single ID,
// "group/ID" for a group, or "".
func (f Filter) Subject() string {
	if len(f.IDs) == 1 {
		return fmt.Sprint("message/", f.IDs[0])
	}
	if f.Group != 0 {
		return fmt.Sprint("group/", f.Group)
	}
	return ""
}

// HasOnlyCounters reports whether the filter sets only conditions for which the archive has counters: queue, states and
// group.
func (f Filter) HasOnlyCounters() bool {
	f.Queue, f.States, f.Group = "", nil, 0
	return f.IsZero()
}
