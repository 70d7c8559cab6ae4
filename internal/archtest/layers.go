package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// Layers is the diagram of the project. A package may import only packages in lower lines. In a line with two sides, the
// left side is the worker library and the right side is the broker, and the sides must not import each other. Packages
// that match the same "/..." pattern may import each other. Both sides may import the packages in the lines after the last
// dashed line.
const Layers = `
cmd/reprise
cmd/reprise/internal/cli
cmd/reprise/internal/upcmd, cmd/reprise/internal/brokercmd, cmd/reprise/internal/consolecmd, cmd/reprise/internal/failedcmd, cmd/reprise/internal/queuecmd, cmd/reprise/internal/reportcmd, cmd/reprise/internal/plancmd, cmd/reprise/internal/migratecmd
cmd/reprise/internal/archiving, cmd/reprise/internal/remote, cmd/reprise/internal/version, cmd/reprise/internal/content
cmd/reprise/internal/health, cmd/reprise/internal/localbroker, cmd/reprise/internal/destination, cmd/reprise/internal/database, cmd/reprise/internal/flags
cmd/reprise/internal/serve, cmd/reprise/internal/demo, cmd/reprise/internal/telemetry
cmd/reprise/internal/dial
cmd/reprise/internal/terminal
cmd/reprise/internal/exit
cmd/reprise/internal/config
cmd/reprise/internal/handler
cmd/reprise/internal/cause
-------------------------------------------------------------------------------------------------------
archive                                                                                                  | broker/disk
internal/archive/console                                                                                 |
internal/archive/console/internal/pages, internal/archive/console/internal/jsonapi                       | broker
internal/archive/console/internal/web                                                                    | broker/internal/management
internal/archive/console/internal/access, internal/archive/console/internal/editor, internal/move        | broker/internal/node
internal/archive/console/internal/fault, internal/archive/console/internal/flow, internal/drift          | broker/internal/session
internal/archive/console/internal/show, internal/archive/console/internal/figures                        | broker/internal/vhost, broker/internal/access, broker/internal/parameter
internal/archive/api, internal/archive/notification, internal/graph, internal/doctor                                | broker/internal/queue, broker/internal/registry, broker/internal/diskstore
internal/archive/ledger, internal/archive/history                                                        | broker/internal/store
internal/archive/ingest, internal/archive/replay, internal/archive/waiting                               |
internal/archive/background                                                                              |
internal/archive/store                                                                                   |
internal/archive/framework                                                                               |
internal/archive/failed                                                                                  | broker/internal/route, broker/internal/exception, broker/internal/quota
internal/archive/fleet, internal/archive/sift, internal/archive/design, internal/migrate                               | broker/internal/alarm, broker/internal/stats, broker/internal/budget, broker/internal/erlang, broker/internal/clock
encryption                                                                                               |
breaker, idempotent, limit, outbox, prommetrics, oteltrace, claimcheck                                   |
internal/sqlkit, internal/mgmtapi, internal/published, internal/tablejson                                |
.                                                                                                        |
internal/consume                                                                                         |
internal/ack, internal/publish, internal/announce, internal/inner, internal/ordered                                      |
internal/amqpconn                                                                                        |
internal/amqpclient                                                                                      |
internal/preset, internal/protocol, internal/retry                                                       |
topology                                                                                                 |
backoff                                                                                                  |
-------------------------------------------------------------------------------------------------------
internal/testhook
internal/amqpwire, internal/guard, internal/params, internal/amqpvalue, internal/jsonpatch, internal/pemfile
internal/throttle, internal/brief
internal/bounded, internal/loglimit, internal/pcre
`

// TestPackages are packages for tests and tools. They may import every package, but only TestPackages and _test.go files
// may import them.
var TestPackages = []string{
	"reprisetest/...",
	"idempotent/storetest",
	"conformance/...",
	"broker/internal/brokertest",
	"broker/internal/chaos/...",
	"broker/internal/managementtest",
	"broker/internal/nodetest",
	"broker/internal/simulation/...",
	"broker/internal/vhosttest",
	"internal/archive/archivetest",
	"internal/archtest",
	"internal/backofftest",
	"internal/chaos/...",
	"internal/docstest",
	"internal/interop",
	"internal/presettest",
	"internal/testkit/...",
	"internal/tools/...",
	"internal/topologytest",
	"internal/workertest",
}

// place is the position of a package in the diagram.
type place struct {
	line    int
	side    int // 0: left or the whole line; 1: right
	both    bool
	pattern string
}

// layers is a parsed diagram.
type layers []place

func readLayers(picture string) (l layers) {
	for n, line := range strings.Split(picture, "\n") {
		if strings.HasPrefix(line, "--") {
			continue
		}
		sides := strings.Split(line, "|")
		for side, names := range sides {
			for name := range strings.SplitSeq(names, ",") {
				if name = strings.TrimSpace(name); name != "" {
					l = append(l, place{line: n, side: side, both: len(sides) == 1, pattern: name})
				}
			}
		}
	}
	return l
}

func (l layers) find(name string) (place, bool) {
	i := slices.IndexFunc(l, func(p place) bool { return matches([]string{p.pattern}, name) })
	if i < 0 {
		return place{}, false
	}
	return l[i], true
}

// check returns the imports that violate the order, the packages without a place, and the places without a package.
func (l layers) check(packages []Package) (found []Violation) {
	for _, at := range l {
		if !slices.ContainsFunc(packages, func(p Package) bool {
			return ours(p.ImportPath) && matches([]string{at.pattern}, short(p.ImportPath))
		}) {
			found = append(found, Violation{"place " + at.pattern, "package not found (remove the place from internal/archtest/layers.go)"})
		}
	}
	for _, p := range packages {
		if !ours(p.ImportPath) || matches(TestPackages, short(p.ImportPath)) {
			continue
		}
		name := short(p.ImportPath)
		from, placed := l.find(name)
		if !placed {
			found = append(found, Violation{"place of " + name, "place not found (add it to internal/archtest/layers.go)"})
			continue
		}
		for _, path := range p.Imports {
			if !ours(path) {
				continue
			}
			if why := l.forbidden(from, short(path)); why != "" {
				found = append(found, Violation{name + " → " + short(path), why})
			}
		}
	}
	return found
}

// forbidden returns why a package must not import another package, or "" if it may.
func (l layers) forbidden(from place, name string) string {
	if matches(TestPackages, name) {
		return "only tests may import test packages"
	}
	to, placed := l.find(name)
	switch {
	case !placed, to.pattern == from.pattern:
		return ""
	case to.line <= from.line:
		return fmt.Sprintf("imports must go down the lines of internal/archtest/layers.go: %s is not below %s", to.pattern, from.pattern)
	case !from.both && !to.both && to.side != from.side:
		return "the worker library and the broker must not import each other"
	}
	return ""
}
