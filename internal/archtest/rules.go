// Package archtest keeps the direction of the project's imports.
//
//	cmd/reprise ─► reprise ─► topology ─► backoff
//	     │             └─► the AMQP client
//	     └──────► broker ─► internal/{management,node,session,vhost} ─► internal/{queue,route,amqpwire,registry,store}
//
// The rules stand in this file, as a table. The package's test holds the
// project's own imports, as `go list -deps` gives them, against it; `make lint`
// runs that test. Only what goes into a build counts: the imports of _test.go
// files are free, since tests are where the two sides meet.
package archtest

// Module is the path of the project's module. Packages are named relative to it
// in the rules: "." is its root, "broker" is Module/broker, and "broker/..." is
// broker and all below it.
const Module = "github.com/reprisemq/reprise"

// amqpClient is the one package outside the project that a worker needs.
const amqpClient = "github.com/rabbitmq/amqp091-go"

// A Rule says what some packages may not import, be it directly or by way of
// other packages of the project. A pattern that matches nothing is no mistake:
// the rule holds for the package from the day it comes.
type Rule struct {
	// For are the packages that the rule binds, all but those in Except.
	For, Except []string

	// Only, unless it is nil, are all the packages outside the standard library
	// that they may import. The imports of one that lies outside the project are
	// its own affair.
	Only []string

	// Never are packages that they may not import.
	Never []string

	// NeverDirectly are packages that they may not import themselves. Of the
	// standard library, too: what a dependency of theirs imports is not theirs.
	NeverDirectly []string

	// NeverBoth is a pair of packages that they may not have both.
	NeverBoth [2]string

	// Why is the reason, for whoever has just broken the rule.
	Why string
}

// library is the worker library with all that it brings along, and more.
func library(more ...string) []string {
	return append([]string{".", "topology", "backoff", amqpClient}, more...)
}

// testPackages are for tests alone, or are tests that happen to be programs.
var testPackages = []string{
	"reprisetest/...",
	"idempotent/storetest",
	"conformance/...",
	"internal/chaos/...",
	"broker/internal/chaos/...",
	"internal/testkit/...",
	"internal/browsertest/...",
	"internal/archtest/...",
	"internal/interop/...",
	"internal/workertest/...",
	"internal/backofftest/...",
	"internal/presettest/...",
	"internal/topologytest/...",
}

// Rules are the project's rules.
var Rules = []Rule{
	{
		For:  []string{"backoff", "broker/internal/route", "internal/amqpwire", "broker/internal/alarm", "internal/params"},
		Only: []string{},
		Why:  "they are pure: the standard library is all they need, so anyone can read, test and fuzz them alone",
	},
	{
		For:  []string{"topology"},
		Only: []string{"backoff"},
		Why:  "a topology is made of values; what talks to a broker takes it as an argument",
	},
	{
		For:  []string{"topology/preset"},
		Only: []string{"topology", "backoff"},
		Why:  "a preset is a topology that somebody published, and no more",
	},
	{
		For:  []string{"."},
		Only: []string{"topology", "backoff", amqpClient},
		Why:  "the worker library runs against any RabbitMQ, and whoever imports it gets no broker, no store and no console with it",
	},
	{
		For:  []string{"internal/graph"},
		Only: library(),
		Why:  "a drawing is made of values, among them how a worker is configured",
	},
	{
		For:  []string{"breaker"},
		Only: library("github.com/sony/gobreaker/..."),
		Why:  "each library that a worker can do without is behind a package of its own, and comes along only with that",
	},
	{
		For:  []string{"idempotent"},
		Only: library("internal/sqlkit"),
		Why:  "it speaks to databases through database/sql: which driver is up to the program",
	},
	{
		For:  []string{"failed"},
		Only: library("internal/sqlkit", "internal/params"),
		Why:  "it speaks to databases through database/sql: which driver is up to the program",
	},
	{
		For:  []string{"ledger"},
		Only: library("failed", "internal/sqlkit", "internal/params", "internal/mgmtapi"),
		Why:  "it holds what others say against each other, and asks them through interfaces; which driver of a database goes into the program is up to that",
	},
	{
		For:  []string{"internal/api"},
		Only: library("failed", "ledger", "internal/sqlkit", "internal/params", "internal/mgmtapi"),
		Why:  "it is what an HTTP API says, for whoever asks it: neither its server nor a command comes along",
	},
	{
		For:           []string{"console/..."},
		Only:          library("console/internal/...", "failed", "ledger", "internal/api", "internal/graph", "internal/sqlkit", "internal/params", "internal/mgmtapi", "github.com/aymanbagabas/go-udiff/..."),
		NeverDirectly: []string{amqpClient},
		Why:           "it shows an archive to people; what moves messages, a broker and a command are others' affair",
	},
	{
		For:   []string{"console/internal/fault", "console/internal/access", "console/internal/show", "console/internal/editor", "console/internal/figures", "console/internal/flow"},
		Never: []string{"console/internal/web", "console/internal/jsonapi", "console/internal/pages"},
		Why:   "requests are handled on top of what is shown and who may see it",
	},
	{
		For:   []string{"console/internal/web"},
		Never: []string{"console/internal/jsonapi", "console/internal/pages"},
		Why:   "the handlers are given to the server",
	},
	{
		For:  []string{"prommetrics"},
		Only: library("github.com/prometheus/...", "internal/published"),
		Why:  "each library that a worker can do without is behind a package of its own, and comes along only with that",
	},
	{
		For:  []string{"oteltrace"},
		Only: library("go.opentelemetry.io/...", "internal/published"),
		Why:  "each library that a worker can do without is behind a package of its own, and comes along only with that",
	},
	{
		For:   []string{"broker/..."},
		Never: []string{".", "topology/...", amqpClient},
		Why:   "the broker knows the protocol and nothing of who speaks it: what suits one client only is no RabbitMQ",
	},
	{
		For:   []string{"broker/internal/session/...", "broker/internal/node/...", "broker/internal/vhost/..."},
		Never: []string{"broker/internal/management/..."},
		Why:   "the broker runs without anybody looking at it: what the management API wants to know is there to be asked for",
	},
	{
		For:   []string{"broker/internal/queue/...", "broker/internal/store/..."},
		Never: []string{"broker/internal/session/..."},
		Why:   "connections use queues; a queue that knows of connections can't be tested without one",
	},
	{
		For:   []string{"broker/internal/store/...", "broker/internal/registry/..."},
		Never: []string{"broker/internal/queue/...", "broker/internal/vhost/...", "internal/amqpwire/...", "broker/internal/access/..."},
		Why:   "the store keeps bytes under names; what they mean is for those to know who wrote them",
	},
	{
		For:           []string{"..."},
		Except:        []string{"broker/internal/store/..."},
		NeverDirectly: []string{"github.com/cockroachdb/pebble/..."},
		Why:           "the storage library is behind broker/internal/store, so that it can be understood, tested and replaced there",
	},
	{
		For:       []string{"..."},
		Except:    append([]string{"cmd/...", "examples/..."}, testPackages...),
		NeverBoth: [2]string{".", "broker"},
		Why:       "the worker library and the broker meet in programs and tests only, so that each can be had without the other",
	},
	{
		For:    []string{"..."},
		Except: testPackages,
		Never:  testPackages,
		Why:    "what is made for tests may panic, wait and fail as it likes, and goes into no program",
	},
	{
		For:    []string{"..."},
		Except: testPackages,
		NeverDirectly: []string{
			"testing", "testing/...", "net/http/httptest",
			"pgregory.net/rapid/...", "go.uber.org/goleak/...",
			"github.com/rogpeppe/go-internal/...", "github.com/google/go-cmp/...",
		},
		Why: "these libraries are for tests, and importing one puts its flags and its weight into every program",
	},
	{
		For:           []string{"..."},
		Except:        append([]string{"cmd/...", "examples/coverart"}, testPackages...),
		NeverDirectly: []string{"modernc.org/sqlite/...", "github.com/jackc/pgx/..."},
		Why:           "packages speak to databases through database/sql: which driver goes into the program is up to that",
	},
	{
		For:           []string{"..."},
		Except:        append([]string{"broker"}, testPackages...),
		NeverDirectly: []string{"internal/inside"},
		Why:           "what a test may see of a broker is nobody's API",
	},
	{
		For:    []string{"..."},
		Except: []string{"cmd/..."},
		Never:  []string{"cmd/..."},
		Why:    "no library needs a command",
	},
}
