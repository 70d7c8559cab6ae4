package console

import (
	"errors"
	"strings"

	"github.com/reprisemq/reprise/internal/api"
	"github.com/reprisemq/reprise/ledger"
)

func (c *call) apiLedger() error {
	return c.ledgerNow()
}

func (c *call) ledgerNow() error {
	if c.cfg.Ledger == nil {
		return c.ok(api.Ledger{Accounts: []api.Account{}})
	}
	report, err := c.cfg.Ledger.Report(c.r.Context())
	if err != nil {
		return err
	}
	return c.ok(api.LedgerOf(report))
}

func (c *call) apiAccept() error {
	var a api.Accept
	if err := c.read(&a); err != nil {
		return err
	}
	if err := c.accept(string(a.Account), a.Reason); err != nil {
		return err
	}
	return c.ledgerNow()
}

// accept begins an account anew.
func (c *call) accept(account, reason string) error {
	switch {
	case c.cfg.Ledger == nil:
		return &failure{status: 404, text: "no ledger is kept", advice: "give the console the URL of the broker's management API"}
	case strings.TrimSpace(reason) == "":
		return badRequest("there is no reason", `send "reason": what the difference was`)
	}
	err := c.cfg.Ledger.Accept(c.r.Context(), account, c.who.actor, reason)
	switch {
	case errors.Is(err, ledger.ErrNoAccount):
		return &failure{status: 404, text: "there is no such account", advice: "look at the ledger for what there is"}
	case errors.Is(err, ledger.ErrTooEarly):
		return &failure{status: 409, text: "the account has too few samples to begin anew", advice: "nothing was changed: try again in a minute"}
	}
	return err
}
