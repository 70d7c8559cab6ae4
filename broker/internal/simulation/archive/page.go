package archive

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
)

var number = regexp.MustCompile(`[0-9][0-9,  ]*`)

// announcedBy parses the number in a heading such as "Discard 3 messages".
func announcedBy(heading string) (int64, bool) {
	m := number.FindString(heading)
	n, err := strconv.ParseInt(strings.NewReplacer(",", "", " ", "", " ", "", " ", "").Replace(m), 10, 64)
	return n, err == nil
}

// confirm fills in the form of a confirmation page and submits it after a while.
func (s *System) confirm(b *Browser, page *Page, i intent, action string, fill func(*Form)) (int64, actOutcome) {
	if page.Status >= 500 {
		return 0, actOutcome{}
	}
	heading := page.Heading()
	if page.Status != http.StatusOK {
		return 0, actOutcome{problem: fmt.Sprintf("confirmation page: got status %d: %s", page.Status, page.Text)}
	}
	if strings.Contains(page.Text, "No messages to "+i.verb) {
		return 0, actOutcome{}
	}
	n, ok := announcedBy(heading)
	form, found := page.FormTo(action)
	if !ok || !found || len(form.Buttons) == 0 {
		return 0, actOutcome{problem: fmt.Sprintf("confirmation page without a number or a form: %s", page.Text)}
	}
	e := actOutcome{n: -1}
	for _, w := range i.words {
		if !strings.Contains(strings.ToLower(page.Subtitle()), strings.ToLower(w)) {
			e.problem = fmt.Sprintf("confirmation page: got filter %q, want it to contain %q", page.Subtitle(), w)
		}
	}
	through, _ := strconv.ParseInt(form.Values.Get("through"), 10, 64)
	e.through = failed.ID(through)
	fill(form)
	if i.wait > 0 {
		time.Sleep(i.wait) // the operator reads the page or is away
	}
	if e.before = s.exclusiveRows(); e.before == nil {
		return n, actOutcome{}
	}
	result, err := b.Submit(form, form.Buttons[0])
	if err != nil {
		e.problem = err.Error()
		return n, e
	}
	e.status = result.Status
	if result.Status == http.StatusConflict && !strings.Contains(result.Alert(), "nothing was changed") {
		e.problem = "the conflict page does not report that nothing was changed: " + result.Text
	}
	if rest, ok := strings.CutPrefix(result.URL.Path, "/replays/"); ok && result.Status == http.StatusOK {
		id, _ := strconv.ParseInt(rest, 10, 64)
		e.replay = failed.ReplayID(id)
	}
	if notice := result.Notice(); notice != "" && i.verb != "replay" {
		if number, ok := announcedBy(notice); ok {
			e.n = number
		}
	}
	return n, e
}

// exclusiveRows returns the current messages, and blocks other actions on the archive until act has read the messages
// again. If another action is in progress, it waits. It returns nil if that action does not end within 5 minutes, or if the
// archive cannot be read.
func (s *System) exclusiveRows() map[failed.ID]Row {
	select {
	case s.acting <- struct{}{}:
	case <-time.After(5 * time.Minute):
		return nil // another action waits for a database that hangs
	}
	all, err := s.Rows()
	if err != nil || all == nil {
		<-s.acting
		return nil
	}
	return all
}

// fillReplay fills in random settings for a replay.
func fillReplay(random *rand.Rand, f *Form) {
	switch random.IntN(4) {
	case 0:
		f.Values.Del("ramp")
	case 1:
		f.Values.Set("ramp", "yes")
	case 2:
		f.Values.Set("rate", strconv.Itoa(1+random.IntN(50)))
	}
	if random.IntN(4) == 0 {
		canaries := f.Options("canary")
		f.Values.Set("canary", canaries[random.IntN(len(canaries))])
	}
	if random.IntN(3) == 0 {
		f.Values.Del("same")
	}
}

// labels maps each verb to the label of its link or button and to the action of its form.
var labels = map[string]struct{ all, action string }{
	"discard": {"Discard all…", "/discard"},
	"replay":  {"Replay all…", "/replays"},
	"restore": {"Restore all…", "/restore"},
}

func stateOf(verb string) failed.State {
	if verb == "restore" {
		return failed.Discarded
	}
	return failed.Failed
}

func (s *System) intent(verb string, random *rand.Rand) intent {
	s.mu.Lock()
	s.acts++
	n := s.acts
	s.mu.Unlock()
	return intent{
		verb: verb, from: stateOf(verb), actor: "person-" + strconv.Itoa(random.IntN(4)),
		reason: fmt.Sprintf("reason %d of %d", n, random.IntN(1000)), selects: func(Row) bool { return true },
	}
}

// OnGroup acts on a whole group through its page.
func (s *System) OnGroup(verb string, random *rand.Rand, wait time.Duration) {
	i := s.intent(verb, random)
	i.wait = wait
	var chosen Row
	i.selects = func(r Row) bool { return r.Queue == chosen.Queue && classOf(r.Error) == classOf(chosen.Error) }
	s.act(&i, func(b *Browser) (int64, actOutcome) {
		list, err := b.Get("/groups?state=" + string(i.from))
		if err != nil || list.Status != http.StatusOK {
			return 0, actOutcome{}
		}
		groups := list.LinksTo("/groups/")
		if len(groups) == 0 {
			return 0, actOutcome{}
		}
		page, err := b.Follow(list, groups[random.IntN(len(groups))])
		if err != nil || page.Status != http.StatusOK {
			return 0, actOutcome{}
		}
		if verb == "restore" {
			for _, l := range page.Links() {
				if strings.HasPrefix(l.Text, "discarded") {
					if page, err = b.Follow(page, l); err != nil || page.Status != http.StatusOK {
						return 0, actOutcome{}
					}
					break
				}
			}
		}
		link, ok := page.Link(labels[verb].all)
		if !ok {
			return 0, actOutcome{}
		}
		// The operator sees the first message of the list.
		some, err := s.first(page)
		if err != nil || some == nil {
			return 0, actOutcome{}
		}
		chosen = *some
		if strings.HasPrefix(classOf(chosen.Error), "other: ") {
			i.selects = func(r Row) bool { return r.Group == chosen.Group }
		}
		i.words = append(i.words, chosen.Queue)
		ask, err := b.Follow(page, link)
		if err != nil {
			return 0, actOutcome{}
		}
		return s.confirm(b, ask, i, labels[verb].action, func(f *Form) { s.fill(f, i, random) })
	})
}

func (s *System) fill(f *Form, i intent, random *rand.Rand) {
	switch i.verb {
	case "discard":
		f.Values.Set("reason", i.reason)
	case "replay":
		fillReplay(random, f)
	}
}

// first returns the first message of a list on a page.
func (s *System) first(page *Page) (*Row, error) {
	links := page.LinksTo("/messages/")
	if len(links) == 0 {
		return nil, nil
	}
	id, err := strconv.ParseInt(strings.TrimPrefix(links[0].Address, "/messages/"), 10, 64)
	if err != nil {
		return nil, err
	}
	a, err := s.openArchive()
	if err != nil {
		return nil, err
	}
	m, err := a.Get(context.Background(), failed.ID(id))
	if err != nil {
		return nil, err
	}
	return &Row{Message: *m}, nil
}

// search is a query and its expected result.
type search struct {
	fields map[string]string
	finds  func(Row) bool
	words  []string
}

func (s *System) someSearch(random *rand.Rand, some []Row) search {
	r := some[random.IntN(len(some))]
	switch random.IntN(6) {
	case 0:
		return search{map[string]string{"queue": r.Queue}, func(x Row) bool { return x.Queue == r.Queue }, []string{r.Queue}}
	case 1:
		text := "stock"
		return search{map[string]string{"text": text}, func(x Row) bool { return hasWord(x, text) }, []string{text}}
	case 2:
		text := "declined after"
		return search{map[string]string{"error": text}, func(x Row) bool { return strings.Contains(x.Error, text) }, []string{text}}
	case 3:
		text := r.Order.Note
		return search{map[string]string{"text": text, "queue": r.Queue}, func(x Row) bool { return x.Queue == r.Queue && hasWord(x, text) }, []string{text, r.Queue}}
	case 4:
		return search{map[string]string{"header": "tenant=" + tenant(r.Order.N)}, func(x Row) bool { return x.Headers["tenant"] == tenant(r.Order.N) }, []string{tenant(r.Order.N)}}
	}
	return search{map[string]string{"min_attempts": "2"}, func(x Row) bool { return x.Attempts >= 2 }, []string{"2"}}
}

// tenant returns the value of the tenant header of order n.
func tenant(n int) string { return "t" + strconv.Itoa(n%3) }

var words = regexp.MustCompile(`[\p{L}\p{N}]+`)

// hasWord reports whether a message contains a word in its errors, its IDs or its body.
func hasWord(r Row, word string) bool {
	texts := []string{r.Error, r.Properties.MessageID, r.Properties.CorrelationID, string(r.Body)}
	for _, e := range r.Errors {
		texts = append(texts, e.Error)
	}
	return slices.ContainsFunc(words.FindAllString(strings.Join(texts, " "), -1), func(w string) bool { return strings.EqualFold(w, word) })
}

// OnSearch acts on the results of a search.
func (s *System) OnSearch(verb string, random *rand.Rand, wait time.Duration) {
	i := s.intent(verb, random)
	i.wait = wait
	s.act(&i, func(b *Browser) (int64, actOutcome) {
		all, err := s.Rows()
		if err != nil || len(all) == 0 {
			return 0, actOutcome{}
		}
		known := slices.SortedFunc(maps.Values(all), func(a, b Row) int { return int(a.ID - b.ID) })
		sought := s.someSearch(random, known)
		i.selects, i.words = sought.finds, sought.words
		page, err := b.Get("/messages")
		if err != nil || page.Status != http.StatusOK {
			return 0, actOutcome{}
		}
		if i.from == failed.Discarded {
			for _, l := range page.Links() {
				if strings.HasPrefix(l.Text, "discarded") {
					if page, err = b.Follow(page, l); err != nil || page.Status != http.StatusOK {
						return 0, actOutcome{}
					}
					break
				}
			}
		}
		form, ok := page.FormTo("/messages")
		if !ok {
			return 0, actOutcome{problem: "search form not found"}
		}
		for name, value := range sought.fields {
			if len(form.Options(name)) == 0 {
				return 0, actOutcome{problem: "search form without the field " + name}
			}
			form.Values.Set(name, value)
		}
		button, ok := form.Button("Search")
		if !ok {
			return 0, actOutcome{problem: "search button not found"}
		}
		found, err := b.Submit(form, button)
		if err != nil || found.Status != http.StatusOK {
			return 0, actOutcome{}
		}
		link, ok := found.Link(labels[verb].all)
		if !ok {
			return 0, actOutcome{}
		}
		ask, err := b.Follow(found, link)
		if err != nil {
			return 0, actOutcome{}
		}
		return s.confirm(b, ask, i, labels[verb].action, func(f *Form) { s.fill(f, i, random) })
	})
}

// OnPicked acts on messages that the operator has selected in a list.
func (s *System) OnPicked(verb string, random *rand.Rand, wait time.Duration) {
	i := s.intent(verb, random)
	i.wait = wait
	s.act(&i, func(b *Browser) (int64, actOutcome) {
		page, err := b.Get("/messages?state=" + string(i.from))
		if err != nil || page.Status != http.StatusOK {
			return 0, actOutcome{}
		}
		form, ok := page.FormTo("/replays/picked")
		if !ok {
			return 0, actOutcome{}
		}
		picked := map[failed.ID]bool{}
		for _, id := range form.Options("id") {
			if random.IntN(3) == 0 {
				form.Values.Add("id", id)
				n, _ := strconv.ParseInt(id, 10, 64)
				picked[failed.ID(n)] = true
			}
		}
		if len(picked) == 0 {
			return 0, actOutcome{}
		}
		i.selects = func(r Row) bool { return picked[r.ID] }
		button, ok := form.Button(map[string]string{"discard": "Discard…", "replay": "Replay…", "restore": "Restore"}[verb])
		if !ok {
			return 0, actOutcome{problem: "button for selected messages not found"}
		}
		if verb == "restore" { // without a confirmation page
			e := actOutcome{n: -1, before: s.exclusiveRows()}
			if e.before == nil {
				return 0, actOutcome{}
			}
			result, err := b.Submit(form, button)
			if err != nil {
				return 0, actOutcome{}
			}
			e.status = result.Status
			return int64(len(picked)), e
		}
		ask, err := b.Submit(form, button)
		if err != nil {
			return 0, actOutcome{}
		}
		return s.confirm(b, ask, i, labels[verb].action, func(f *Form) { s.fill(f, i, random) })
	})
}
