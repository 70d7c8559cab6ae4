package sqlkit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// Tables contains the statements that create the tables of a store, and their version.
type Tables struct {
	Version    int
	Statements []string // see Dialect.Types; each with IF NOT EXISTS
	Lock       string   // see Dialect.WritingAlone
}

const versionQuery = `SELECT value FROM {about} WHERE name = 'version'`

// Create creates the tables, and the table {about} with their version, unless they exist. It returns an error if the
// existing tables have another version. Several processes may call Create at the same time. Create does not lock
// existing tables. It also calls Watch.
func (d *DB) Create(ctx context.Context, t Tables) error {
	if err := d.create(ctx, t); err != nil {
		return err
	}
	return d.Watch(ctx)
}

func (d *DB) create(ctx context.Context, t Tables) error {
	var at string
	if err := d.Row(ctx, versionQuery).Scan(&at); err == nil {
		return t.check(at)
	}
	if d.dialect == SQLite {
		if err := d.WriteAhead(ctx); err != nil {
			return err
		}
	}
	return d.Transaction(ctx, d.dialect.WritingAlone(t.Lock), func(tx *Tx) error { return t.create(tx) })
}

// create creates the tables in a transaction.
func (t Tables) create(tx *Tx) error {
	all := append([]string{`CREATE TABLE IF NOT EXISTS {about} (name VARCHAR(20) PRIMARY KEY, value VARCHAR(80) NOT NULL)`}, t.Statements...)
	for _, statement := range all {
		if _, err := tx.Exec(tx.db.dialect.Types(statement)); err != nil {
			return err
		}
	}
	const insert = `INSERT INTO {about} (name, value) VALUES ('version', $1) ON CONFLICT (name) DO NOTHING`
	if _, err := tx.Exec(insert, strconv.Itoa(t.Version)); err != nil {
		return err
	}
	var at string
	if err := tx.Row(versionQuery).Scan(&at); err != nil {
		return err
	}
	return t.check(at)
}

// Check returns the error that Create would return, and then the error of f, in a transaction that is rolled back. MySQL
// cannot roll back the creation of tables: there, Check calls f only if the tables exist.
func (d *DB) Check(ctx context.Context, t Tables, f func(tx *Tx) error) error {
	var at string
	exist := d.Row(ctx, versionQuery).Scan(&at) == nil
	if exist {
		if err := t.check(at); err != nil {
			return err
		}
	}
	err := d.Transaction(ctx, d.dialect.WritingAlone(t.Lock), func(tx *Tx) error {
		switch {
		case exist:
		case d.dialect == MySQL:
			return errUndo
		default:
			if err := t.create(tx); err != nil {
				return err
			}
		}
		if err := f(tx); err != nil {
			return err
		}
		return errUndo
	})
	if errors.Is(err, errUndo) {
		return nil
	}
	return err
}

// errUndo rolls back the transaction of a check.
var errUndo = errors.New("undo")

func (t Tables) check(at string) error {
	if at != strconv.Itoa(t.Version) {
		return fmt.Errorf("schema version must be %d: got %s (use the program that created the tables, or another database)", t.Version, at)
	}
	return nil
}
