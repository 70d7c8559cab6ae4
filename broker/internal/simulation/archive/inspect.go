package archive

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// inspector reads the file of an archive, unaffected by database faults in the processes.
type inspector struct {
	path    string
	pool    *sql.DB
	archive *store.Archive
}

func (i *inspector) close() {
	if i != nil {
		_ = i.pool.Close()
	}
}

// inspect opens an existing archive file.
func inspect(path string) (*inspector, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, err // otherwise SQLite would create the file
	}
	pool := sql.OpenDB(NewDatabase(path))
	a, err := store.Open(context.Background(), pool, store.Config{Dialect: store.SQLite})
	if err != nil {
		_ = pool.Close()
		return nil, err
	}
	return &inspector{path, pool, a}, nil
}

// Row is a message of the archive.
type Row struct {
	failed.Message
	Order Order
	known bool // the body is a valid order
}

// open reports whether the message has not been replayed, so that operators can still find it.
func (r Row) open() bool { return r.State != failed.Replayed }

// rowsOf returns all messages of an archive.
func rowsOf(a *store.Archive) (map[failed.ID]Row, error) {
	all := map[failed.ID]Row{}
	for m, err := range a.Each(context.Background(), failed.Filter{}) {
		if err != nil {
			return nil, err
		}
		r := Row{Message: *m}
		r.known = json.Unmarshal(m.Body, &r.Order) == nil
		all[m.ID] = r
	}
	return all, nil
}

// Rows returns all messages of the current archive.
func (s *System) Rows() (map[failed.ID]Row, error) {
	a, err := s.openArchive()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	epoch := s.epoch
	s.mu.Unlock()
	all := map[failed.ID]Row{}
	for page := (store.Page{Size: 1000}); ; {
		list, next, err := a.List(context.Background(), failed.Filter{}, page)
		if err != nil {
			return nil, err
		}
		for _, line := range list {
			r, err := s.fullMessage(a, epoch, line.ID)
			if err != nil {
				return nil, err
			}
			r.State, r.ReplayedBy, r.Discarded, r.Refused = line.State, line.ReplayedBy, line.Discarded, line.Refused
			all[r.ID] = r
		}
		if page.After = next; next == "" {
			return all, nil
		}
	}
}

// fullMessage returns a message with all fields. It caches the first read, because most fields do
// not change.
func (s *System) fullMessage(a *store.Archive, epoch int, id failed.ID) (Row, error) {
	key := resend{epoch: epoch, id: id}
	s.mu.Lock()
	r, found := s.rows[key]
	s.mu.Unlock()
	if found {
		return r, nil
	}
	m, err := a.Get(context.Background(), id)
	if err != nil {
		return r, err
	}
	r = Row{Message: *m}
	r.known = json.Unmarshal(m.Body, &r.Order) == nil
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows[key] = r
	return r, nil
}

// openArchive returns the archive through a connection that faults of the processes do not affect.
func (s *System) openArchive() (*store.Archive, error) {
	path := s.path()
	s.mu.Lock()
	have := s.inspector
	s.mu.Unlock()
	if have != nil && have.path == path {
		return have.archive, nil
	}
	have.close()
	i, err := inspect(path)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inspector = i
	if err != nil {
		s.inspector = nil
		return nil, err
	}
	return i.archive, nil
}

// closeInspector closes the inspector. Call it before the file of the archive is replaced.
func (s *System) closeInspector() {
	s.mu.Lock()
	i := s.inspector
	s.inspector = nil
	s.mu.Unlock()
	i.close()
}

// move moves the files of a database to another directory and returns the new path.
func move(path, dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	to := filepath.Join(dir, filepath.Base(path))
	for _, suffix := range []string{"", "-wal", "-shm"} {
		err := os.Rename(path+suffix, to+suffix)
		if err != nil && !(suffix != "" && os.IsNotExist(err)) {
			return "", fmt.Errorf("cannot move a database: %w", err)
		}
	}
	return to, nil
}
