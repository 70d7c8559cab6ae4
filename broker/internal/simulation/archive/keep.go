package archive

import (
	"bytes"
	"context"
	"database/sql"
	"net/http"
	"time"

	"github.com/reprisemq/reprise/failed"
)

const (
	promisePurge  = "Retention is how long messages are kept after they arrived, whatever their state, except those of a replay that is under way. Purge removes what is older"
	promiseExport = "`reprise failed export` writes all of it as JSON Lines, `import` reads it; what is there already is left alone"
)

// Purge removes expired messages through the JSON API.
func (s *System) Purge() {
	p := s.someConsole()
	if p == nil || s.Retention == 0 || !s.untouched() {
		return
	}
	epoch, before := s.epochNow(), s.alone()
	if before == nil {
		return
	}
	defer func() { <-s.acting }()
	at := time.Now().Add(-s.Retention)
	var done struct {
		Messages int64 `json:"messages"`
	}
	status, err := request(p, "person-0", http.MethodPost, "/api/v1/purge", struct{}{}, &done)
	late := time.Now().Add(-s.Retention)
	after, unread := s.Rows()
	if unread != nil || s.epochNow() != epoch || !s.untouched() {
		return
	}
	removed := int64(0)
	for id, row := range before {
		_, left := after[id]
		switch {
		case left && err == nil && status == http.StatusOK && row.Archived.Before(at) && row.State != failed.Replaying && after[id].State != failed.Replaying:
			s.fail(promisePurge, "message %d is left, which arrived at %v", id, row.Archived)
		case !left && (!row.Archived.Before(late) || row.State == failed.Replaying):
			s.fail(promisePurge, "message %d (%s) was removed, which arrived at %v", id, row.State, row.Archived)
		}
		if !left {
			removed++
			s.mu.Lock()
			s.gone[row.Order.N] = "removed by retention"
			s.mu.Unlock()
		}
	}
	if err == nil && status == http.StatusOK {
		s.strike("act: purge")
		if removed != done.Messages {
			s.fail(promisePurge, "%d messages were removed, but the response reports %d", removed, done.Messages)
		}
	}
	s.note("person-0 purges %d messages, status %d", removed, status)
}

// Export exports the archive and imports the export twice into an empty archive.
func (s *System) Export() {
	p := s.someConsole()
	if p == nil || !s.untouched() {
		return
	}
	epoch, before := s.epochNow(), s.alone()
	if before == nil {
		return
	}
	defer func() { <-s.acting }()
	var lines bytes.Buffer
	n, err := p.Archive().Export(context.Background(), failed.Filter{}, &lines)
	if err != nil || s.epochNow() != epoch || !s.untouched() {
		return
	}
	if n < int64(len(before)) {
		s.fail(promiseExport, "%d of %d messages were exported", n, len(before))
	}
	pool := sql.OpenDB(newDatabase(s.newFileLocked()))
	defer pool.Close()
	other, err := failed.Open(context.Background(), pool, failed.Config{Dialect: failed.SQLite})
	if err != nil {
		s.fail("simulation", "opening an archive to import into: %v", err)
		return
	}
	for time, want := range []int64{n, 0} {
		added, err := other.Import(context.Background(), bytes.NewReader(lines.Bytes()), "person-0")
		if err != nil || added != want {
			s.fail(promiseExport, "import %d of %d messages has added %d: %v", time+1, n, added, err)
			return
		}
	}
	imported, err := rowsOf(other)
	if err != nil {
		s.fail("simulation", "cannot read the imported messages: %v", err)
		return
	}
	count := func(rows map[failed.ID]Row) map[string]int {
		counts := map[string]int{}
		for _, r := range rows {
			counts[r.Queue+"\x00"+r.Error+"\x00"+string(r.Body)+"\x00"+r.Properties.MessageID]++
		}
		return counts
	}
	has := count(imported)
	for what, n := range count(before) {
		if has[what] < n {
			s.fail(promiseExport, "%q exists %d times after an import, but existed %d times before", what, has[what], n)
			return
		}
	}
	s.strike("act: export and import")
}
