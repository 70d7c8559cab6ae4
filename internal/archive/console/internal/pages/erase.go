package pages

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// eraseForm is the form in which a user confirms the erasure of message contents.
type eraseForm struct {
	*selection
	store.Erasure
	Hidden  bool // the search includes values that the list does not find
	Form    url.Values
	Wrong   wrong
	Problem string
}

// erasable reports whether pages can erase messages in a state.
func erasable(s failed.State) bool {
	return s == failed.Failed || s == failed.Discarded || s == failed.Replayed
}

// erasing reads the selection of messages in all states.
func erasing(c *web.Call, v url.Values) (*eraseForm, error) {
	s, err := readSelection(c, v, anyState, notCounted) // count counts
	if err != nil {
		return nil, err
	}
	if conditions := s.Filter; conditions.All || conditions.IsZero() {
		return nil, fault.BadRequest("a page does not erase all messages", "select messages, or use the command “reprise failed erase”")
	}
	return &eraseForm{selection: s, Form: v, Hidden: s.Filter.Text != "" || s.Filter.Headers != nil}, nil
}

// count counts the selected messages that still have content, for the confirmation. It can read the contents of many
// messages, so a request counts only if it shows the form.
func (f *eraseForm) count(c *web.Call) (err error) {
	if f.Erasure, err = c.Archive.WouldErase(c.R.Context(), f.Filter); err != nil {
		return err
	}
	f.N = f.Erasure.Total()
	confirmed := failed.SelectionOf(f.Filter)
	confirmed.AtMost = f.N
	f.Fields = pairs(confirmed.Values())
	return nil
}

// askErase shows the confirmation form for the selected messages. If the user picked messages, the selection comes from
// a form.
func (p *Pages) askErase(c *web.Call) error {
	v, err := selectionValues(c)
	if err != nil {
		return err
	}
	form, err := erasing(c, v)
	if err != nil {
		return err
	}
	if err := form.count(c); err != nil {
		return err
	}
	return showErase(c, http.StatusOK, form)
}

func showErase(c *web.Call, status int, form *eraseForm) error {
	return render(c, status, "erase", page{Title: "Erase", Nav: form.nav()}, form)
}

// erase processes the submitted form.
func (p *Pages) erase(c *web.Call) error {
	v, err := c.Form()
	if err != nil {
		return err
	}
	form, err := erasing(c, v)
	if err != nil {
		return err
	}
	shown := form.Filter.AtMost
	if shown == 0 {
		return errNoCount
	}
	reason := strings.TrimSpace(v.Get("reason"))
	count, err := strconv.ParseInt(strings.ReplaceAll(strings.TrimSpace(v.Get("count")), ",", ""), 10, 64)
	switch {
	case reason == "":
		form.Wrong = wrong{"reason", "Enter a reason."}
	case err != nil || count != shown:
		form.Wrong = wrong{"count", "Enter the number of messages."}
	}
	if form.Wrong.Text != "" {
		if err := form.count(c); err != nil {
			return err
		}
		if form.N > shown {
			return showChangedErase(c, form, shown)
		}
		return showErase(c, http.StatusUnprocessableEntity, form)
	}
	if err := claimSubmission(c, v); err != nil {
		return err
	}
	done, err := c.Archive.Erase(c.R.Context(), form.Filter, reason, c.Who.Actor)
	if errors.Is(err, failed.ErrState) {
		if err := form.count(c); err != nil {
			return err
		}
		return showChangedErase(c, form, shown)
	}
	if err != nil {
		return err
	}
	q := form.query
	q.Set("did", "erased")
	q.Set("n", strconv.FormatInt(done.Total(), 10))
	if done.Left > 0 {
		q.Set("left", strconv.FormatInt(done.Left, 10))
	}
	return c.SeeOther(form.path, q)
}

// showChangedErase shows the form again, because the number of messages has changed since the previous page.
func showChangedErase(c *web.Call, form *eraseForm, shown int64) error {
	form.Form = nil // the number must be entered again
	form.Problem = numberChanged(shown, form.N)
	return showErase(c, http.StatusConflict, form)
}
