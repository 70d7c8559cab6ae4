package console

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/failed"
)

// formTime is how a browser writes a time in a form. The form says that it is UTC.
const formTime = "2006-01-02T15:04"

// allStates is what the form says to see messages whatever their state: without a
// word, those are listed that wait for a person.
const allStates = "all"

// parseFilter reads a filter from a page's address or form. filterQuery writes it.
func parseFilter(v url.Values, now time.Time) (failed.Filter, error) {
	f := failed.Filter{
		Queue: v.Get("queue"),
		Text:  strings.TrimSpace(v.Get("q")),
		Error: v.Get("error"),
	}
	p := formParser{v: v}
	for _, s := range v["state"] {
		switch state := failed.State(s); {
		case s == allStates:
		case s == "":
		case slices.Contains(failed.States(), state):
			f.States = append(f.States, state)
		default:
			p.fault("state", s, "failed, replaying, replayed, discarded or all")
		}
	}
	if len(f.States) == 0 && !slices.Contains(v["state"], allStates) {
		f.States = []failed.State{failed.Failed}
	}
	f.Group = failed.GroupID(p.number("group"))
	f.Replay = failed.ReplayID(p.number("back"))
	f.Refused = v.Get("refused") != ""
	f.RefusedBy = failed.ReplayID(p.number("refused_by"))
	f.MinAttempts, f.MaxAttempts = int(p.number("min")), int(p.number("max"))
	f.Since, f.Until = p.time("since", now), p.time("until", now)
	f.Headers = p.headers("header")
	for _, s := range v["id"] {
		id, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			p.fault("id", s, "a number")
			continue
		}
		f.IDs = append(f.IDs, failed.ID(id))
	}
	return f, p.err
}

// formParser reads fields, and keeps the first thing that is wrong.
type formParser struct {
	v   url.Values
	err error
}

func (p *formParser) fault(name, got, instead string) {
	if p.err == nil {
		p.err = badRequest(fmt.Sprintf("%s cannot be %q", name, clip(got, 80)), "write "+instead)
	}
}

func (p *formParser) number(name string) int64 {
	s := strings.TrimSpace(p.v.Get(name))
	if s == "" {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		p.fault(name, s, "a number")
		return 0
	}
	return n
}

func (p *formParser) decimal(name string) float64 {
	s := strings.TrimSpace(p.v.Get(name))
	if s == "" {
		return 0
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || n < 0 || n > 1e9 {
		p.fault(name, s, "a number, such as 5 or 0.5")
		return 0
	}
	return n
}

// time reads a time, or how long ago it was: 90m, 24h, 7d.
func (p *formParser) time(name string, now time.Time) time.Time {
	s := strings.TrimSpace(p.v.Get(name))
	if s == "" {
		return time.Time{}
	}
	for _, layout := range []string{formTime, formTime + ":05", time.RFC3339Nano} {
		if t, err := time.ParseInLocation(layout, s, time.UTC); err == nil {
			return t
		}
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n > 0 && n < 1e5 {
			return now.Add(-time.Duration(n) * 24 * time.Hour)
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d > 0 {
		return now.Add(-d)
	}
	p.fault(name, s, "a time such as 2026-01-31T18:00, or how long ago: 90m, 24h, 7d")
	return time.Time{}
}

// headers reads lines of the form "name: value".
func (p *formParser) headers(name string) map[string]string {
	var headers map[string]string
	for _, text := range p.v[name] {
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			if line == "" {
				continue
			}
			key, value, ok := strings.Cut(line, ":")
			if key = strings.TrimSpace(key); !ok || key == "" {
				p.fault(name, line, "name: value")
				continue
			}
			if headers == nil {
				headers = map[string]string{}
			}
			headers[key] = strings.TrimSpace(value)
		}
	}
	return headers
}

// filterQuery is the inverse of parseFilter, with times that stay what they are.
func filterQuery(f failed.Filter) url.Values {
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
	set("queue", f.Queue)
	set("q", f.Text)
	set("error", f.Error)
	number("group", int64(f.Group))
	number("back", int64(f.Replay))
	if f.Refused {
		set("refused", "yes")
	}
	number("refused_by", int64(f.RefusedBy))
	number("min", int64(f.MinAttempts))
	number("max", int64(f.MaxAttempts))
	moment := func(name string, t time.Time) {
		if !t.IsZero() {
			v.Set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	moment("since", f.Since)
	moment("until", f.Until)
	for _, name := range slices.Sorted(maps.Keys(f.Headers)) {
		v.Add("header", name+": "+f.Headers[name])
	}
	for _, id := range f.IDs {
		v.Add("id", strconv.FormatInt(int64(id), 10))
	}
	if len(f.States) == 0 {
		v.Set("state", allStates)
	}
	for _, s := range f.States {
		v.Add("state", string(s))
	}
	return v
}

// pair is a field of a form that is hidden in another.
type pair struct{ Name, Value string }

// pairs are the values of a form, sorted by name.
func pairs(v url.Values) []pair {
	var all []pair
	for _, name := range slices.Sorted(maps.Keys(v)) {
		for _, value := range v[name] {
			all = append(all, pair{name, value})
		}
	}
	return all
}

// describeFilter says in words what a filter selects.
func describeFilter(f failed.Filter) string {
	var parts []string
	say := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if n := len(f.IDs); n == 1 {
		say("message %d", f.IDs[0])
	} else if n > 1 {
		say("%s picked by hand", plural(int64(n), "message"))
	}
	if f.Group != 0 {
		say("group %d", f.Group)
	}
	if f.Queue != "" {
		say("queue %s", visible(f.Queue))
	}
	if f.Text != "" {
		say("with the words “%s”", visible(f.Text))
	}
	if f.Error != "" {
		say("error contains “%s”", visible(f.Error))
	}
	for _, name := range slices.Sorted(maps.Keys(f.Headers)) {
		say("header %s: %s", visible(name), visible(f.Headers[name]))
	}
	switch {
	case f.MinAttempts > 0 && f.MaxAttempts > 0:
		say("%d to %d attempts", f.MinAttempts, f.MaxAttempts)
	case f.MinAttempts > 0:
		say("at least %s", plural(int64(f.MinAttempts), "attempt"))
	case f.MaxAttempts > 0:
		say("at most %s", plural(int64(f.MaxAttempts), "attempt"))
	}
	if !f.Since.IsZero() {
		say("failed since %s", exact(f.Since))
	}
	if !f.Until.IsZero() {
		say("failed before %s", exact(f.Until))
	}
	if f.Replay != 0 {
		say("came back from replay %d", f.Replay)
	}
	if f.Refused {
		say("could not be sent")
	}
	if f.RefusedBy != 0 {
		say("could not be sent by replay %d", f.RefusedBy)
	}
	if parts == nil {
		return "all messages"
	}
	return strings.Join(parts, ", ")
}
