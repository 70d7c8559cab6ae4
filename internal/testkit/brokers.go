package testkit

import (
	_ "embed" // for the list of versions
	"os"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/testhook"
)

// Clients trust new queues immediately, because tests do not kill a shared RabbitMQ. See [DistrustNewQueues].
func init() { testhook.YoungQueue = new(time.Duration) }

// DistrustNewQueues makes clients wait as in production until RabbitMQ can no longer lose a new queue. The test must not be parallel.
func DistrustNewQueues(t *testing.T) {
	t.Helper()
	setYoungQueue(t, nil)
}

// DistrustNewQueuesFor is like DistrustNewQueues, but on any broker and for the time age.
func DistrustNewQueuesFor(t *testing.T, age time.Duration) {
	t.Helper()
	setYoungQueue(t, &age)
}

func setYoungQueue(t *testing.T, age *time.Duration) {
	before := testhook.YoungQueue
	testhook.YoungQueue = age
	t.Cleanup(func() { testhook.YoungQueue = before })
}

// A Target is a broker for tests.
type Target struct {
	// Name is "embedded", or "rabbitmq-" and the version, such as "rabbitmq-4.3".
	Name string

	// URL is the AMQP URL, including user and password. It is empty if the broker is not available; see Require.
	URL string

	// IsRabbitMQ is false for the embedded broker.
	IsRabbitMQ bool

	// Version is the major and minor version of RabbitMQ. For the embedded broker, it is the RabbitMQ version that the
	// broker emulates.
	Version string
}

//go:embed rabbitmq.txt
var versions string

// testedVersions returns the RabbitMQ versions that make test starts, in ascending order.
func testedVersions() []string {
	var tested []string
	for line := range strings.Lines(versions) {
		if fields := strings.Fields(line); fields[0] != "#" && fields[1] == "test" {
			tested = append(tested, fields[0])
		}
	}
	return tested
}

// variable returns the environment variable with the URL of a RabbitMQ version.
func variable(version string) string {
	return "REPRISE_TEST_RABBITMQ_" + digits(version)
}

func digits(version string) string { return strings.ReplaceAll(version, ".", "") }

// Each runs test once for each broker, as a subtest with the broker's name. It starts a new embedded broker. All tests
// share the RabbitMQ brokers, so the test should name its queues and exchanges with [Name]. If a RabbitMQ is not
// available, Each skips its subtest.
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

// Brokers returns the brokers of [Each], for tests that need several brokers at the same time. It stops the embedded
// broker at the end of t. The URL of an unavailable RabbitMQ is empty, so call [Target.Require] before use.
func Brokers(t *testing.T) []Target {
	t.Helper()
	return append([]Target{Embedded(t)}, RabbitMQs()...)
}

// RabbitMQs returns a target for each RabbitMQ version, even if it is not available; see [Target.Require].
func RabbitMQs() []Target {
	var all []Target
	for _, version := range testedVersions() {
		all = append(all, Target{
			Name:       "rabbitmq-" + version,
			URL:        os.Getenv(variable(version)),
			IsRabbitMQ: true,
			Version:    version,
		})
	}
	return all
}

// Require skips the test if the target is not available. `make test` provides all targets, and treats a skipped test as
// a failure.
func (b Target) Require(t testing.TB) {
	t.Helper()
	if b.URL == "" {
		t.Skipf("needs RabbitMQ %s (set %s or run make test)", b.Version, variable(b.Version))
	}
}
