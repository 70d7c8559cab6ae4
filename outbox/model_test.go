package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/outbox"
)

// model is the expected state of a box: all committed messages.
type model struct {
	messages []*modelMessage
	unique   map[string]*modelMessage
}

type modelMessage struct {
	id, key   string
	due       time.Time // not before
	canceled  bool      // Cancel has counted it as Done
	removed   bool      // Cancel has counted it as Attempted
	published int
}

func (m *model) find(id string) *modelMessage {
	i := slices.IndexFunc(m.messages, func(m *modelMessage) bool { return m.id == id })
	if i < 0 {
		return nil
	}
	return m.messages[i]
}

// system is a box with two relays, whose publisher is checked against the model.
type system struct {
	*model
	t      *rapid.T
	clock  *clock
	box    *outbox.Box
	relays []*outbox.Relay
	during func() // called while a batch is published
	fault  string // of the next batch
}

// publish checks the promises for each message, and then fails as requested.
func (s *system) publish(messages []*reprise.Message) error {
	if f := s.during; f != nil {
		s.during = nil
		f()
	}
	if s.fault == "killed before" {
		panic(errKilled)
	}
	var failed []*reprise.MessageError
	for i, m := range messages {
		if s.fault == "refused" && i%2 == 0 {
			failed = append(failed, &reprise.MessageError{Index: i, Err: reprise.ErrNacked})
			continue
		}
		s.receive(m)
	}
	switch s.fault {
	case "killed after":
		panic(errKilled)
	case "unconfirmed":
		return reprise.ErrUnconfirmed
	case "disconnected":
		return reprise.ErrDisconnected
	}
	if failed != nil {
		return &reprise.BatchError{Failed: failed}
	}
	return nil
}

func (s *system) receive(got *reprise.Message) {
	m := s.find(got.MessageID)
	switch {
	case m == nil:
		s.t.Errorf("message %s left, but was not committed", got.MessageID)
		return
	case m.canceled:
		s.t.Errorf("message %s left, but was canceled", m.id)
	case s.clock.Now().Before(m.due):
		s.t.Errorf("message %s left at %v, but is due at %v", m.id, s.clock.Now(), m.due)
	case string(got.Body) != m.id:
		s.t.Errorf("message %s left with the body %q", m.id, got.Body)
	}
	for _, earlier := range s.messages {
		if earlier == m {
			break
		}
		if m.key != "" && earlier.key == m.key && earlier.published == 0 && !earlier.canceled && !earlier.removed {
			s.t.Errorf("message %s of key %s left before %s", m.id, m.key, earlier.id)
		}
	}
	m.published++
}

// step runs one batch of a relay. A relay that panics has the effect of a killed process.
func (s *system) step(r int, fault string) {
	s.fault = fault
	var err error
	func() {
		defer func() {
			if p := recover(); p != nil && p != errKilled {
				panic(p)
			}
		}()
		_, err = outbox.Step(s.t.Context(), s.relays[r])
	}()
	if err != nil && !errors.Is(err, reprise.ErrDisconnected) {
		s.t.Fatal(err)
	}
	if fault == "killed before" || fault == "killed after" {
		s.restart(r)
	}
}

func (s *system) restart(r int) {
	var err error
	if s.relays[r], err = outbox.NewRelay(s.box, publisher(s.publish), outbox.RelayConfig{Batch: 4}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *system) insert(db database) {
	now := s.clock.Now()
	var batch []*outbox.Message
	var added []*modelMessage
	unique := map[string]*modelMessage{}
	for range rapid.IntRange(1, 3).Draw(s.t, "messages") {
		m := message(fmt.Sprintf("m%d", len(s.messages)+len(batch)))
		m.RoutingKey = rapid.SampledFrom([]string{"x", "y"}).Draw(s.t, "destination")
		m.Key = rapid.SampledFrom([]string{"", "", "a", "b"}).Draw(s.t, "key")
		m.In = time.Duration(rapid.SampledFrom([]int{0, 0, 1, 5}).Draw(s.t, "seconds")) * time.Second
		want := &modelMessage{id: m.MessageID, key: m.Key, due: now.Add(m.In)}
		if u := rapid.SampledFrom([]string{"", "", "u"}).Draw(s.t, "unique"); u != "" && unique[u] == nil {
			m.Unique, m.UniqueFor = u, 4*time.Second
			if held := s.unique[u]; held != nil && held.due.Add(4*time.Second).After(now) {
				want = held
			} else {
				unique[u] = want
			}
		}
		batch = append(batch, m)
		added = append(added, want)
	}
	tx := begin(s.t, db)
	insert(s.t, s.box, tx, batch...)
	for i, m := range batch {
		if duplicate := added[i].id != fmt.Sprintf("m%d", len(s.messages)+i); m.Duplicate != duplicate || m.MessageID != added[i].id {
			s.t.Errorf("message %d: got duplicate %v of %s, want %v of %s", i, m.Duplicate, m.MessageID, duplicate, added[i].id)
		}
	}
	if rapid.Bool().Draw(s.t, "rollback") {
		if err := tx.Rollback(); err != nil {
			s.t.Fatal(err)
		}
		return
	}
	commit(s.t, tx)
	for i, m := range added {
		if !batch[i].Duplicate {
			s.messages = append(s.messages, m)
		} else {
			s.messages = append(s.messages, &modelMessage{id: fmt.Sprint("duplicate ", len(s.messages)), canceled: true}) // keeps the numbers
		}
	}
	maps.Copy(s.unique, unique)
}

// change cancels or moves a message, and compares the result with the model.
func (s *system) change() {
	if len(s.messages) == 0 {
		return
	}
	m := rapid.SampledFrom(s.messages).Draw(s.t, "message")
	f := outbox.Filter{MessageID: m.id}
	var got outbox.Result
	var err error
	to := s.clock.Now().Add(time.Duration(rapid.IntRange(-1, 3).Draw(s.t, "seconds")) * time.Second)
	cancel := rapid.Bool().Draw(s.t, "cancel")
	if cancel {
		got, err = s.box.Cancel(s.t.Context(), f)
	} else {
		got, err = s.box.Move(s.t.Context(), f, to)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	switch {
	case got.Done+got.Attempted+got.TooLate > 1 || got.Done > 0 && m.published > 0 || m.canceled && got != (outbox.Result{}):
		s.t.Errorf("change of %+v: got %+v", *m, got)
	case m.published == 0 && !m.canceled && !m.removed && got == (outbox.Result{}):
		s.t.Errorf("change of %+v, which has not left: not found", *m)
	case cancel && got.Done > 0:
		m.canceled = true
		for u, holder := range s.unique {
			if holder == m {
				delete(s.unique, u)
			}
		}
	case cancel && got.Attempted > 0:
		m.removed = true
	case got.Done > 0:
		m.due = to
		if to.Before(s.clock.Now()) {
			m.due = s.clock.Now()
		}
	}
}

// waiting returns the number of messages in the box.
func (s *system) waiting() int {
	rows, err := s.box.List(s.t.Context(), outbox.Filter{})
	if err != nil {
		s.t.Fatal(err)
	}
	return len(rows)
}

type publisher func([]*reprise.Message) error

// PublishBatch implements [outbox.Publisher].
func (p publisher) PublishBatch(_ context.Context, messages []*reprise.Message) error {
	return p(messages)
}

// Random operations, with killed relays and changes while a relay publishes, keep the promises of the package.
func TestModel(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		run := 0
		rapid.Check(t, func(t *rapid.T) {
			run++
			s := &system{model: &model{unique: map[string]*modelMessage{}}, t: t, clock: newClock(), relays: make([]*outbox.Relay, 2)}
			s.box = db.box(t, s.clock, func(c *outbox.Config) { c.Prefix = fmt.Sprintf("r%d_", run%5) })
			empty(t, db, fmt.Sprintf("r%d_", run%5))
			for r := range s.relays {
				s.restart(r)
			}
			t.Repeat(map[string]func(*rapid.T){
				"insert": func(*rapid.T) { s.insert(db) },
				"change": func(*rapid.T) { s.change() },
				"pass": func(t *rapid.T) {
					s.clock.pass(time.Duration(rapid.SampledFrom([]int{1, 500, 1000, 4000, 16000}).Draw(t, "ms")) * time.Millisecond)
				},
				"step": func(t *rapid.T) {
					if rapid.Bool().Draw(t, "change during") {
						s.during = s.change
					}
					faults := []string{"", "", "refused", "unconfirmed", "disconnected", "killed before", "killed after"}
					s.step(rapid.IntRange(0, 1).Draw(t, "relay"), rapid.SampledFrom(faults).Draw(t, "fault"))
					s.during = nil
				},
			})
			for n := 0; n < 60 && s.waiting() > 0; n++ { // with working brokers, everything leaves
				s.clock.pass(31 * time.Second)
				for r := range s.relays {
					for range 5 {
						s.step(r, "")
					}
				}
			}
			for _, m := range s.messages {
				if m.published == 0 && !m.canceled && !m.removed {
					t.Errorf("message %s has not left", m.id)
				}
			}
			if n := s.waiting(); n > 0 {
				t.Errorf("%d rows remain", n)
			}
		})
	})
}

// empty empties the tables of a box.
func empty(t fataler, db database, prefix string) {
	t.Helper()
	for _, statement := range []string{"DELETE FROM %smessages", "DELETE FROM %suniq", "UPDATE %srelay SET token = '', until = 0, horizon = 0"} {
		if _, err := db.Exec(fmt.Sprintf(statement, prefix)); err != nil {
			t.Fatal(err)
		}
	}
}
