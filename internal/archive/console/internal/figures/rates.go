package figures

import (
	"context"

	"github.com/reprisemq/reprise/internal/archive/ledger"
)

// DoneRates caches the rates of processed messages, which come from the ledger. The broker cannot report these rates,
// because it also counts retried and parked messages as acknowledged.
type DoneRates struct {
	ledger *ledger.Ledger // nil if no ledger is configured
	kept   Cached[[]ledger.Rate]
}

func NewDoneRates(l *ledger.Ledger) *DoneRates {
	return &DoneRates{ledger: l, kept: Cached[[]ledger.Rate]{Age: figuresAge}}
}

// Get returns the rates of all accounts. If there is no ledger, or if the ledger returns an error, Get returns nil, and
// pages omit the rates.
func (d *DoneRates) Get(ctx context.Context) []ledger.Rate {
	if d.ledger == nil {
		return nil
	}
	rates, _ := d.kept.Get(ctx, d.ledger.Rates)
	return rates
}
