package store_test

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/testkit/flags"
	"github.com/reprisemq/reprise/topology"
)

// editCase is an edit and a map from original to edited bodies. If a body is not in the map, the edit is not possible.
// If a body maps to itself, the edit has no effect on it.
type editCase struct {
	edit failed.BulkEdit
	want map[string]string
}

var editBodies = []string{`{"amount": 9, "to": "anna"}`, `{"amount": 5, "to": "anna"}`, `{"to":"ben"}`, `anna 9`, ``, "\xff"}

var editCases = []editCase{
	{
		failed.BulkEdit{Patch: `[{"op":"replace","path":"/amount","value":5}]`},
		map[string]string{editBodies[0]: editBodies[1], editBodies[1]: editBodies[1]},
	},
	{
		failed.BulkEdit{Patch: `[{"op":"test","path":"/to","value":"anna"},{"op":"add","path":"/<fee>","value":{"a": 1}}]`},
		map[string]string{editBodies[0]: `{"amount": 9, "to": "anna", "<fee>": {"a": 1}}`, editBodies[1]: `{"amount": 5, "to": "anna", "<fee>": {"a": 1}}`},
	},
	{
		failed.BulkEdit{Replace: []failed.Replacement{{Old: "anna", New: "carl"}, {Old: `(\d)`, New: "${1}0", Regexp: true}}},
		map[string]string{editBodies[0]: `{"amount": 90, "to": "carl"}`, editBodies[1]: `{"amount": 50, "to": "carl"}`, editBodies[3]: "carl 90"},
	},
	{
		failed.BulkEdit{SetHeaders: topology.Table{"fixed": true, "n": int32(4)}, RemoveHeaders: []string{"broken"}},
		map[string]string{editBodies[0]: editBodies[0], editBodies[1]: editBodies[1], editBodies[2]: editBodies[2], editBodies[3]: editBodies[3], "": "", "\xff": "\xff"},
	},
}

// A bulk edit sends exactly the messages of its preview, with exactly the expected bytes. It records each edit, keeps
// the originals, and does not change other messages.
func TestBulkEditMatchesItsPreview(t *testing.T) {
	flags.Default(t, "rapid.checks", "30")
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		rapid.Check(t, func(t *rapid.T) {
			db.empty(t, a)
			c := rapid.SampledFrom(editCases).Draw(t, "edit")
			edit := c.edit
			edit.SendUnchanged, edit.SendImpossible = rapid.Bool().Draw(t, "send unchanged"), rapid.Bool().Draw(t, "send impossible")
			var arrivals []failed.Arrived
			for i := range rapid.IntRange(1, 12).Draw(t, "messages") {
				queue := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "queue")
				m := failed.Message{Queue: queue, FailedQueue: queue + ".failed", Content: failed.Content{
					Body: []byte(rapid.SampledFrom(editBodies).Draw(t, "body")), Headers: topology.Table{"i": int64(i)}, Properties: failed.Properties{MessageID: fmt.Sprint(i + 1)},
				}}
				if rapid.Bool().Draw(t, "fixed") {
					m.Headers["fixed"], m.Headers["n"] = true, int32(4)
				} else {
					m.Headers["broken"] = "yes"
				}
				arrivals = append(arrivals, failed.Arrived{Message: m})
			}
			ids := value(a.Ingest(ctx, arrivals))(t)
			before := map[failed.ID]*failed.Message{}
			for _, id := range ids {
				if rapid.IntRange(0, 3).Draw(t, "edited by hand") == 0 {
					m := value(a.Get(ctx, id))(t)
					m.Body = []byte(rapid.SampledFrom(editBodies).Draw(t, "new body"))
					check(t, a.Edit(ctx, id, 0, m.Content, "anna"))
				}
				before[id] = value(a.Get(ctx, id))(t)
			}

			// The expected results.
			f := failed.Filter{Queue: "a"}
			bodies, headers := map[failed.ID]string{}, map[failed.ID]topology.Table{} // of the messages to send, by ID
			want := store.EditPreview{}
			isChanged := map[failed.ID]bool{}
			for _, id := range ids {
				m := before[id]
				if m.Queue != "a" {
					continue
				}
				body, possible := c.want[string(m.Current().Body)]
				after := maps.Clone(m.Headers)
				if c.edit.SetHeaders != nil {
					maps.Copy(after, c.edit.SetHeaders)
					delete(after, "broken")
				}
				isChanged[id] = possible && (body != string(m.Current().Body) || len(gocmp.Diff(after, m.Headers)) > 0)
				switch {
				case !possible:
					want.Impossible++
					body, after = string(m.Current().Body), m.Headers
					if !edit.SendImpossible {
						continue
					}
				case !isChanged[id]:
					want.Unchanged++
					if !edit.SendUnchanged {
						continue
					}
				default:
					want.Changed++
				}
				bodies[id], headers[id] = body, after
			}

			plan := failed.Plan{Filter: f, Edit: &edit}
			got := value(a.PreviewEdit(ctx, plan, 0))(t)
			if got.Changed != want.Changed || got.Unchanged != want.Unchanged || got.Impossible != want.Impossible || got.More {
				t.Fatalf("preview: got %+v, want %+v", got, want)
			}
			for _, s := range got.Samples {
				if (s.After != nil) != isChanged[s.ID] || s.After != nil && string(s.After.Body) != bodies[s.ID] {
					t.Fatalf("sample of message %d: got %+v, want body %q", s.ID, s, bodies[s.ID])
				}
			}
			r, err := a.BeginReplay(ctx, plan, "ben")
			if want.Changed+want.Unchanged+want.Impossible == 0 {
				return // the filter selects no messages
			}
			check(t, err)
			if d := gocmp.Diff(plan.Edit, value(a.Replay(ctx, r.ID))(t).Plan.Edit); d != "" {
				t.Fatalf("stored plan differs: %s", d)
			}
			published := map[string]*reprise.Message{}
			r = value(carryOut(ctx, a, r.ID, func(m *reprise.Message) error {
				published[m.MessageID] = m
				return nil
			}))(t)
			if r.State != failed.ReplayDone || r.Sent != int64(len(bodies)) || r.Refused != r.Total-r.Sent || len(published) != len(bodies) {
				t.Fatalf("got %d published messages, want %d; replay: %+v", len(published), len(bodies), r)
			}
			for _, id := range ids {
				was, is := before[id], value(a.Get(ctx, id))(t)
				if d := gocmp.Diff(was.Content, is.Content, same); d != "" {
					t.Fatalf("original of message %d changed: %s", id, d)
				}
				body, isSent := bodies[id]
				m := published[fmt.Sprint(id)]
				switch {
				case was.Queue != "a":
					if d := gocmp.Diff(was, is, same); d != "" {
						t.Fatalf("message %d, which is not selected, changed: %s", id, d)
					}
				case !isSent:
					if m != nil || is.State != failed.Failed || is.Refused == "" || is.Revision != was.Revision {
						t.Fatalf("message %d should not be sent: published %v, archived %+v", id, m, is)
					}
				default:
					delete(m.Headers, topology.HeaderReplay)
					if d := gocmp.Diff(map[string]any(headers[id]), m.Headers); string(m.Body) != body || d != "" {
						t.Fatalf("message %d: published body %q, want %q; headers: %s", id, m.Body, body, d)
					}
					if is.State != failed.Replayed || string(is.Current().Body) != body || (is.Revision != was.Revision) != isChanged[id] {
						t.Fatalf("archived message %d: got %+v, want state replayed, body %q", id, is, body)
					}
				}
				edits := value(a.Edits(ctx, id))(t)
				if n := len(edits); isSent && isChanged[id] && (n != was.Revision+1 || edits[n-1].Replay != r.ID || edits[n-1].Actor != "ben") || !(isSent && isChanged[id]) && n != was.Revision {
					t.Fatalf("message %d: got edits %+v, want a revision by ben only if the edit was sent and changed the message", id, edits)
				}
			}
		})
	})
}

// The sending process was killed before it recorded that a message was sent, so a report is the first proof. The
// archive records the edit of the sent revision, even if the message was edited later.
func TestReportRecordsBulkEdit(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		var arrivals []failed.Arrived
		for i := range 3 {
			arrivals = append(arrivals, failed.Arrived{Message: failed.Message{FailedQueue: "q.failed", Content: failed.Content{Body: fmt.Appendf(nil, "body %d", i), Properties: failed.Properties{MessageID: fmt.Sprint(i)}}}})
		}
		ids := value(a.Ingest(ctx, arrivals))(t)
		check(t, a.Edit(ctx, ids[1], 0, failed.Content{Body: []byte("body by hand")}, "anna"))
		edit := &failed.BulkEdit{Replace: []failed.Replacement{{Old: "body", New: "edited"}}}
		r := value(a.BeginReplay(ctx, failed.Plan{Filter: failed.Filter{All: true}, Edit: edit}, "ben"))(t)
		secret := value(a.AskOutcomes(ctx, r.ID))(t)
		report := func(i int) {
			t.Helper()
			check(t, a.NoteOutcomes(ctx, []protocol.Outcome{{
				Replay: fmt.Sprintf("%d/%d", r.ID, ids[i]), Key: store.OutcomeKey(secret, r.ID, ids[i], "q"), Queue: "q", Attempt: 1, Result: protocol.OutcomeSucceeded,
			}}))
		}
		want := func(i int, state failed.State, body string) {
			t.Helper()
			if m := value(a.Get(ctx, ids[i]))(t); m.State != state || string(m.Current().Body) != body || string(m.Body) != fmt.Sprintf("body %d", i) {
				t.Errorf("message %d: got state %s, body %q (original %q), want state %s, body %q", i, m.State, m.Current().Body, m.Body, state, body)
			}
		}
		report(0)
		want(0, failed.Replayed, "edited 0")
		check(t, a.EndReplay(ctx, r.ID, failed.ReplayCancelled, "", "ben"))
		want(1, failed.Failed, "body by hand")
		check(t, a.Revert(ctx, ids[1], 1, "carl"))
		report(1)
		want(1, failed.Replayed, "edited by hand")

		// Another replay has selected the message in the meantime, and must not send it.
		value(a.BeginReplay(ctx, failed.Plan{Filter: failed.Filter{All: true}}, "carl"))(t)
		report(2)
		want(2, failed.Replayed, "edited 2")
		edits := value(a.Edits(ctx, ids[2]))(t)
		if len(edits) != 1 || edits[0].Replay != r.ID {
			t.Errorf("got edits %+v, want one of replay %d", edits, r.ID)
		}
	})
}

// A preview reads at most the given number of messages. It shows the effect, and each reason why the edit is not
// possible.
func TestPreviewEdit(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t, func(c *store.Config) { c.Redact = []failed.Rule{{Path: "card"}} })
		var arrivals []failed.Arrived
		for _, body := range []string{"text", `{"a":1}`, `{"a":2}`, `{"b":1}`, "more text", `{"card":1,"a":1}`} {
			arrivals = append(arrivals, failed.Arrived{Message: failed.Message{FailedQueue: "q.failed", Content: failed.Content{Body: []byte(body)}}})
		}
		ids := value(a.Ingest(ctx, arrivals))(t)
		plan := failed.Plan{Filter: failed.Filter{Queue: "q"}, Edit: &failed.BulkEdit{Patch: `[{"op":"replace","path":"/a","value":2}]`, SpareSecrets: true}}
		got := value(a.PreviewEdit(ctx, plan, 0))(t)
		content := func(body string) *failed.Content { return &failed.Content{Body: []byte(body)} }
		const secret = "the message has secrets that the editor may not see"
		want := store.EditPreview{
			Changed: 1, Unchanged: 1, Impossible: 4,
			Reasons: []store.EditReason{{"body is not valid JSON", 2}, {"operation 1, replace: /a is missing", 1}, {secret, 1}},
			Samples: []store.EditSample{
				{ID: ids[1], Before: content(`{"a":1}`), After: content(`{"a":2}`)},
				{ID: ids[2], Before: content(`{"a":2}`), Why: "the edit has no effect"},
				{ID: ids[0], Before: content("text"), Why: "body is not valid JSON"},
				{ID: ids[3], Before: content(`{"b":1}`), Why: "operation 1, replace: /a is missing"},
				{ID: ids[5], Why: secret},
			},
		}
		if d := gocmp.Diff(want, got, same); d != "" {
			t.Error(d)
		}
		if got := value(a.PreviewEdit(ctx, plan, 2))(t); !got.More || got.Changed != 1 || got.Impossible != 1 {
			t.Errorf("preview of 2 messages: got %+v, want 1 changed, 1 impossible, and more", got)
		}
		for _, plan := range []failed.Plan{{}, {Edit: &failed.BulkEdit{}}} {
			if _, err := a.PreviewEdit(ctx, plan, 0); !errors.Is(err, failed.ErrInvalid) {
				t.Errorf("plan %+v: got error %v, want ErrInvalid", plan, err)
			}
		}
	})
}
