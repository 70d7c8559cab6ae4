package archive

import (
	"context"
	"fmt"
	"strings"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/doctor"
	"github.com/reprisemq/reprise/internal/drift"
	"github.com/reprisemq/reprise/internal/mgmtapi"
)

// Difference is an exchange, a queue or a binding that workers declare and that the broker does not have in this form.
type Difference struct {
	// Status is "create" for a missing object, "change" for an object with other properties, for which RabbitMQ refuses the
	// declaration or whose policy has another effect, and "conflict" for an object that cannot be declared.
	Status string `json:"status"`

	Object  string   `json:"object"`            // such as "queue orders" or "binding shop → orders, key order.*"
	Reasons []string `json:"reasons,omitempty"` // such as "x-max-length is 7 (declared: not set)"; none for a missing object
	Fix     string   `json:"fix,omitempty"`     // what to do; "": the next start of the worker declares the object
}

// String returns the difference in one line, such as "change queue orders: durable is false (declared: true)".
func (d Difference) String() string {
	s := d.Status + " " + d.Object
	if len(d.Reasons) > 0 {
		s += ": " + strings.Join(d.Reasons, ", ")
	}
	return s
}

// Differences compares the exchanges, queues and bindings that workers declare with the virtual host, with the values that are in
// effect through policies, as the command reprise topology plan does for a configuration file. It returns conflicts first, then
// changes and missing objects, and nothing if the workers find what they declare. Wait queues that workers declare at a retry
// are compared if they exist. Only the fields Queue, Strategy, Topology and Policy of a worker have a meaning.
//
// Differences changes nothing. [reprise.Client.Declare] creates missing objects, as the worker does when it starts. A test or a
// deployment can call Differences before it starts the new version of a worker. The user of m needs the tag management.
func (m *Management) Differences(ctx context.Context, workers ...reprise.WorkerConfig) ([]Difference, error) {
	api := mgmtapi.API(*m)
	vhost := api.VirtualHost()
	b, err := doctor.Read(ctx, api, vhost)
	if err != nil {
		return nil, fmt.Errorf("archive: cannot read virtual host %q: %w", vhost, err)
	}
	var all []Difference
	for _, o := range drift.Compare(workers, b, vhost).Objects {
		if o.Status == drift.Extra || o.Status == drift.Exists {
			continue
		}
		d := Difference{Status: string(o.Status), Object: o.String(), Fix: o.Fix}
		for _, p := range o.Differences {
			d.Reasons = append(d.Reasons, p.Text("declared"))
		}
		d.Reasons = append(d.Reasons, o.Notes...)
		all = append(all, d)
	}
	return all, nil
}
