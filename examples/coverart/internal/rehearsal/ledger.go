package rehearsal

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/preset"
)

// ErrNotAsPlanned is returned by Run if the ledger does not balance, or if the outcome of an event differs from the plan.
var ErrNotAsPlanned = errors.New("rehearsal: results differ from the plan")

// ledger counts the published messages, by outcome.
type ledger struct {
	published int
	done      int // reported by the handlers
	equal     int // coalesced with an equal message
	parked    int // found in the failed queue
	elsewhere int // delivered to other programs that consume these queues
}

func (l ledger) balances() bool {
	return l.published == l.done+l.equal+l.parked+l.elsewhere
}

// count returns the ledger. The parameter found contains the messages in the failed queue, and others is the number of
// consumers of other programs.
func (t *tally) count(found map[string]int, others int) ledger {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := ledger{published: len(t.ours), parked: len(found)}
	for id := range t.ours {
		o, known := t.outcomes[id]
		_, parked := found[id]
		switch {
		case parked:
		case o.kind == reprise.EventDone:
			l.done++
		case o.kind == reprise.EventDebounced:
			l.equal++
		case !known && others > 0:
			l.elsewhere++
		}
	}
	return l
}

func (l ledger) write(w io.Writer) {
	row := func(name string, n int, what string) { fmt.Fprintf(w, "  %-10s %4d   %s\n", name, n, what) }
	fmt.Fprint(w, "\nledger\n")
	row("published", l.published, "confirmed by the broker")
	row("done", l.done, "reported by the handlers")
	row("debounced", l.equal, "an equal message was handled for them")
	row("parked", l.parked, "in "+preset.CoverArtFailedQueue+", reported by the broker")
	if l.elsewhere > 0 {
		row("others", l.elsewhere, "handled by other consumers of these queues")
	}
	sum := fmt.Sprintf("%d + %d + %d", l.done, l.equal, l.parked)
	if l.elsewhere > 0 {
		sum += fmt.Sprintf(" + %d", l.elsewhere)
	}
	sign, verdict := "=", "every message is accounted for"
	if !l.balances() {
		sign, verdict = "≠", "messages are missing"
	}
	fmt.Fprintf(w, "  %d %s %s: %s\n", l.published, sign, sum, verdict)
}

// report writes the ledger. Unless other programs also consume, it compares the outcome of each event with the plan.
func (r *rehearsal) report(ctx context.Context, events []plannedEvent, found map[string]int, others int) error {
	l := r.tally.count(found, others)
	l.write(r.Out)
	if others > 0 {
		fmt.Fprintf(r.Out, "  consumers of other programs on these queues: %d; the results of single events are not compared\n", others)
		if !l.balances() {
			return ErrNotAsPlanned
		}
		return nil
	}
	wrong := r.tally.unplanned(found)
	for _, p := range events {
		objects, err := r.objects(ctx, p)
		if err != nil {
			return err
		}
		wrong = append(wrong, objects...)
	}
	for _, w := range wrong {
		fmt.Fprintf(r.Out, "  unexpected: %s\n", w)
	}
	if len(wrong) > 0 || !l.balances() {
		return ErrNotAsPlanned
	}
	fmt.Fprint(r.Out, "  each event has the planned result, in the queues and in the store\n")
	return nil
}

// unplanned describes the messages whose outcome differs from the plan. The parameter found contains, for each message
// in the failed queue, the number of errors in its headers.
func (t *tally) unplanned(found map[string]int) (wrong []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, p := range t.ours {
		o := t.outcomes[id]
		texts, parked := found[id]
		switch {
		case parked != p.parked || o.kind == 0:
			wrong = append(wrong, fmt.Sprintf("%s, %s: parked is %v, but the workers reported %q", p.event, p.about, parked, o.kind))
		case parked && texts != p.wantAttempts():
			wrong = append(wrong, fmt.Sprintf("%s, %s: parked with %d errors, not %d", p.event, p.about, texts, p.wantAttempts()))
		case o.kind != reprise.EventDebounced && o.attempts != p.wantAttempts():
			wrong = append(wrong, fmt.Sprintf("%s, %s: %d attempts, not %d", p.event, p.about, o.attempts, p.wantAttempts()))
		}
	}
	return wrong
}

// objects describes the differences between the store and the plan for p.
func (r *rehearsal) objects(ctx context.Context, p plannedEvent) (wrong []string, err error) {
	for _, l := range p.present {
		if has, err := r.archive.Has(ctx, l); err != nil {
			return nil, err
		} else if !has {
			wrong = append(wrong, l.String()+" is missing in the store")
		}
	}
	for _, l := range p.absent {
		if has, err := r.archive.Has(ctx, l); err != nil {
			return nil, err
		} else if has {
			wrong = append(wrong, l.String()+" is in the store")
		}
	}
	return wrong, nil
}
