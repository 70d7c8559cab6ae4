package console

import (
	"net/http"
	"time"

	"github.com/reprisemq/reprise/ledger"
)

// ledger shows whether all messages that came in are somewhere.
func (p *pages) ledger(c *call) error {
	data := struct {
		Kept    bool
		Lines   []ledger.Line
		At      time.Time // of the last sample
		Differs int
	}{Kept: c.cfg.Ledger != nil}
	if c.cfg.Ledger != nil {
		report, err := c.cfg.Ledger.Report(c.r.Context())
		if err != nil {
			return err
		}
		data.Lines = report.Accounts
		for _, l := range data.Lines {
			if l.At.After(data.At) {
				data.At = l.At
			}
			if l.State == ledger.Differs {
				data.Differs++
			}
		}
	}
	return c.render(http.StatusOK, "ledger", page{Title: "Ledger", Nav: "ledger"}, data)
}

// acceptLedger begins an account anew.
func (p *pages) acceptLedger(c *call) error {
	v, err := c.form()
	if err != nil {
		return err
	}
	if err := c.accept(v.Get("account"), v.Get("reason")); err != nil {
		return err
	}
	return c.seeOther("/ledger", nil)
}
