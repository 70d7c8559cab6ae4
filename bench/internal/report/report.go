// Package report formats the results of benchmark rounds as tables and JSON.
package report

import (
	"cmp"
	"slices"
)

// Metrics are the results of one round, by name.
type Metrics map[string]float64

// Contender is one of the brokers or clients that a table compares.
type Contender struct {
	Name    string    `json:"name"`
	Against string    `json:"against,omitempty"` // name of the contender that the ratio refers to
	Limit   string    `json:"limit,omitempty"`   // name of the contender that the percentage refers to
	Rounds  []Metrics `json:"rounds"`
	Median  Metrics   `json:"median"`
	Failed  string    `json:"failed,omitempty"` // error that caused the remaining rounds to be skipped
}

// Add adds the metrics of a round, and updates Median.
func (c *Contender) Add(m Metrics) {
	c.Rounds = append(c.Rounds, m)
	c.Median = Metrics{}
	for key := range m {
		var all []float64
		for _, round := range c.Rounds {
			if v, ok := round[key]; ok {
				all = append(all, v)
			}
		}
		c.Median[key] = median(all)
	}
}

func median(all []float64) float64 {
	slices.Sort(all)
	middle := len(all) / 2
	if len(all)%2 == 0 {
		return (all[middle-1] + all[middle]) / 2
	}
	return all[middle]
}

// spread returns the difference between the largest and the smallest value of a metric, as a fraction of its median.
func (c *Contender) spread(key string) float64 {
	if len(c.Rounds) < 2 || c.Median[key] == 0 {
		return 0
	}
	by := func(a, b Metrics) int { return cmp.Compare(a[key], b[key]) }
	return (slices.MaxFunc(c.Rounds, by)[key] - slices.MinFunc(c.Rounds, by)[key]) / c.Median[key]
}

// Column describes how a table shows a metric.
type Column struct {
	Metric string `json:"metric"`
	Title  string `json:"title"`
	Digits int    `json:"-"` // decimal places
	Ratio  bool   `json:"-"` // add a column with the ratio to Against
	Share  bool   `json:"-"` // add a column with the percentage of Limit
}

// Table is the result of a scenario.
type Table struct {
	Name       string       `json:"name"`
	Text       string       `json:"text"`   // description
	Target     string       `json:"target"` // goal of the measurement
	Subject    string       `json:"-"`      // title of the column of contenders. Default: broker
	Base       string       `json:"-"`      // title of the columns of ratios. Default: × RabbitMQ
	Columns    []Column     `json:"columns"`
	Contenders []*Contender `json:"contenders"`
	Notes      []string     `json:"notes,omitempty"`
}

// Contender returns the contender with the given name, or nil.
func (t *Table) Contender(name string) *Contender {
	i := slices.IndexFunc(t.Contenders, func(c *Contender) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return t.Contenders[i]
}

// ratio returns the metric of c as a fraction of the same metric of the contender named other.
func (t *Table) ratio(c *Contender, other, metric string) (float64, bool) {
	o := t.Contender(other)
	if o == nil {
		return 0, false
	}
	mine, ok := c.Median[metric]
	theirs, known := o.Median[metric]
	return mine / theirs, ok && known && theirs != 0
}
