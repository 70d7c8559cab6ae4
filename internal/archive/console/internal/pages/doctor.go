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

// ruleFindings are the findings of one rule.
type ruleFindings struct {
	doctor.Finding // the first one
	Shown          []doctor.Finding
	More           int
}

// doctor lists what loses, blocks or repeats messages on the broker.
func (p *Pages) doctor(c *web.Call) error {
	r, err := p.Broker.Report(c.R.Context())
	data := struct {
		doctor.Report
		ByRule  []*ruleFindings
		Broker  bool
		Problem string
	}{Report: r, Broker: !errors.Is(err, figures.ErrNoFigures)}
	if err != nil && data.Broker {
		data.Problem = sentence(err.Error())
	}
	for _, f := range r.Findings {
		last := len(data.ByRule) - 1
		if last < 0 || data.ByRule[last].Rule != f.Rule {
			data.ByRule = append(data.ByRule, &ruleFindings{Finding: f})
			last++
		}
		of := data.ByRule[last]
		if len(of.Shown) == maxFindings {
			of.More++
			continue
		}
		of.Shown = append(of.Shown, f)
	}
	return render(c, http.StatusOK, "doctor", page{Title: "Doctor", Nav: "doctor"}, data)
}
