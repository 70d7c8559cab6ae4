package diskstore

import (
	"errors"
	"os"

	"github.com/cockroachdb/pebble/v2"
)

// Survey returns the documents of a data directory that no process has open, and the number of messages in each
// queue. It does not change the directory. If the directory is missing or is not a data directory, both results are
// nil.
func Survey(dir string) (documents []Document, messages map[uint64]int, err error) {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	d, _, err := openOffline(&Options{Dir: dir})
	if errors.Is(err, errNoData) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer d.lock.Close()
	database := d.fs.PathJoin(dir, databaseDir)
	if _, err := d.examine(database, false); err != nil {
		return nil, nil, err
	}
	var c contents
	err = d.readView(newView(d.fs.FS), database, func(db *pebble.DB) error { return c.readCounts(&source{db: db}) })
	if err == nil && !c.counted {
		err = ErrDamaged
	}
	return c.documents, c.expected, err
}
