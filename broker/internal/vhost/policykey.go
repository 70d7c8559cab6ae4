package vhost

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/broker/internal/erlang"
)

// policyKey is a key that RabbitMQ 4.3 accepts in the definition of a policy
// (https://www.rabbitmq.com/docs/policies). The key K is the default or the limit of the queue argument x-K.
type policyKey struct {
	operator bool             // operator policies may contain the key
	valid    func(v any) bool // v is an int64, float64, string, bool, nil, or a list or an object of such values
	what     string           // describes a valid value in an error: "5 is not a valid " + what

	// without contains the queue types for which RabbitMQ ignores a policy that contains the key, with all its other keys.
	without kinds
	// merge returns the value that applies if both a policy and an operator policy contain the key. nil: the operator's.
	merge func(policy, operator int64) int64
	// resolve returns the value that applies if the queue has the argument. nil: the argument's.
	resolve func(policy, argument int64) int64
	// over contains the queue types for which the policy has precedence over the argument.
	over kinds
}

var policyKeys = map[string]policyKey{
	"alternate-exchange":            {valid: isString, what: "alternate exchange name"},
	"consumer-disconnected-timeout": {valid: atLeast(0), what: "consumer disconnected timeout", resolve: lower},
	"consumer-timeout":              {valid: atLeast(0), what: "consumer timeout", resolve: lower},
	"dead-letter-exchange":          {valid: isString, what: "dead letter exchange name"},
	"dead-letter-routing-key":       {valid: isString, what: "dead letter routing key"},
	"dead-letter-strategy":          {valid: among("at-most-once", "at-least-once"), what: "dead letter strategy", without: classic},
	"delayed-retry-max": {
		valid: atLeast(1), what: "delayed retry maximum delay. Must be a positive integer", operator: true, merge: lower, resolve: lower,
	},
	"delayed-retry-min": {
		valid: atLeast(1), what: "delayed retry minimum delay. Must be a positive integer", operator: true, merge: higher, resolve: lower,
	},
	"delayed-retry-type": {
		valid: among("all", "failed", "returned", "disabled"), what: "delayed retry type. Must be one of: all, failed, returned, disabled",
		operator: true, over: quorum,
	},
	"delivery-limit": {
		valid: isInteger, what: "delivery limit", operator: true, without: classic, merge: stricter, resolve: stricter,
	},
	"expires":                       {valid: atLeast(1), what: "queue expiry", operator: true, merge: lower, resolve: lower},
	"initial-cluster-size":          {valid: atLeast(0), what: "cluster size", without: either},
	"max-age":                       {valid: isAge, what: "max age", without: either},
	"max-in-memory-bytes":           {valid: atLeast(0), what: "maximum memory in bytes", operator: true, without: classic, merge: lower},
	"max-in-memory-length":          {valid: atLeast(0), what: "maximum memory in bytes", operator: true, without: classic, merge: lower},
	"max-length":                    {valid: atLeast(0), what: "maximum length", operator: true, merge: lower, resolve: lower},
	"max-length-bytes":              {valid: atLeast(0), what: "maximum length in bytes", operator: true, merge: lower, resolve: lower},
	"message-ttl":                   {valid: atLeast(0), what: "message TTL", operator: true, merge: lower, resolve: lower},
	"overflow":                      {valid: among("drop-head", "reject-publish", "reject-publish-dlx"), what: "overflow value", operator: true, over: quorum},
	"queue-leader-locator":          {valid: among("client-local", "balanced", "random", "least-leaders"), what: "queue leader locator value"},
	"queue-mode":                    {valid: among("default", "lazy"), what: "queue-mode value", without: quorum},
	"queue-version":                 {valid: within(1, 2), what: "queue-version value", operator: true},
	"stream-filter-size-bytes":      {valid: within(16, 255), what: "filter size. Valid range is 16-255"},
	"stream-max-segment-size-bytes": {valid: within(0, 3_000_000_000), what: "segment size", without: either},
	"target-group-size":             {valid: atLeast(1), what: "qq target count value", operator: true, without: classic, merge: higher},
}

func isString(v any) bool  { _, ok := v.(string); return ok }
func isInteger(v any) bool { _, ok := v.(int64); return ok }

func atLeast(least int64) func(any) bool {
	return func(v any) bool { n, ok := v.(int64); return ok && n >= least }
}

func within(least, most int64) func(any) bool {
	return func(v any) bool { n, ok := v.(int64); return ok && n >= least && n <= most }
}

func among(known ...string) func(any) bool {
	return func(v any) bool { s, ok := v.(string); return ok && slices.Contains(known, s) }
}

var age = regexp.MustCompile(`^[0-9]+[YMDhms]$`)

func isAge(v any) bool { s, ok := v.(string); return ok && age.MatchString(s) }

func lower(a, b int64) int64  { return min(a, b) }
func higher(a, b int64) int64 { return max(a, b) }

// stricter returns the lower of two delivery limits. As in RabbitMQ, a negative number, which means no limit, gives way to a
// limit.
func stricter(a, b int64) int64 {
	if a < 0 || b < 0 {
		return max(a, b)
	}
	return min(a, b)
}

// Definition contains the settings of a policy by key. Its values are those of JSON; integers are int64.
type Definition map[string]any

// UnmarshalJSON implements [json.Unmarshaler].
func (d *Definition) UnmarshalJSON(text []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var all map[string]any
	if err := decoder.Decode(&all); err != nil {
		return err
	}
	for name, value := range all {
		all[name] = exact(value)
	}
	*d = all
	return nil
}

// exact replaces the numbers in a value of JSON: integers by int64, and others by float64.
func exact(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	case []any:
		for i := range v {
			v[i] = exact(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = exact(v[name])
		}
	}
	return v
}

// check returns RabbitMQ's description of the first mistake, or "".
func (d Definition) check(operator bool) string {
	if len(d) == 0 {
		return "no policy provided"
	}
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(d)) {
		switch key, known := policyKeys[name]; {
		case name == "queue-master-locator":
			return "use of deprecated queue-master-locator argument is not permitted"
		case !known || operator && !key.operator:
			unknown = append(unknown, fmt.Sprintf("{%s,%s}", erlang.Term(name), erlang.JSON(d[name])))
		case !key.valid(d[name]):
			return fmt.Sprintf("%s is not a valid %s", erlang.JSON(d[name]), key.what)
		}
	}
	if problem := d.checkRetry(); problem != "" {
		return problem
	}
	if len(unknown) > 0 {
		return "[" + strings.Join(unknown, ",") + "] are not recognised policy settings"
	}
	return ""
}

func (d Definition) checkRetry() string {
	kind, typed := d["delayed-retry-type"]
	least, bounded := d["delayed-retry-min"].(int64)
	most, limited := d["delayed-retry-max"].(int64)
	switch {
	case typed && kind != "disabled" && !bounded:
		return fmt.Sprintf("delayed-retry-min is required when delayed-retry-type is %v", kind)
	case bounded && limited && most < least:
		return fmt.Sprintf("delayed-retry-max (%d) must not be smaller than delayed-retry-min (%d)", most, least)
	}
	return ""
}

// suits reports whether a policy with this definition may apply to queues of a type.
func (d Definition) suits(kind kinds) bool {
	for name := range d {
		if policyKeys[name].without&kind != 0 {
			return false
		}
	}
	return true
}

// merged returns the effective definition of a policy and an operator policy.
func merged(policy, operator Definition) Definition {
	all := maps.Clone(policy)
	if all == nil {
		all = make(Definition, len(operator))
	}
	for name, value := range operator {
		if was, both := policy[name]; both {
			value = combine(policyKeys[name].merge, was, value)
		}
		all[name] = value
	}
	return all
}

// combine returns choose(first, second) if both are integers, and otherwise second.
func combine(choose func(first, second int64) int64, first, second any) any {
	a, number := integer(first)
	b, both := integer(second)
	if choose == nil || !number || !both {
		return second
	}
	return choose(a, b)
}

// effective returns the value of the queue argument x-name, for a queue that has the given argument.
func effective(name string, kind kinds, policy, argument any) any {
	key := policyKeys[name]
	if key.over&kind != 0 {
		return policy
	}
	return combine(key.resolve, policy, argument)
}
