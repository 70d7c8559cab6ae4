package archive

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/idempotent"
)

// protectedWorkers returns the configurations of the workers that suppress duplicates. The worker of Orders uses
// idempotent.Middleware, and the worker of Mails uses idempotent.Tx.
func (s *System) protectedWorkers(ctx context.Context, p *Process) ([]reprise.WorkerConfig, error) {
	db := p.Open(s.donePath())
	context.AfterFunc(ctx, func() {
		go func() {
			<-p.ended
			_ = db.Close()
		}()
	})
	store, err := await(ctx, func() (*idempotent.SQL, error) {
		return idempotent.OpenSQL(ctx, db, idempotent.SQLConfig{Dialect: idempotent.SQLite, Clock: time.Now})
	})
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS effects (n INTEGER)`); err != nil {
		return nil, err
	}
	once, err := idempotent.Middleware(store, idempotent.Config{Logger: p.Logger})
	if err != nil {
		return nil, err
	}
	inTx, err := idempotent.Tx(store, idempotent.TxConfig{Logger: p.Logger}, func(ctx context.Context, tx *sql.Tx, m *reprise.Delivery) error {
		var o Order
		if err := json.Unmarshal(m.Body, &o); err != nil {
			return reprise.Park(errUnknown)
		}
		if err := s.refuses(m, o); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO effects (n) VALUES ($1)`, o.N)
		return err
	})
	if err != nil {
		return nil, err
	}
	all := s.workers()
	for i := range all {
		switch all[i].Queue {
		case Orders:
			all[i].Middleware = []reprise.Middleware{s.trackHandling(p), once}
		case Mails:
			all[i].Handler = inTx
		}
	}
	return all, nil
}

func (s *System) donePath() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done
}

// refuses is like handle, but does not record an effect.
func (s *System) refuses(m *reprise.Delivery, o Order) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recordKey(m, o)
	return s.downstreamError(o)
}

// trackHandling records the messages that a process is handling, from before the claim until the message is marked as done.
func (s *System) trackHandling(p *Process) reprise.Middleware {
	return func(next reprise.Handler) reprise.Handler {
		return reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
			var o Order
			_ = json.Unmarshal(m.Body, &o)
			at := func(add int) {
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.handling[p] == nil {
					s.handling[p] = map[int]int{}
				}
				s.handling[p][o.N] += add
			}
			at(1)
			defer at(-1)
			return next.Handle(ctx, m)
		})
	}
}

// effectsOfMails returns the number of effects of each order, from the table that the worker of Mails writes.
func (s *System) effectsOfMails() (map[int]int, error) {
	db := sql.OpenDB(NewDatabase(s.donePath()))
	defer db.Close()
	rows, err := db.Query(`SELECT n, count(*) FROM effects GROUP BY n`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[int]int{}
	for rows.Next() {
		var n, times int
		if err := rows.Scan(&n, &times); err != nil {
			return nil, err
		}
		all[n] = times
	}
	return all, rows.Err()
}
