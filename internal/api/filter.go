package api

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/failed"
)

// Filter selects messages: those for which all that is set holds. As parameters of an
// address it has the names it has in JSON, but for state, id and header, which are
// given once for each.
type Filter struct {
	Queue       Text        `json:"queue,omitempty"`
	States      []string    `json:"states,omitempty"`
	Group       int64       `json:"group,omitempty"`
	Since       time.Time   `json:"since,omitzero"` // of the last failure
	Until       time.Time   `json:"until,omitzero"` // before
	Text        string      `json:"text,omitempty"`
	Error       string      `json:"error,omitempty"`
	Headers     HeaderTexts `json:"headers,omitempty"`
	MinAttempts int         `json:"min_attempts,omitempty"`
	MaxAttempts int         `json:"max_attempts,omitempty"`
	IDs         []int64     `json:"ids,omitzero"`         // null: all; []: none
	Replay      int64       `json:"replay,omitempty"`     // what came back from it
	Refused     bool        `json:"refused,omitempty"`    // what the latest replay could not send
	RefusedBy   int64       `json:"refused_by,omitempty"` // what this one could not
}

// HeaderTexts are headers that messages must have, with their values as
// failed.HeaderText writes them.
type HeaderTexts map[Text]string

// MarshalJSON implements [json.Marshaler]. By itself encoding/json writes a name that is
// a string as it is.
func (h HeaderTexts) MarshalJSON() ([]byte, error) {
	written := make(map[string]string, len(h))
	for name, value := range h {
		text, _ := name.MarshalText() // never fails
		written[string(text)] = value
	}
	return json.Marshal(written)
}

// IsZero reports whether it selects all messages.
func (f Filter) IsZero() bool {
	return len(f.Values()) == 0 && f.IDs == nil
}

// FilterOf returns a filter as it is shown.
func FilterOf(f failed.Filter) Filter {
	shown := Filter{
		Queue: Text(f.Queue), Group: int64(f.Group), Since: f.Since, Until: f.Until, Text: f.Text, Error: f.Error,
		MinAttempts: f.MinAttempts, MaxAttempts: f.MaxAttempts, Replay: int64(f.Replay), Refused: f.Refused, RefusedBy: int64(f.RefusedBy),
	}
	for _, s := range f.States {
		shown.States = append(shown.States, string(s))
	}
	for name, value := range f.Headers {
		if shown.Headers == nil {
			shown.Headers = HeaderTexts{}
		}
		shown.Headers[Text(name)] = value
	}
	if f.IDs != nil {
		shown.IDs = []int64{}
	}
	for _, id := range f.IDs {
		shown.IDs = append(shown.IDs, int64(id))
	}
	return shown
}

// Filter returns it as package failed has it.
func (f Filter) Filter() failed.Filter {
	meant := failed.Filter{
		Queue: string(f.Queue), Group: failed.GroupID(f.Group), Since: f.Since, Until: f.Until, Text: f.Text, Error: f.Error,
		MinAttempts: f.MinAttempts, MaxAttempts: f.MaxAttempts, Replay: failed.ReplayID(f.Replay), Refused: f.Refused, RefusedBy: failed.ReplayID(f.RefusedBy),
	}
	for _, s := range f.States {
		meant.States = append(meant.States, failed.State(s))
	}
	for name, value := range f.Headers {
		if meant.Headers == nil {
			meant.Headers = map[string]string{}
		}
		meant.Headers[string(name)] = value
	}
	if f.IDs != nil {
		meant.IDs = []failed.ID{}
	}
	for _, id := range f.IDs {
		meant.IDs = append(meant.IDs, failed.ID(id))
	}
	return meant
}

// Validate reports what cannot be and what to write instead.
func (f Filter) Validate() error {
	for _, s := range f.States {
		if !slices.Contains(failed.States(), failed.State(s)) {
			return fmt.Errorf("state %.40q: use failed, replaying, replayed or discarded", s)
		}
	}
	if f.Group < 0 || f.Replay < 0 || f.RefusedBy < 0 || f.MinAttempts < 0 || f.MaxAttempts < 0 {
		return fmt.Errorf("a group, a replay or a number of attempts is negative: use one from 1 on")
	}
	if f.MaxAttempts > 0 && f.MinAttempts > f.MaxAttempts {
		return fmt.Errorf("min_attempts %d is more than max_attempts %d: swap them", f.MinAttempts, f.MaxAttempts)
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return fmt.Errorf("since %s is not before until %s: swap them", f.Since.Format(time.RFC3339), f.Until.Format(time.RFC3339))
	}
	return nil
}

// Values returns the filter as parameters of an address.
func (f Filter) Values() url.Values {
	v := url.Values{}
	set := func(name, value string) {
		if value != "" {
			v.Set(name, value)
		}
	}
	number := func(name string, n int64) {
		if n != 0 {
			v.Set(name, strconv.FormatInt(n, 10))
		}
	}
	when := func(name string, t time.Time) {
		if !t.IsZero() {
			v.Set(name, t.Format(time.RFC3339Nano))
		}
	}
	queue, _ := f.Queue.MarshalText() // never fails
	set("queue", string(queue))
	for _, s := range f.States {
		v.Add("state", s)
	}
	number("group", f.Group)
	when("since", f.Since)
	when("until", f.Until)
	set("text", f.Text)
	set("error", f.Error)
	for name, value := range f.Headers {
		v.Add("header", escapeName(name)+":"+value)
	}
	slices.Sort(v["header"])
	number("min_attempts", int64(f.MinAttempts))
	number("max_attempts", int64(f.MaxAttempts))
	for _, id := range f.IDs {
		v.Add("id", strconv.FormatInt(id, 10))
	}
	number("replay", f.Replay)
	if f.Refused {
		set("refused", "true")
	}
	number("refused_by", f.RefusedBy)
	return v
}

// escapeName makes a header's name one that ends at the first colon: percent signs and
// colons are written as in addresses.
func escapeName(name Text) string {
	return strings.NewReplacer("%", "%25", ":", "%3A").Replace(string(name))
}

// FilterNames are the parameters that make a filter.
var FilterNames = []string{
	"queue", "state", "group", "since", "until", "text", "error", "header", "min_attempts", "max_attempts", "id", "replay", "refused", "refused_by",
}

// ParseFilter reads a filter from the parameters of an address. Those that are not in
// FilterNames are not looked at.
func ParseFilter(v url.Values) (Filter, error) {
	var f Filter
	p := parser{values: v}
	if text := p.one("queue"); text != "" {
		p.keep("queue", f.Queue.UnmarshalText([]byte(text)))
	}
	f.States = v["state"]
	f.Group = p.number("group")
	f.Since, f.Until = p.time("since"), p.time("until")
	f.Text, f.Error = p.one("text"), p.one("error")
	for _, header := range v["header"] {
		p.header(&f, header)
	}
	f.MinAttempts, f.MaxAttempts = int(p.number("min_attempts")), int(p.number("max_attempts"))
	for _, text := range v["id"] {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			p.keep("id", fmt.Errorf("%.40q is no number: write each as id=17", text))
		}
		f.IDs = append(f.IDs, n)
	}
	f.Replay = p.number("replay")
	f.Refused = p.flag("refused")
	f.RefusedBy = p.number("refused_by")
	if p.err == nil {
		p.err = f.Validate()
	}
	return f, p.err
}

// parser reads parameters and keeps the first error.
type parser struct {
	values url.Values
	err    error
}

func (p *parser) keep(name string, err error) {
	if p.err == nil && err != nil {
		p.err = fmt.Errorf("%s: %w", name, err)
	}
}

// one returns the parameter of that name, of which there must not be more.
func (p *parser) one(name string) string {
	switch v := p.values[name]; len(v) {
	case 0:
		return ""
	case 1:
		return v[0]
	default:
		p.keep(name, fmt.Errorf("is there %d times: write it once", len(v)))
		return ""
	}
}

func (p *parser) number(name string) int64 {
	text := p.one(name)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if name == "group" || name == "replay" || name == "refused_by" {
		n, err = strconv.ParseInt(text, 10, 64)
	}
	if err != nil || n < 1 {
		p.keep(name, fmt.Errorf("%.40q: write a number from 1 on", text))
		return 0
	}
	return n
}

func (p *parser) flag(name string) bool {
	text := p.one(name)
	if text != "" && text != "true" && text != "false" {
		p.keep(name, fmt.Errorf("%.40q: write true, or leave it out", text))
	}
	return text == "true"
}

func (p *parser) time(name string) time.Time {
	text := p.one(name)
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		p.keep(name, fmt.Errorf("%.40q is no time: write it as 2026-01-31T12:00:00Z", text))
	}
	return t
}

func (p *parser) header(f *Filter, text string) {
	written, value, found := strings.Cut(text, ":")
	name, err := url.PathUnescape(written)
	if !found || err != nil || name == "" {
		p.keep("header", fmt.Errorf("%.40q: write it as NAME:VALUE, with %%25 for %% and %%3A for : in the name", text))
		return
	}
	if f.Headers == nil {
		f.Headers = HeaderTexts{}
	}
	if _, twice := f.Headers[Text(name)]; twice {
		p.keep("header", fmt.Errorf("%.40q is there twice: write it once", name))
	}
	f.Headers[Text(name)] = value
}
