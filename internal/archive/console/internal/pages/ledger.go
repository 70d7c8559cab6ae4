package pages

import (
	"net/http"
	"time"

	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/ledger"
)

// ledger shows the accounts of the ledger and their discrepancies.
func (p *Pages) ledger(c *web.Call) error {
	data := struct {
		Kept    bool
		Lines   []ledger.Line
		At      time.Time // time of the last sample
		Differs int
	}{Kept: c.Ledger != nil}
	if c.Ledger != nil {
		report, err := c.Ledger.Report(c.R.Context())
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
	return render(c, http.StatusOK, "ledger", page{Title: "Ledger", Nav: "ledger"}, data)
}

// acceptLedger resets an account.
func (p *Pages) acceptLedger(c *web.Call) error {
	v, err := c.Form()
	if err != nil {
		return err
	}
	if err := c.Accept(v.Get("account"), v.Get("reason")); err != nil {
		return err
	}
	return c.SeeOther("/ledger", nil)
}
