package pages

import (
	"errors"
	"net/http"

	"github.com/reprisemq/reprise/internal/archive/console/internal/figures"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/doctor"
)

// maxFindings is the maximum number of findings of one rule on the page.
const maxFindings = 20

// doctor lists what loses, blocks or repeats messages on the broker.
func (p *Pages) doctor(c *web.Call) error {
	r, err := p.Broker.Report(c.R.Context())
	data := struct {
		doctor.Report
		ByRule  []doctor.Group
		Broker  bool
		Problem string
	}{Report: r, ByRule: r.ByRule(maxFindings), Broker: !errors.Is(err, figures.ErrNoFigures)}
	if err != nil && data.Broker {
		data.Problem = sentence(err.Error())
	}
	return render(c, http.StatusOK, "doctor", page{Title: "Doctor", Nav: "doctor"}, data)
}
