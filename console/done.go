package console

import (
	"context"

	"github.com/reprisemq/reprise/ledger"
)

// doneRates are how fast work is done, as the ledger knows it. The broker does not: it sees
// messages acknowledged that are retried and parked as well.
type doneRates struct {
	ledger *ledger.Ledger // nil: nothing is known
	kept   remembered[[]ledger.Rate]
}

func newDoneRates(l *ledger.Ledger) *doneRates {
	return &doneRates{ledger: l, kept: remembered[[]ledger.Rate]{age: figuresAge}}
}

// get returns the rates of accounts. An error is as good as none: pages do without.
func (d *doneRates) get(ctx context.Context) []ledger.Rate {
	if d.ledger == nil {
		return nil
	}
	rates, _ := d.kept.get(ctx, d.ledger.Rates)
	return rates
}
