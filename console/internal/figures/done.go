package figures

import (
	"context"

	"github.com/reprisemq/reprise/ledger"
)

// DoneRates are how fast work is done, as the ledger knows it. The broker does not: it sees
// messages acknowledged that are retried and parked as well.
type DoneRates struct {
	ledger *ledger.Ledger // nil: nothing is known
	kept   Remembered[[]ledger.Rate]
}

func NewDoneRates(l *ledger.Ledger) *DoneRates {
	return &DoneRates{ledger: l, kept: Remembered[[]ledger.Rate]{Age: figuresAge}}
}

// Get returns the rates of accounts. An error is as good as none: pages do without.
func (d *DoneRates) Get(ctx context.Context) []ledger.Rate {
	if d.ledger == nil {
		return nil
	}
	rates, _ := d.kept.Get(ctx, d.ledger.Rates)
	return rates
}
