package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
)

// OnMessage acts on one message through its page.
func (s *System) OnMessage(verb string, random *rand.Rand, wait time.Duration) {
	i := s.intent(verb, random)
	i.wait = wait
	s.act(&i, func(b *Browser) (int64, actOutcome) {
		page, id := s.someMessage(b, i.from, random)
		if page == nil {
			return 0, actOutcome{}
		}
		i.selects = func(r Row) bool { return r.ID == id }
		switch verb {
		case "discard":
			link, ok := page.Link("Discard…")
			if !ok {
				return 0, actOutcome{} // the action is no longer available
			}
			ask, err := b.Follow(page, link)
			if err != nil {
				return 0, actOutcome{}
			}
			return s.confirm(b, ask, i, "/discard", func(f *Form) { s.fill(f, i, random) })
		case "replay":
			if form, ok := page.FormTo("/replays"); ok && random.IntN(2) == 0 {
				return s.press(b, form, form.Buttons[0], 1)
			}
			link, ok := page.Link("Replay with options…")
			if !ok {
				return 0, actOutcome{}
			}
			ask, err := b.Follow(page, link)
			if err != nil {
				return 0, actOutcome{}
			}
			return s.confirm(b, ask, i, "/replays", func(f *Form) { s.fill(f, i, random) })
		}
		form, ok := page.FormTo("/restore")
		if !ok {
			return 0, actOutcome{}
		}
		return s.press(b, form, form.Buttons[0], 1)
	})
}

// someMessage opens the page of a random message in the given state.
func (s *System) someMessage(b *Browser, state failed.State, random *rand.Rand) (*Page, failed.ID) {
	list, err := b.Get("/messages?state=" + string(state))
	if err != nil || list.Status != http.StatusOK {
		return nil, 0
	}
	links := list.LinksTo("/messages/")
	if len(links) == 0 {
		return nil, 0
	}
	link := links[random.IntN(len(links))]
	page, err := b.Follow(list, link)
	if err != nil || page.Status != http.StatusOK {
		return nil, 0
	}
	id, _ := strconv.ParseInt(strings.TrimPrefix(link.Address, "/messages/"), 10, 64)
	return page, failed.ID(id)
}

// press submits a form that acts without a confirmation page.
func (s *System) press(b *Browser, f *Form, with Button, announced int64) (int64, actOutcome) {
	e := actOutcome{n: -1, before: s.exclusiveRows()}
	if e.before == nil {
		return 0, actOutcome{}
	}
	result, err := b.Submit(f, with)
	if err != nil {
		e.problem = err.Error()
		return announced, e
	}
	e.status = result.Status
	if rest, ok := strings.CutPrefix(result.URL.Path, "/replays/"); ok && result.Status == http.StatusOK {
		id, _ := strconv.ParseInt(rest, 10, 64)
		e.replay = failed.ReplayID(id)
	}
	return announced, e
}

const (
	promiseSeen = "Save and replay sends exactly the edited content"
	promiseEdit = "an edit keeps the original, and a concurrent edit is rejected"
)

// Edit edits a message on its page, so that the handler succeeds, and sometimes replays it. Another operator may edit the
// same message concurrently.
func (s *System) Edit(random *rand.Rand, wait time.Duration) {
	i := s.intent("replay", random)
	replays, rival := random.IntN(3) > 0, random.IntN(3) == 0
	s.act(&i, func(b *Browser) (int64, actOutcome) {
		page, id := s.someMessage(b, failed.Failed, random)
		if page == nil {
			return 0, actOutcome{}
		}
		i.selects = func(r Row) bool { return r.ID == id }
		link, ok := page.Link("Edit")
		if !ok {
			return 0, actOutcome{}
		}
		edit, err := b.Follow(page, link)
		if err != nil || edit.Status != http.StatusOK {
			return 0, actOutcome{}
		}
		form, ok := edit.FormTo(fmt.Sprintf("/messages/%d/edit", id))
		if !ok {
			return 0, actOutcome{problem: "edit form not found"}
		}
		body := form.Values.Get("body")
		changed := strings.Replace(body, `"amount": 9`, `"amount": 5`, 1)
		changed = strings.Replace(changed, `"note": "`, `"note": "edited`+strconv.Itoa(random.IntN(100))+` `, 1)
		if changed == body {
			return 0, actOutcome{problem: "cannot edit the body: " + body}
		}
		form.Values.Set("body", changed)
		if wait > 0 {
			time.Sleep(wait)
		}
		label := map[bool]string{true: "Save and replay", false: "Save"}[replays]
		button, ok := form.Button(label)
		if !ok {
			return 0, actOutcome{problem: "button not found: " + label}
		}
		e := actOutcome{n: -1, before: s.exclusiveRows()}
		if e.before == nil {
			return 0, actOutcome{}
		}
		was := e.before[id]
		overtaken := false
		if rival {
			overtaken = s.rivalEdits(was.Message)
		}
		result, err := b.Submit(form, button)
		if err != nil {
			e.problem = err.Error()
			return 1, e
		}
		e.status = result.Status
		s.strike("edit" + e.outcome())
		if overtaken && result.Status < 400 {
			s.fail(promiseEdit, "message %d: conflicting edit accepted with status %d", id, result.Status)
		}
		if rest, ok := strings.CutPrefix(result.URL.Path, "/replays/"); ok && result.Status == http.StatusOK {
			n, _ := strconv.ParseInt(rest, 10, 64)
			e.replay = failed.ReplayID(n)
		}
		s.checkEdit(id, e, changed, replays, overtaken)
		if !replays {
			// An edit alone does not change the state of messages, so act has nothing to compare.
			<-s.acting
			return 0, actOutcome{}
		}
		if overtaken || e.replay == 0 && e.status == http.StatusOK {
			e.status = http.StatusConflict
		}
		if e.status == http.StatusConflict { // the conflict concerns the single message, and the announced number is correct
			<-s.acting
			return 0, actOutcome{}
		}
		return 1, e
	})
}

// checkEdit compares the stored edit of a message with the content of the form.
func (s *System) checkEdit(id failed.ID, e actOutcome, body string, replays, overtaken bool) {
	if e.status != http.StatusOK || overtaken {
		return
	}
	a, err := s.openArchive()
	if err != nil {
		return
	}
	m, err := a.Get(context.Background(), id)
	if err != nil {
		return
	}
	if !sameJSON(m.Current().Body, []byte(body)) {
		s.fail(promiseSeen, "edited body of message %d: got %q, want %q", id, m.Current().Body, body)
	}
	if !bytes.Equal(m.Body, e.before[id].Body) {
		s.fail(promiseEdit, "original body of message %d: got %q, want %q", id, m.Body, e.before[id].Body)
	}
	if replays && e.replay != 0 && m.State == failed.Failed && m.ReplayedBy == 0 {
		if r, err := a.Replay(context.Background(), e.replay); err == nil && r.State == failed.ReplayRunning {
			s.fail(promiseSeen, "message %d was edited and replayed, but its state is %s", id, m.State)
		}
	}
}

func sameJSON(a, b []byte) bool {
	var x, y Order
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && x == y
}

// rivalEdits edits a message as another operator and reports whether the edit succeeded.
func (s *System) rivalEdits(m failed.Message) bool {
	p := s.nextConsole()
	if p == nil {
		return false
	}
	c := m.Current()
	c.Body = bytes.Replace(c.Body, []byte(`"note":"`), []byte(`"note":"rival `), 1)
	return !bytes.Equal(c.Body, m.Current().Body) && p.Archive().Edit(context.Background(), m.ID, m.Revision, c, "rival") == nil
}

// Cancel cancels a running replay on its page.
func (s *System) Cancel(random *rand.Rand) {
	p := s.nextConsole()
	if p == nil || !s.fileInPlace() {
		return
	}
	epoch := s.epochNow()
	b := &Browser{Console: p, Actor: "person-0"}
	list, err := b.Get("/replays")
	if err != nil || list.Status != http.StatusOK {
		return
	}
	links := list.LinksTo("/replays/")
	if len(links) == 0 {
		return
	}
	link := links[random.IntN(min(3, len(links)))]
	page, err := b.Follow(list, link)
	if err != nil || page.Status != http.StatusOK {
		return
	}
	for _, f := range page.Forms() {
		button, ok := f.Button("Cancel replay")
		if !ok {
			continue
		}
		result, err := b.Submit(f, button)
		if err == nil && result.Status == http.StatusOK {
			n, _ := strconv.ParseInt(strings.TrimPrefix(link.Address, "/replays/"), 10, 64)
			s.strike("act: cancel")
			s.note("person-0 cancels replay %d", n)
			s.mu.Lock()
			if r := s.replays[epochReplay{epoch, failed.ReplayID(n)}]; r != nil {
				r.cancelled = true
			}
			s.mu.Unlock()
		}
	}
}
