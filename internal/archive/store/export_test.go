package store_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/testkit/flags"
)

// unlike ignores the fields that differ between two archives.
var unlike = cmpopts.IgnoreFields(failed.Message{}, "ID", "Group", "Archived", "ReplayedBy", "Back", "BackOf")

func TestExportAndImportAreLossless(t *testing.T) {
	flags.Default(t, "rapid.checks", "25")
	eachDatabase(t, func(t *testing.T, db database) {
		from, to := db.archive(t), db.archive(t)
		rapid.Check(t, func(t *rapid.T) {
			db.empty(t, from)
			db.empty(t, to)
			ids := value(from.Ingest(ctx, rapid.SliceOfN(anyArrival, 1, 4).Draw(t, "arrivals")))(t)
			for _, id := range ids {
				for range rapid.IntRange(0, 2).Draw(t, "edits") {
					check(t, from.Edit(ctx, id, value(from.Get(ctx, id))(t).Revision, anyContent.Draw(t, "edited"), "editor"))
				}
			}
			if rapid.Bool().Draw(t, "discarded") {
				value(from.Discard(ctx, failed.Filter{IDs: ids[:1]}, "r"+anyBytes.Draw(t, "reason"), "me"))(t)
			}
			var file bytes.Buffer
			if n := value(from.Export(ctx, failed.Filter{}, &file))(t); n != int64(len(ids)) || strings.Count(file.String(), "\n") != len(ids) {
				t.Fatalf("exported %d messages in %d lines, want %d", n, strings.Count(file.String(), "\n"), len(ids))
			}
			exported := file.String()
			if n := value(to.Import(ctx, strings.NewReader(exported), "me"))(t); n != int64(len(ids)) {
				t.Fatalf("imported %d messages, want %d", n, len(ids))
			}
			if n := value(to.Import(ctx, strings.NewReader(exported+"\n"+exported), "me"))(t); n != 0 {
				t.Fatalf("second import: got %d new messages, want 0", n)
			}
			if n := value(from.Import(ctx, strings.NewReader(exported), "me"))(t); n != 0 {
				t.Fatalf("import into the source archive: got %d new messages, want 0", n)
			}
			want, got := all(t, from), all(t, to)
			if d := gocmp.Diff(want, got, same, unlike); d != "" {
				t.Fatalf("messages: (-want +got)\n%s", d)
			}
			for i := range want {
				if d := gocmp.Diff(revisions(t, from, want[i].ID), revisions(t, to, got[i].ID), same); d != "" {
					t.Fatalf("revisions: (-want +got)\n%s", d)
				}
			}
			// The export of the second archive is equal, and both archives recognize it.
			file.Reset()
			value(to.Export(ctx, failed.Filter{}, &file))(t)
			if n := value(from.Import(ctx, &file, "me"))(t); n != 0 {
				t.Fatalf("import of the second export: got %d new messages, want 0", n)
			}
		})
	})
}

func all(t rapid.TB, a *store.Archive) (all []*failed.Message) {
	for m, err := range a.Each(ctx, failed.Filter{}) {
		check(t, err)
		all = append(all, m)
	}
	return all
}

func TestImportReportsInvalidLine(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		from, to := db.archive(t), db.archive(t)
		value(from.Ingest(t.Context(), []failed.Arrived{{Message: failed.Message{FailedQueue: "q.failed"}}, {Message: failed.Message{FailedQueue: "q.failed"}}}))(t)
		var file bytes.Buffer
		value(from.Export(t.Context(), failed.Filter{}, &file))(t)
		lines := strings.SplitAfter(file.String(), "\n")
		for bad, says := range map[string]string{
			"{\n":                           "unexpected end",
			"{}\n":                          "not an exported message",
			`{"archive":"x","id":1}` + "\n": "not an exported message",
			strings.Replace(lines[0], `"state":"failed"`, `"state":"lost"`, 1):      `state “lost” not found`,
			strings.Replace(lines[0], `"headers":{}`, `"headers":{"a":1}`, 1):       `must have a type`,
			strings.Replace(lines[0], `"headers":{}`, `"headers":{},"edited":1`, 1): `edited must be between 0 and 0: got 1`,
		} {
			n, err := to.Import(t.Context(), strings.NewReader(lines[0]+bad+lines[1]), "me")
			if !errors.Is(err, failed.ErrInvalid) || !strings.Contains(err.Error(), "line 2") || !strings.Contains(err.Error(), says) {
				t.Errorf("line %s: got %d, %v, want error %q", bad, n, err, says)
			}
		}
		if n := value(to.Count(t.Context(), failed.Filter{}))(t); n.N != 1 {
			t.Errorf("got %d messages, want only the message before the invalid line", n.N)
		}
		if n := value(to.Import(t.Context(), &file, "me"))(t); n != 1 {
			t.Errorf("import of the corrected file: got %d new messages, want 1", n)
		}
		acts, _, err := to.Acts(t.Context(), store.ActFilter{}, store.Page{})
		check(t, err)
		if len(acts) != 2 || acts[0].Verb != "import" || acts[0].Actor != "me" || acts[0].Details["messages"] != 1.0 {
			t.Errorf("got acts %+v, want 2 acts, the last an import of 1 message by me", acts)
		}
	})
}

// Retention counts from the arrival in this archive.
func TestRetentionOfImportedMessagesStartsAtImport(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		c := newClock()
		week := func(cfg *store.Config) { cfg.Clock, cfg.Retention = c.now, 7*24*time.Hour }
		from, to := db.archive(t, week), db.archive(t, week)
		value(from.Ingest(t.Context(), []failed.Arrived{{Message: failed.Message{FailedQueue: "q.failed"}}}))(t)
		var file bytes.Buffer
		value(from.Export(t.Context(), failed.Filter{}, &file))(t)
		c.pass(8 * 24 * time.Hour)
		value(to.Import(t.Context(), &file, "me"))(t)
		if n := value(from.Purge(t.Context(), "policy:retention"))(t); n != 1 {
			t.Errorf("source archive: purged %d messages after 8 days, want 1", n)
		}
		if n := value(to.Purge(t.Context(), "policy:retention"))(t); n != 0 {
			t.Errorf("purged %d messages directly after the import, want 0", n)
		}
	})
}

// revisions returns all edits of a message with their contents.
func revisions(t rapid.TB, a *store.Archive, id failed.ID) (all []*store.Revision) {
	t.Helper()
	for _, edit := range value(a.Edits(ctx, id))(t) {
		all = append(all, value(a.Revision(ctx, id, edit.Number))(t))
	}
	return all
}
