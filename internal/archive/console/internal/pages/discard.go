package pages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/console/internal/show"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/params"
)

// maxUndo is the maximum number of messages in the undo parameter of a URL. To restore more messages, users select them
// in the list of discarded messages.
const maxUndo = 200

// selection describes the messages to which an act applies.
type selection struct {
	Filter      failed.Filter // selects messages in one state
	Words       string
	store.Total        // number of messages
	Fields      []pair // fields of the confirmation form
	Back        template.URL

	path  string     // path of Back
	query url.Values // query of Back
}

// anyState is the state of a selection that is not limited to one state.
const anyState failed.State = ""

// readSelection reads a selection from v, the values of a URL or a form, and counts the selected messages in the given
// state.
func readSelection(c *web.Call, v url.Values, state failed.State, count counter) (*selection, error) {
	asked, err := failed.ParseSelection(web.Only(v, failed.SelectionNames), c.Clock())
	if err != nil {
		return nil, fault.BadRequest(err.Error(), "no message was changed: go back and select messages again")
	}
	f := asked.Selected()
	switch {
	case f.All, state == anyState:
	case f.States == nil, len(f.States) == 1 && f.States[0] == state:
		f.States = []failed.State{state}
	default:
		return nil, fault.BadRequest("state must be "+string(state), "select only messages in this state, or omit the state")
	}
	if err := c.Archive.Check(c.R.Context(), f); err != nil {
		return nil, err
	}
	if f.IDs == nil && f.Through == 0 { // the page shows the messages up to now
		if f.Through, err = c.Archive.Newest(c.R.Context()); err != nil {
			return nil, err
		}
	}
	s := &selection{Filter: f}
	counted := f
	counted.All, counted.States = false, []failed.State{state}
	if f.IDs != nil && state != anyState {
		count = countExactly // reads only these messages
	}
	if s.Total, err = count(c, counted); err != nil {
		return nil, err
	}
	asked = failed.SelectionOf(f)
	asked.AtMost = 0
	if !s.More {
		asked.AtMost = s.N
	}
	s.Fields = pairs(asked.Values())
	words := f
	words.States = nil // the act determines the state
	if f.Group != 0 {
		g, err := c.Archive.Group(c.R.Context(), f.Group)
		if err != nil {
			return nil, err
		}
		words.Queue = cmp.Or(words.Queue, params.Text(g.Queue))
		s.Words = DescribeFilter(words, groupName(*g))
	} else {
		s.Words = DescribeFilter(words)
	}
	s.back()
	return s, nil
}

// back sets Back to the page on which the user selected the messages.
func (s *selection) back() {
	f := s.Filter
	f.AtMost, f.Through = 0, 0
	group := failed.Filter{Group: f.Group, States: f.States}
	s.path, s.query = "/messages", f.Values()
	switch {
	case len(f.IDs) == 1:
		s.path, s.query = messagePath(f.IDs[0]), url.Values{}
	case f.IDs != nil:
		s.query = failed.Filter{States: f.States}.Values()
	case f.Group != 0 && string(web.HrefMessages("", f)) == string(web.HrefMessages("", group)):
		s.path, s.query = fmt.Sprintf("/groups/%d", f.Group), url.Values{"state": s.query["state"]}
	}
	s.Back = web.Href(s.path, s.query)
}

// nav returns the menu entry of the page on which the user selected the messages.
func (s *selection) nav() string {
	if s.path == "/messages" {
		return "messages"
	}
	return "groups"
}

// counter counts the messages that a filter selects.
type counter func(*web.Call, failed.Filter) (store.Total, error)

// countQuickly stops after several thousand messages, so that the page loads quickly. If it has counted all discarded
// messages, it omits the erased ones, which cannot be restored.
func countQuickly(c *web.Call, f failed.Filter) (store.Total, error) {
	t, err := c.Archive.Count(c.R.Context(), f)
	if err == nil && !t.More && slices.Equal(f.States, []failed.State{failed.Discarded}) {
		return countExactly(c, f)
	}
	return t, err
}

// notCounted returns zero, for callers that count the messages themselves.
func notCounted(*web.Call, failed.Filter) (store.Total, error) { return store.Total{}, nil }

// countShown is like countQuickly, for a form that confirms Filter.AtMost messages. If the quick count is not exact,
// countShown returns the confirmed number. The archive refuses the act if the filter then selects more messages.
func countShown(c *web.Call, f failed.Filter) (store.Total, error) {
	t, err := countQuickly(c, f)
	if t.More {
		t = store.Total{N: f.AtMost}
	}
	return t, err
}

// maxCounting limits the duration of countExactly.
const maxCounting = 20 * time.Second

func countExactly(c *web.Call, f failed.Filter) (store.Total, error) {
	ctx, cancel := context.WithTimeout(c.R.Context(), maxCounting)
	defer cancel()
	n, err := c.Archive.CountState(ctx, f, f.States[0])
	if err != nil && ctx.Err() != nil && c.R.Context().Err() == nil {
		err = &fault.Failure{
			Status: http.StatusServiceUnavailable, Text: "cannot count the messages in " + maxCounting.String(),
			Advice: "narrow the search, or use the command “reprise failed”",
		}
	}
	return store.Total{N: n}, err
}

var errNonePicked = fault.BadRequest("no messages are selected", "go back and select messages")

// errNoCount is returned for a form that does not contain the displayed number of messages.
var errNoCount = fault.BadRequest("at_most must be the number of messages that the form showed", "open the page again, and confirm the action there")

// selectionValues returns the selection of an act from the URL of a page or from a form. A form is necessary if the IDs
// of the messages that the user picked do not fit in a URL.
func selectionValues(c *web.Call) (url.Values, error) {
	if c.R.Method != http.MethodPost {
		return c.Params, nil
	}
	v, err := c.Form()
	if err == nil && !v.Has("id") {
		err = errNonePicked
	}
	return v, err
}

// pageSelection reads the selection of a page and counts its messages.
func pageSelection(c *web.Call, state failed.State, count counter) (*selection, error) {
	v, err := selectionValues(c)
	if err != nil {
		return nil, err
	}
	return readSelection(c, v, state, count)
}

// formSelection reads a selection of messages in the given state from a submitted form. A form that does not list the
// messages by ID contains the number that the page showed. If the page did not show an exact number, formSelection
// counts the messages and sets isCounted. The caller must then show the form again.
func formSelection(c *web.Call, state failed.State) (s *selection, v url.Values, isCounted bool, err error) {
	v, err = c.Form()
	if err != nil {
		return nil, nil, false, err
	}
	s, err = readSelection(c, v, state, func(c *web.Call, f failed.Filter) (store.Total, error) {
		if isCounted = f.AtMost == 0; isCounted {
			return countExactly(c, f)
		}
		return countShown(c, f)
	})
	return s, v, isCounted, err
}

// handleMoreMessages handles an act that was refused because it would apply to more messages than the form showed. It
// returns a message for the user and an updated selection. For any other error, this message is "".
func handleMoreMessages(c *web.Call, s *selection, v url.Values, state failed.State, err error) (string, *selection, error) {
	if !errors.Is(err, failed.ErrState) || s.Filter.AtMost == 0 {
		return "", s, err
	}
	v = maps.Clone(v)
	v.Del("through") // the new page shows the messages up to now
	now, err := readSelection(c, v, state, countExactly)
	if err != nil {
		return "", s, err
	}
	return numberChanged(s.Filter.AtMost, now.N), now, nil
}

// actPage is a page that discards or restores selected messages after a confirmation.
type actPage struct {
	name, title string
	did         string       // value of the parameter did on the next page
	state       failed.State // required state of the messages
	hasReason   bool
	act         func(c *web.Call, f failed.Filter, reason string) (int64, error)
}

var discardPage = actPage{
	name: "discard", title: "Discard", did: "discarded", state: failed.Failed, hasReason: true,
	act: func(c *web.Call, f failed.Filter, reason string) (int64, error) {
		return c.Archive.Discard(c.R.Context(), f, reason, c.Who.Actor)
	},
}

var restorePage = actPage{
	name: "restore", title: "Restore", did: "restored", state: failed.Discarded,
	act: func(c *web.Call, f failed.Filter, _ string) (int64, error) {
		return c.Archive.Restore(c.R.Context(), f, c.Who.Actor)
	},
}

// ask shows the confirmation form for the selected messages.
func (a actPage) ask(c *web.Call) error {
	s, err := pageSelection(c, a.state, countQuickly)
	if err != nil {
		return err
	}
	return a.show(c, http.StatusOK, s, "", "")
}

func (a actPage) show(c *web.Call, status int, s *selection, reason, problem string) error {
	data := struct {
		*selection
		Reason  string
		Missing bool // the reason is missing
		Problem string
	}{s, reason, reason == "", problem}
	return render(c, status, a.name, page{Title: a.title, Nav: s.nav()}, data)
}

// do processes the submitted form.
func (a actPage) do(c *web.Call) error {
	s, v, isCounted, err := formSelection(c, a.state)
	if err != nil {
		return err
	}
	reason := strings.TrimSpace(v.Get("reason"))
	if isCounted {
		return a.show(c, http.StatusOK, s, reason, "")
	}
	if a.hasReason && reason == "" {
		return a.show(c, http.StatusUnprocessableEntity, s, "", "Enter a reason.")
	}
	if err := claimSubmission(c, v); err != nil {
		return err
	}
	n, err := a.act(c, s.Filter, reason)
	if err != nil {
		problem, now, err := handleMoreMessages(c, s, v, a.state, err)
		if problem != "" {
			return a.show(c, http.StatusConflict, now, reason, problem)
		}
		return err
	}
	q := s.query
	q.Set("did", a.did)
	q.Set("n", strconv.FormatInt(n, 10))
	if a.state == failed.Discarded {
		q.Del("state") // the messages are no longer in this state
		return c.SeeOther(s.path, q)
	}
	// Offer an undo only for messages that this act discarded. If another act discarded some of them first, n is lower,
	// and it is unknown which messages this act discarded.
	if ids := len(s.Filter.IDs); ids <= maxUndo && int64(ids) == n {
		for _, id := range s.Filter.IDs {
			q.Add("undo", strconv.FormatInt(int64(id), 10))
		}
	}
	return c.SeeOther(s.path, q)
}

// numberChanged returns the problem of a form that showed a different number of selected messages.
func numberChanged(shown, now int64) string {
	return fmt.Sprintf("This page showed %s. By now there are %s, so nothing was changed. Check the messages before you confirm.",
		show.Plural(shown, "message"), show.Thousands(now))
}
