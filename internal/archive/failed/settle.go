package failed

import (
	"context"
	"fmt"
	"time"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// SettleOutcomes records that the given work queues, their wait queues and their failed queues contained neither ready
// nor unacked messages at the given time. It changes the outcome of messages without a final report to OutcomeSettled,
// if a replay that had ended by then sent them to one of these work queues. It ignores replays with a Plan.To, replays
// that ended at least VerifyTime ago, and messages that may have reached several queues. A ledger calls SettleOutcomes.
func (a *Archive) SettleOutcomes(ctx context.Context, queues []string, at time.Time) (err error) {
	defer annotate(&err, "cannot settle outcomes")
	names := make([][]byte, len(queues))
	for i, q := range queues {
		names[i] = []byte(q)
	}
	replays, err := a.replays(ctx, `ended > $1 AND ended <= $2 AND sent > back + succeeded + settled`, overdue(a.now()), sqlkit.Millis(at))
	if err != nil {
		return err
	}
	for _, r := range replays {
		if r.Plan.To != nil {
			continue
		}
		err := a.write(ctx, func(tx *tx) error {
			for _, name := range names {
				if err := tx.settle(r.ID, name); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) settle(id ReplayID, queue []byte) error {
	for _, code := range []int{codeUnknown, codePending, codeRetrying} {
		n, err := t.Exec(fmt.Sprintf(`UPDATE {item} SET outcome = %d WHERE replay = $1 AND sent = 1 AND outcome = %d AND unasked <> %d
			AND message IN (SELECT m.id FROM {message} m JOIN {queue} q ON q.id = m.queue WHERE q.name = $2)`, codeSettled, code, noSingle), int64(id), queue)
		if err != nil {
			return err
		}
		counters := `settled = settled + $2`
		if code != codeUnknown {
			counters += fmt.Sprintf(`, %s = %[1]s - $2`, counterOf[code])
		}
		if _, err := t.Exec(`UPDATE {replay} SET `+counters+` WHERE id = $1`, int64(id), n); err != nil {
			return err
		}
	}
	return nil
}
