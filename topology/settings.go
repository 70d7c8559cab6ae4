package topology

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/amqpvalue"
)

// This file contains checks that Routes, Marks, Strategy and Topology use.

// validateLength reports a name that is too long for AMQP.
func validateLength(field, name string) error {
	if len(name) > maxName {
		return fmt.Errorf("topology: %s must have at most %d bytes: got %d", field, maxName, len(name))
	}
	return nil
}

// validateDeadLetters reports an exchange that t declares without a binding and without an alternate exchange. The broker
// silently drops rejected messages that it dead-letters to such an exchange.
func (t Topology) validateDeadLetters(exchange string) error {
	for _, b := range t.Bindings {
		if b.Exchange == exchange {
			return nil
		}
	}
	for _, x := range t.Exchanges {
		if _, alternate := x.Args["alternate-exchange"]; x.Name == exchange && !alternate {
			return fmt.Errorf("topology: exchange %q must have a binding, or rejected messages would be lost (add the binding of the wait queue to DeadLettering.Infrastructure)", exchange)
		}
	}
	return nil
}

// validateApart reports equal destinations for waiting and parked copies, because parked copies would be retried.
func validateApart(wait, failed string, equal bool) error {
	if equal {
		return fmt.Errorf("topology: %s and %s must be different (parked messages would return to the work queue)", wait, failed)
	}
	return nil
}

// validateOtherQueue reports an address that names the work queue itself. The broker would deliver waiting or parked copies
// immediately.
func (a Address) validateOtherQueue(field, queue, workExchange string) error {
	own := ""
	if workExchange == "" {
		own = queue // see returnKey
	}
	if a.Exchange == "" && a.key(Delivery{Queue: queue}, own) == queue {
		return fmt.Errorf("topology: %s must not lead to the work queue (use another queue)", field)
	}
	return nil
}

// validateHeader reports a header name that is too long, or reserved for Reprise or the broker.
func validateHeader(field, name string) error {
	switch {
	case strings.HasPrefix(name, "x-reprise-"):
		return fmt.Errorf("topology: %s must not begin with %q: got %q (reserved for Reprise)", field, "x-reprise-", name)
	case name == "CC", name == "BCC", amqpvalue.IsBrokerHeader(name):
		return fmt.Errorf("topology: %s must not be a header that the broker writes: got %q", field, name)
	}
	return validateLength(field, name)
}

// validateMarks reports Marks of this package that cannot count the attempts of the Route, because the broker returns the
// message instead of a copy with headers. Messages would be retried indefinitely. Marks of other packages are not checked,
// because they may count in another way.
func (s Strategy) validateMarks() error {
	route := unwrap(s.Route)
	if v := reflect.ValueOf(route); v.Kind() == reflect.Pointer {
		if value, ok := v.Elem().Interface().(Route); ok {
			route = value
		}
	}
	switch route.(type) {
	case Requeuing, DelayedRetry, DeadLettering:
	default:
		return nil
	}
	switch s.Marks.(type) {
	case Trail, CountUp, CountDown, Expirations, Deliveries, Deaths:
	default:
		return nil
	}
	own := marksOf(route)
	if reflect.DeepEqual(own, s.Marks) {
		return nil
	}
	return fmt.Errorf("topology: Strategy.Marks must be %T with %T: got %T, which cannot count attempts without copies (omit Marks)", own, route, s.Marks)
}

// validateDelay reports a delay that a queue or a message does not support.
func validateDelay(field string, d, low time.Duration, from string, byDefault time.Duration) error {
	if d >= low && d%time.Millisecond == 0 && d <= MaxDelay {
		return nil
	}
	return fmt.Errorf("topology: %s must be whole milliseconds from %s to %s: got %s (0 means %s)", field, from, MaxDelay, d, byDefault)
}

// validateNil reports a part that is a nil pointer.
func validateNil(field string, part any) error {
	if v := reflect.ValueOf(part); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("topology: Strategy.%s must not be a nil %T (omit it for the default)", field, part)
	}
	return nil
}

// validateName reports a declared name that some brokers refuse or change. https://www.rabbitmq.com/docs/queues#names
func validateName(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("topology: %s must have a name", what)
	case len(name) > maxName:
		return fmt.Errorf("topology: %s %s must have a name of at most %d bytes: got %d", what, abbreviate(name), maxName, len(name))
	case strings.ContainsAny(name, "\x00\r\n"):
		return fmt.Errorf("topology: %s %q must not have a line break or a NUL in its name", what, name)
	}
	return nil
}

// validateReserved reports a name that is reserved for the broker.
func validateReserved(what, name string) error {
	if strings.HasPrefix(name, reserved) {
		return fmt.Errorf("topology: %s %q must not begin with %q (reserved for the broker)", what, name, reserved)
	}
	return nil
}

// validate reports an exchange that some brokers refuse or change. It accepts an unchanged predeclared exchange.
func (e Exchange) validate() error {
	errs := []error{validateName("exchange", e.Name)}
	if e.Kind == "" {
		errs = append(errs, fmt.Errorf("topology: exchange %q must have a Kind: %q, %q, %q or %q", e.Name, Direct, Fanout, Topic, Headers))
	}
	if kind, found := predeclaredKinds[e.Name]; !found || kind != e.Kind || e.Transient || e.AutoDelete || e.Internal {
		errs = append(errs, validateReserved("exchange", e.Name))
	}
	return errors.Join(errs...)
}

// validate reports a queue that some brokers refuse or change. With IfAbsent, the name may be reserved, because the queue
// may exist.
func (q Queue) validate() error {
	errs := []error{validateName("queue", q.Name)}
	if !q.IfAbsent {
		errs = append(errs, validateReserved("queue", q.Name))
	}
	if q.Args["x-queue-type"] == "quorum" && (q.Transient || q.Exclusive || q.AutoDelete) {
		errs = append(errs, fmt.Errorf("topology: quorum queue %q must not be transient, exclusive or auto-delete", q.Name))
	}
	return errors.Join(errs...)
}

// abbreviate shortens a long name to its start and its end, because long names often differ only at the end.
func abbreviate(name string) string {
	const shown = 24
	if len(name) <= 2*shown {
		return fmt.Sprintf("%q", name)
	}
	return fmt.Sprintf("%q", name[:shown]+"…"+name[len(name)-shown:])
}
