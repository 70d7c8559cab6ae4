package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/failed"
)

// Filter selects the messages that meet all conditions that are set. Values is its only form
// as parameters of an address, and ParseFilter reads that form: pages, forms and the JSON API
// have no other. The parameters have the names of the JSON fields, except state, id and
// header, which are repeated.
type Filter struct {
	Queue       Text        `json:"queue,omitempty"`
	States      []string    `json:"states,omitzero"` // null: all; []: none
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

// IsZero reports whether no condition is set, so that it selects all messages.
func (f Filter) IsZero() bool {
	return f.Queue == "" && f.States == nil && f.Group == 0 && f.Since.IsZero() && f.Until.IsZero() && f.Text == "" && f.Error == "" &&
		len(f.Headers) == 0 && f.MinAttempts == 0 && f.MaxAttempts == 0 && f.IDs == nil && f.Replay == 0 && !f.Refused && f.RefusedBy == 0
}

// FilterOf returns a filter as it is shown.
func FilterOf(f failed.Filter) Filter {
	shown := Filter{
		Queue: Text(f.Queue), Group: int64(f.Group), Since: f.Since, Until: f.Until, Text: f.Text, Error: f.Error,
		MinAttempts: f.MinAttempts, MaxAttempts: f.MaxAttempts, Replay: int64(f.Replay), Refused: f.Refused, RefusedBy: int64(f.RefusedBy),
	}
	if f.States != nil {
		shown.States = []string{}
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
	if f.States != nil {
		meant.States = []failed.State{}
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
	for _, text := range []struct{ name, value string }{{"text", f.Text}, {"error", f.Error}} {
		if text.value != "" && strings.TrimSpace(text.value) == "" {
			return fmt.Errorf("%s must not be blank: got %.40q (leave it out)", text.name, text.value)
		}
	}
	for _, s := range f.States {
		if !slices.Contains(failed.States(), failed.State(s)) {
			return fmt.Errorf("state %.40q: use failed, replaying, replayed or discarded", s)
		}
	}
	for _, id := range f.IDs {
		if id < 1 {
			return fmt.Errorf("id must be at least 1: got %d", id)
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

// anyState is the value of the parameter state that selects messages in any state, and
// nothing is that of a list without elements. Values always writes the state, so that a
// filter without conditions differs from one that was lost.
const (
	anyState = "all"
	nothing  = "none"
)

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
	set("queue", textValue(f.Queue))
	switch {
	case f.States == nil:
		v.Set("state", anyState)
	case len(f.States) == 0:
		v.Set("state", nothing)
	default:
		v["state"] = slices.Clone(f.States)
	}
	number("group", f.Group)
	when("since", f.Since)
	when("until", f.Until)
	set("text", f.Text)
	set("error", f.Error)
	for name, value := range f.Headers {
		v.Add("header", escapeHeader(string(name), true)+":"+escapeHeader(value, false))
	}
	slices.Sort(v["header"])
	number("min_attempts", int64(f.MinAttempts))
	number("max_attempts", int64(f.MaxAttempts))
	for _, id := range f.IDs {
		v.Add("id", strconv.FormatInt(id, 10))
	}
	if f.IDs != nil && len(f.IDs) == 0 {
		v.Set("id", nothing)
	}
	number("replay", f.Replay)
	if f.Refused {
		set("refused", "true")
	}
	number("refused_by", f.RefusedBy)
	return v
}

func textValue(t Text) string {
	b, _ := t.MarshalText() // never fails
	return string(b)
}

// escapeHeader escapes the name or value of a header: percent signs, colons of a name, and
// space at both ends, which ParseFilter otherwise ignores.
func escapeHeader(text string, isName bool) string {
	inner := strings.TrimSpace(text)
	start := strings.Index(text, inner)
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c == '%' || c == ':' && isName || i < start || i >= start+len(inner) {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// FilterNames are the parameters of a Filter.
var FilterNames = []string{
	"queue", "state", "group", "since", "until", "text", "error", "header", "min_attempts", "max_attempts", "id", "replay", "refused", "refused_by",
}

// ParseFilter reads a filter from the parameters of an address, of which it ignores those
// that are not in FilterNames. Any parameter that it cannot read exactly is an error, an empty
// one included. Times may be relative to now: 90m, 24h, 7d.
func ParseFilter(v url.Values, now time.Time) (Filter, error) {
	p := parser{values: v, now: now}
	f := p.filter()
	if p.err == nil {
		p.err = f.Validate()
	}
	return f, p.err
}

// parser reads parameters and keeps the first error.
type parser struct {
	values url.Values
	now    time.Time
	err    error
}

func (p *parser) filter() (f Filter) {
	f.Queue = p.text("queue")
	f.States = p.states()
	f.Group = p.number("group")
	f.Since, f.Until = p.time("since"), p.time("until")
	f.Text, f.Error = p.one("text"), p.one("error")
	for _, header := range p.values["header"] {
		p.header(&f, header)
	}
	f.MinAttempts, f.MaxAttempts = int(p.number("min_attempts")), int(p.number("max_attempts"))
	f.IDs = p.ids()
	f.Replay = p.number("replay")
	f.Refused = p.flag("refused")
	f.RefusedBy = p.number("refused_by")
	return f
}

func (p *parser) keep(name string, err error) {
	if p.err == nil && err != nil {
		p.err = fmt.Errorf("%s: %w", name, err)
	}
}

// one returns the value of a parameter, or "" if it is absent.
func (p *parser) one(name string) string {
	switch v := p.values[name]; {
	case len(v) == 0:
		return ""
	case len(v) > 1:
		p.keep(name, fmt.Errorf("must be given once: got %d values", len(v)))
		return ""
	case v[0] == "":
		p.keep(name, errors.New("must not be empty (leave it out)"))
		return ""
	default:
		return v[0]
	}
}

func (p *parser) text(name string) (t Text) {
	if value := p.one(name); value != "" {
		p.keep(name, t.UnmarshalText([]byte(value)))
	}
	return t
}

func (p *parser) states() []string {
	v := p.values["state"]
	if slices.Equal(v, []string{nothing}) {
		return []string{}
	}
	if len(v) == 0 || slices.Equal(v, []string{anyState}) {
		return nil
	}
	return slices.Clone(v)
}

func (p *parser) ids() []int64 {
	v := p.values["id"]
	if len(v) == 0 {
		return nil
	}
	ids := make([]int64, 0, len(v))
	if slices.Equal(v, []string{nothing}) {
		return ids
	}
	for _, text := range v {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 {
			p.keep("id", fmt.Errorf("%.40q is not an integer from 1 (write each as id=17)", text))
		}
		ids = append(ids, n)
	}
	return ids
}

func (p *parser) number(name string) int64 {
	text := p.one(name)
	if text == "" {
		return 0
	}
	bits := 64
	if strings.HasSuffix(name, "_attempts") {
		bits = 32
	}
	n, err := strconv.ParseInt(text, 10, bits)
	if err != nil || n < 1 {
		p.keep(name, fmt.Errorf("%.40q is not an integer from 1", text))
		return 0
	}
	return n
}

func (p *parser) flag(name string) bool {
	text := p.one(name)
	if text != "" && text != "true" && text != "false" {
		p.keep(name, fmt.Errorf("%.40q is not true or false", text))
	}
	return text == "true"
}

// timeLayouts are the forms of a time: that of Values, and those of people, in UTC.
var timeLayouts = []string{time.RFC3339Nano, "2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02 15:04", "2006-01-02"}

func (p *parser) time(name string) time.Time {
	text := p.one(name)
	if text == "" {
		return time.Time{}
	}
	for _, layout := range timeLayouts {
		if t, err := time.ParseInLocation(layout, strings.TrimSpace(text), time.UTC); err == nil && !t.IsZero() {
			return t
		}
	}
	if d, err := parseAge(strings.TrimSpace(text)); err == nil && d > 0 {
		return p.now.Add(-d)
	}
	p.keep(name, fmt.Errorf("%.40q is not a time (write 2026-01-31T12:00:00Z, or how long ago: 90m, 24h, 7d)", text))
	return time.Time{}
}

// parseAge reads a duration, which may be a number of days.
func parseAge(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(text)
}

func (p *parser) header(f *Filter, text string) {
	name, value, found := strings.Cut(text, ":")
	name, errName := url.PathUnescape(strings.TrimSpace(name))
	value, errValue := url.PathUnescape(strings.TrimSpace(value))
	if !found || name == "" || errName != nil || errValue != nil {
		p.keep("header", fmt.Errorf("%.40q is not NAME:VALUE (write %%25 for %%, and %%3A for : in the name)", text))
		return
	}
	if f.Headers == nil {
		f.Headers = HeaderTexts{}
	}
	if _, twice := f.Headers[Text(name)]; twice {
		p.keep("header", fmt.Errorf("%.40q must be given once", name))
	}
	f.Headers[Text(name)] = value
}
