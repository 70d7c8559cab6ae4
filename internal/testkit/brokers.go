package testkit

import (
	"os"
	"strings"
	"testing"
)

// A Target is a broker to test against.
type Target struct {
	// Name is "embedded", "rabbitmq-3.10" or "rabbitmq-4.3".
	Name string

	// URL is where it speaks AMQP, user and password included. It is empty when
	// there is no such broker here; see Require.
	URL string

	// IsRabbitMQ says that it is the real thing.
	IsRabbitMQ bool

	// Version is RabbitMQ's, major and minor: of the embedded broker, the one it
	// is true to.
	Version string
}

// The variables that name a RabbitMQ to test against.
var rabbitMQs = []struct{ version, variable string }{
	{"3.10", "REPRISE_TEST_RABBITMQ_310"},
	{"4.3", "REPRISE_TEST_RABBITMQ_43"},
}

// Each runs test once a broker, as subtests named after them. The embedded broker
// is started for its subtest and stopped after it; a RabbitMQ is shared with
// other tests, so its queues and exchanges want a [Name] of their own. The
// subtest of a RabbitMQ that isn't there is skipped.
func Each(t *testing.T, test func(t *testing.T, b Target)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) {
		test(t, Embedded(t))
	})
	for _, b := range RabbitMQs() {
		t.Run(b.Name, func(t *testing.T) {
			b.Require(t)
			test(t, b)
		})
	}
}

// Brokers returns the brokers that [Each] runs a test against, for a test that
// wants more than one of them at a time. The embedded broker is stopped when t
// ends. A RabbitMQ that isn't there has no URL: ask [Target.Require] before use.
func Brokers(t *testing.T) []Target {
	t.Helper()
	return append([]Target{Embedded(t)}, RabbitMQs()...)
}

// RabbitMQs returns the RabbitMQ versions that tests run against, whether they
// are there or not; see [Target.Require].
func RabbitMQs() []Target {
	var all []Target
	for _, r := range rabbitMQs {
		all = append(all, Target{
			Name:       "rabbitmq-" + r.version,
			URL:        os.Getenv(r.variable),
			IsRabbitMQ: true,
			Version:    r.version,
		})
	}
	return all
}

// Require skips the test if the target isn't there. `make test` sees to it that
// all are, and takes a skipped test for a failure.
func (b Target) Require(t testing.TB) {
	t.Helper()
	if b.URL == "" {
		t.Skipf("needs RabbitMQ %s: set %s or run make test",
			b.Version, "REPRISE_TEST_RABBITMQ_"+strings.ReplaceAll(b.Version, ".", ""))
	}
}
