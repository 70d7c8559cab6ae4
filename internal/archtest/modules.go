package archtest

import (
	"slices"
	"strings"
)

// amqpClient is the only module that a worker requires.
const amqpClient = "github.com/rabbitmq/amqp091-go"

// Modules lists the modules that a package may import directly, besides the standard library. Except in programs, each
// optional module is confined to one entry, so that the module can be tested and replaced separately.
var Modules = map[string][]string{
	"internal/amqpconn":            {amqpClient},
	"broker/internal/diskstore":    {"github.com/cockroachdb/pebble/..."},
	"breaker":                      {"github.com/sony/gobreaker/..."},
	"prommetrics":                  {"github.com/prometheus/..."},
	"oteltrace":                    {"go.opentelemetry.io/..."},
	"internal/archive/console/...": {"github.com/aymanbagabas/go-udiff/..."},

	// Programs choose the drivers of their databases.
	"cmd/reprise/...": {
		"modernc.org/sqlite/...", "github.com/jackc/pgx/...", "github.com/go-sql-driver/mysql", "github.com/alecthomas/kong/...", "github.com/goccy/go-yaml/...", "golang.org/x/net/html/...",
		"github.com/prometheus/...", "github.com/aymanbagabas/go-udiff/...", "golang.org/x/term", "golang.org/x/time/rate",
		"go.opentelemetry.io/otel/propagation", "go.opentelemetry.io/otel/trace",
	},
	// The programs' export by OTLP is the only user of the OpenTelemetry SDK and of gRPC.
	"cmd/reprise/internal/telemetry": {
		"go.opentelemetry.io/...", "google.golang.org/grpc/credentials", "github.com/go-logr/logr",
	},
}

// Light lists packages that, including their dependencies, require no module except amqp091-go, so that their users do not
// need other modules.
var Light = []string{".", "backoff", "topology", "internal/preset", "broker", "reprisetest", "claimcheck", "encryption"}

// testLibraries are standard packages that only tests may import.
var testLibraries = []string{"testing/...", "net/http/httptest"}

// checkModules returns the imports of modules that Modules does not allow.
func checkModules(packages []Package) (found []Violation) {
	for _, p := range packages {
		name := short(p.ImportPath)
		if !ours(p.ImportPath) || matches(TestPackages, name) {
			continue
		}
		var allowed []string
		for pattern, modules := range Modules {
			if matches([]string{pattern}, name) {
				allowed = append(allowed, modules...)
			}
		}
		for _, path := range p.Imports {
			switch {
			case matches(testLibraries, path):
				found = append(found, Violation{name + " → " + path, "only tests may import it, because it adds flags and code to every program"})
			case !ours(path) && strings.Contains(path, ".") && !matches(allowed, path):
				found = append(found, Violation{name + " → " + path, "internal/archtest/modules.go does not allow this import"})
			}
		}
	}
	return found
}

// checkLight returns the shortest chains of imports from light packages to modules that they must not require.
func checkLight(light []string, packages []Package) (found []Violation) {
	byPath := make(map[string]Package)
	for _, p := range packages {
		byPath[p.ImportPath] = p
	}
	for _, p := range packages {
		if !ours(p.ImportPath) || !slices.Contains(light, short(p.ImportPath)) {
			continue
		}
		seen := map[string]bool{p.ImportPath: true}
		for queue := [][]string{{p.ImportPath}}; len(queue) > 0; queue = queue[1:] {
			chain := queue[0]
			for _, next := range byPath[chain[len(chain)-1]].Imports {
				if seen[next] || next == amqpClient {
					continue
				}
				seen[next] = true
				longer := append(slices.Clip(chain), next)
				if ours(next) {
					queue = append(queue, longer)
				} else if strings.Contains(strings.Split(next, "/")[0], ".") {
					found = append(found, Violation{arrows(longer), "users of a light package must only need the module amqp091-go"})
					break // one import is enough
				}
			}
		}
	}
	return found
}

func arrows(chain []string) string {
	names := make([]string, len(chain))
	for i, path := range chain {
		names[i] = short(path)
	}
	return strings.Join(names, " → ")
}
