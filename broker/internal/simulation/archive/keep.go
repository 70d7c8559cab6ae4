package archive

import (
	"bytes"
	"context"
	"database/sql"
	"net/http"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

const (
	promisePurge  = "Purge removes the expired messages of all states, except messages of a running replay"
	promiseExport = "an export contains all messages, and an import adds only missing messages"
)

// Purge removes expired messages through the JSON API.
func (s *System) Purge() {
	p := s.nextConsole()
	if p == nil || s.Retention == 0 || !s.fileInPlace() {
		return
	}
	epoch, before := s.epochNow(), s.exclusiveRows()
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
	if unread != nil || s.epochNow() != epoch || !s.fileInPlace() {
		return
	}
	removed := int64(0)
	for id, row := range before {
		_, left := after[id]
		switch {
		case left && err == nil && status == http.StatusOK && row.Archived.Before(at) && row.State != failed.Replaying && after[id].State != failed.Replaying:
			s.fail(promisePurge, "expired message %d, archived at %v, was not removed", id, row.Archived)
		case !left && (!row.Archived.Before(late) || row.State == failed.Replaying):
			s.fail(promisePurge, "message %d (%s), archived at %v, was removed", id, row.State, row.Archived)
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
			s.fail(promisePurge, "removed %d messages, but the response reports %d", removed, done.Messages)
		}
	}
	s.note("person-0 purges %d messages, status %d", removed, status)
}

// Export exports the archive and imports the export twice into a new archive.
func (s *System) Export() {
	p := s.nextConsole()
	if p == nil || !s.fileInPlace() {
		return
	}
	epoch, before := s.epochNow(), s.exclusiveRows()
	if before == nil {
		return
	}
	defer func() { <-s.acting }()
	var lines bytes.Buffer
	n, err := p.Archive().Export(context.Background(), failed.Filter{}, &lines)
	if err != nil || s.epochNow() != epoch || !s.fileInPlace() {
		return
	}
	if n < int64(len(before)) {
		s.fail(promiseExport, "exported %d of %d messages", n, len(before))
	}
	pool := sql.OpenDB(NewDatabase(s.newFileLocked()))
	defer pool.Close()
	other, err := store.Open(context.Background(), pool, store.Config{Dialect: store.SQLite})
	if err != nil {
		s.fail("simulation", "cannot open an archive for the import: %v", err)
		return
	}
	for time, want := range []int64{n, 0} {
		added, err := other.Import(context.Background(), bytes.NewReader(lines.Bytes()), "person-0")
		if err != nil || added != want {
			s.fail(promiseExport, "import %d of %d messages added %d: %v", time+1, n, added, err)
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
			s.fail(promiseExport, "%q exists %d times after an import, %d times before", what, has[what], n)
			return
		}
	}
	s.strike("act: export and import")
}
