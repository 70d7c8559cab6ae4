package conformance

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// Observations are text, so that the test can compare and print them directly. The text does not contain details that
// differ between two runs on the same broker. It contains the names in the script instead of the unique names, and
// omits the time in x-death entries.

func deref(m amqpwire.Method) any { return reflect.ValueOf(m).Elem().Interface() }

// String returns the observed properties of a message.
func (c content) String() string {
	var b strings.Builder
	switch m := c.method.(type) {
	case *amqpwire.BasicDeliver:
		fmt.Fprintf(&b, "%q %q/%q", c.body, m.Exchange, m.RoutingKey)
		if m.Redelivered {
			b.WriteString(" redelivered")
		}
	case *amqpwire.BasicGetOk:
		fmt.Fprintf(&b, "%q %q/%q", c.body, m.Exchange, m.RoutingKey)
		if m.Redelivered {
			b.WriteString(" redelivered")
		}
		fmt.Fprintf(&b, " %d-left", m.MessageCount)
	case *amqpwire.BasicReturn:
		fmt.Fprintf(&b, "%q %q/%q %d %s", c.body, m.Exchange, m.RoutingKey, m.ReplyCode, m.ReplyText)
	}
	p := reflect.ValueOf(c.props)
	for i := range p.NumField() {
		name, value := p.Type().Field(i).Name, p.Field(i)
		switch {
		case name == "Headers":
			if c.props.Has(amqpwire.PropHeaders) {
				b.WriteString(" headers=" + valueText(c.props.Headers))
			}
		case name != "Flags" && !value.IsZero():
			fmt.Fprintf(&b, " %s=%v", name, value)
		}
	}
	fmt.Fprintf(&b, " flags=%x", uint16(c.props.Flags))
	return b.String()
}

// valueText formats the value of a header and its type. It sorts the fields of tables by name, because their order has
// no meaning.
func valueText(v any) string {
	switch v := v.(type) {
	case amqpwire.Table:
		fields := slices.SortedStableFunc(slices.Values(v), func(a, b amqpwire.Field) int { return cmp.Compare(a.Name, b.Name) })
		texts := make([]string, len(fields))
		for i, f := range fields {
			texts[i] = f.Name + ":" + valueText(f.Value)
		}
		return "{" + strings.Join(texts, " ") + "}"
	case amqpwire.Array:
		texts := make([]string, len(v))
		for i, e := range v {
			texts[i] = valueText(e)
		}
		return "[" + strings.Join(texts, " ") + "]"
	case amqpwire.Timestamp:
		return "timestamp"
	case string:
		return fmt.Sprintf("%q", v)
	}
	return fmt.Sprintf("%s(%v)", amqpwire.TypeName(v), v)
}

// text returns the observed frames, one per line. The deliveries to a consumer and the returns are in the order of
// their arrival, and the confirms are sorted by tag.
func (s *frameLog) text(of string) string {
	var lines []string
	for _, tag := range sortedKeys(s.deliveries) {
		for _, d := range s.deliveries[tag] {
			lines = append(lines, of+" "+tag+" gets "+d)
		}
	}
	for _, r := range s.returns {
		lines = append(lines, of+" has returned "+r)
	}
	for _, tag := range sortedKeys(s.confirms) {
		lines = append(lines, fmt.Sprintf("%s %s %d", of, s.confirms[tag], tag))
	}
	others := slices.Sorted(slices.Values(s.others))
	for _, o := range others {
		lines = append(lines, of+" "+o)
	}
	return strings.Join(lines, "\n")
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
