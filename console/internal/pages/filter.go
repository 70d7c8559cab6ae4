package pages

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/console/internal/show"
	"github.com/reprisemq/reprise/failed"
)

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

// DescribeFilter says in words what a filter selects, and of a group also what it is called.
func DescribeFilter(f failed.Filter, groupName ...string) string {
	var parts []string
	say := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	switch n := len(f.IDs); {
	case n > maxNamed:
		say("%s picked by hand, among them %s", show.Plural(int64(n), "message"), joinIDs(f.IDs[:maxNamed]))
	case n > 1:
		say("messages %s", joinIDs(f.IDs))
	case n == 1:
		say("message %d", f.IDs[0])
	case f.IDs != nil:
		say("no messages")
	}
	if f.Group != 0 {
		say("group %d", f.Group)
		for _, name := range groupName {
			parts[len(parts)-1] += " (“" + name + "”)"
		}
	}
	if len(f.States) > 0 {
		say("in state %s", joinStates(f.States))
	}
	if f.Queue != "" {
		say("queue %s", show.Visible(f.Queue))
	}
	if f.Text != "" {
		say("with the words “%s”", show.Visible(f.Text))
	}
	if f.Error != "" {
		say("error contains “%s”", show.Visible(f.Error))
	}
	for _, name := range slices.Sorted(maps.Keys(f.Headers)) {
		say("header %s: %s", show.Visible(name), show.Visible(f.Headers[name]))
	}
	switch {
	case f.MinAttempts > 0 && f.MaxAttempts > 0:
		say("%d to %d attempts", f.MinAttempts, f.MaxAttempts)
	case f.MinAttempts > 0:
		say("at least %s", show.Plural(int64(f.MinAttempts), "attempt"))
	case f.MaxAttempts > 0:
		say("at most %s", show.Plural(int64(f.MaxAttempts), "attempt"))
	}
	if !f.Since.IsZero() {
		say("failed since %s", show.Exact(f.Since))
	}
	if !f.Until.IsZero() {
		say("failed before %s", show.Exact(f.Until))
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

// maxNamed is how many messages are named by their numbers.
const maxNamed = 10

func joinIDs(ids []failed.ID) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = fmt.Sprint(id)
	}
	return strings.Join(texts, ", ")
}

func joinStates(states []failed.State) string {
	texts := make([]string, len(states))
	for i, s := range states {
		texts[i] = string(s)
	}
	return strings.Join(texts, " or ")
}
