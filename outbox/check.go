package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Check returns an error if Open would fail, if the tables cannot be written, or if a Relay could not move the rows of tables. It
// changes nothing. If the tables of the Box do not exist, it creates them in a transaction that it rolls back, except in MySQL, which
// cannot roll this back.
func Check(ctx context.Context, db *sql.DB, cfg Config, tables ...Table) error {
	b, err := newBox(db, cfg)
	if err != nil {
		return err
	}
	if err := errors.Join(RelayConfig{Tables: tables}.Validate(), b.checkTables(tables)); err != nil {
		return err
	}
	err = b.db.Check(ctx, schemaOf(b.cfg.Dialect, b.cfg.Prefix), func(tx *sqlkit.Tx) error {
		_, err := tx.Exec(touch)
		return err
	})
	if err != nil {
		return fmt.Errorf("outbox: cannot use tables %s…: %w", b.cfg.Prefix, err)
	}
	var errs []error
	for _, t := range tables {
		if err := b.try(ctx, t); err != nil {
			errs = append(errs, fmt.Errorf("outbox: cannot use table %q: %w", t.Name, err))
		}
	}
	return errors.Join(errs...)
}

// try runs the statements of a relay for a table, without a row.
func (b *Box) try(ctx context.Context, t Table) error {
	body := "NULL"
	if t.BodyColumn != "" {
		body = b.column(t.BodyColumn)
	}
	return ofTable(b.transaction(ctx, func(tx *sqlkit.Tx) error {
		if _, err := tx.Exec(b.selectRows(t, body) + ` WHERE 1 = 0`); err != nil {
			return err
		}
		if err := b.tryID(tx, t); err != nil {
			return err
		}
		_, err := tx.Exec(`DELETE FROM ` + b.quote(t.Name) + ` WHERE ` + b.quote(t.id()) + ` IS NULL AND 1 = 0`)
		return err
	}))
}

// integer matches the types of columns that can contain an id. SQLite has no type for an expression of a view.
var integer = regexp.MustCompile(`(?i)INT|NUM|DEC|^$`)

// tryID returns an error if the type of the id is not a number: databases order and compare other ids otherwise than the relay. The join
// has a row without reading the table.
func (b *Box) tryID(tx *sqlkit.Tx, t Table) error {
	id := t.id()
	for row, err := range tx.Rows(`SELECT ` + b.column(id) + ` FROM (SELECT 1 AS n) AS reprise_one LEFT JOIN ` + b.quote(t.Name) + ` AS reprise_row ON 1 = 0`) {
		if err != nil {
			return err
		}
		types, err := row.ColumnTypes()
		if err != nil {
			return err
		}
		if kind := types[0].DatabaseTypeName(); !integer.MatchString(kind) {
			return fmt.Errorf("column %q must be an integer: its type is %s (set IDColumn, id_column in a file)", id, kind)
		}
	}
	return nil
}

// ofTable returns the error of the database for a missing table of another program, without the advice for tables of a Box.
func ofTable(err error) error { return cmp.Or(sqlkit.Missing(err), err) }

// Check returns an error if the objects that an Intake declares conflict with existing objects, as reprise.Worker.Check does. It
// declares nothing.
func (c IntakeConfig) Check(ctx context.Context, client *reprise.Client) error {
	if err := c.Validate(); err != nil {
		return err
	}
	in := &Intake{client: client, cfg: c.withDefaults()}
	var errs []error
	for _, queue := range in.queues() {
		w, err := in.worker(queue)
		if err == nil {
			err = w.Check(ctx)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
