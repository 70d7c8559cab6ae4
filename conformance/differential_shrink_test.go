package conformance

import (
	"reflect"
	"slices"
	"time"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// shrinkTime limits the duration of shrink.
const shrinkTime = 90 * time.Second

// shrink returns a smaller script for which the brokers still differ, and the difference. The verification of a
// difference takes time, so shrink tries only changes that are promising and improve readability. It removes lines, and
// details of the remaining lines. In contrast, package rapid shrinks the random bits from which a script is generated,
// which requires far more attempts.
func (b pair) shrink(s script, difference string) (script, string) {
	b.rest, b.within = 40*time.Millisecond, 600*time.Millisecond
	deadline := time.Now().Add(shrinkTime)
	for {
		smaller := false
		for i := len(s) - 1; i >= 0; i-- {
			i = min(i, len(s)-1)
			for _, next := range variants(s, i) {
				if time.Now().After(deadline) {
					return s, difference
				}
				if d := b.play(next); d != "" {
					s, difference, smaller = next, d, true
					break
				}
			}
		}
		if !smaller {
			return s, difference
		}
	}
}

// variants returns copies of a script: a copy without line i, and copies without one detail of line i.
func variants(s script, i int) []script {
	all := []script{slices.Delete(slices.Clone(s), i, i+1)}
	with := func(o operation) {
		next := slices.Clone(s)
		next[i] = o
		all = append(all, next)
	}
	switch o := s[i].(type) {
	case method:
		v := reflect.ValueOf(o.m).Elem()
		for f := range v.NumField() {
			if !v.Field(f).CanSet() {
				continue // a reserved field
			}
			table, _ := v.Field(f).Interface().(amqpwire.Table)
			for j := range table {
				m := reflect.New(v.Type())
				m.Elem().Set(v)
				m.Elem().Field(f).Set(reflect.ValueOf(slices.Delete(slices.Clone(table), j, j+1)))
				with(method{o.clientIndex, m.Interface().(amqpwire.Method)})
			}
		}
	case publish:
		if o.n > 1 {
			o := o
			o.n--
			with(o)
		}
		if o.mandatory {
			o := o
			o.mandatory = false
			with(o)
		}
		if !reflect.ValueOf(o.props).IsZero() {
			o := o
			o.props = amqpwire.Properties{}
			with(o)
		}
		if o.exchange != "" {
			for _, q := range s.queues() {
				o := o
				o.exchange, o.key = "", q
				with(o)
			}
		}
	case settle:
		if o.multiple {
			o.multiple = false
			with(o)
		}
	case consume:
		if o.prefetch != 0 || o.priority != 0 {
			o.prefetch, o.priority = 0, 0
			with(o)
		}
	}
	return all
}
