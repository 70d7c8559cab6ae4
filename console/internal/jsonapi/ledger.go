package jsonapi

import (
	"github.com/reprisemq/reprise/console/internal/web"
	"github.com/reprisemq/reprise/internal/api"
)

func ledger(c *web.Call) error {
	return ledgerNow(c)
}

func ledgerNow(c *web.Call) error {
	if c.Ledger == nil {
		return c.OK(api.Ledger{Accounts: []api.Account{}})
	}
	report, err := c.Ledger.Report(c.R.Context())
	if err != nil {
		return err
	}
	return c.OK(api.LedgerOf(report))
}

func accept(c *web.Call) error {
	var a api.Accept
	if err := c.Read(&a); err != nil {
		return err
	}
	if err := c.Accept(string(a.Account), a.Reason); err != nil {
		return err
	}
	return ledgerNow(c)
}
