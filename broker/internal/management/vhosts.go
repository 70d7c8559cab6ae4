package management

import (
	"cmp"
	"net/http"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/vhost"
)

func (h *Handler) vhosts() {
	h.handle("GET /api/vhosts", anyone, listVHosts)
	h.handle("GET /api/vhosts/{vhost}", administrator, func(c *call) (any, error) {
		v, err := c.vhost()
		if err != nil {
			return nil, err
		}
		return c.describeVHost(v), nil
	})
	h.handle("PUT /api/vhosts/{vhost}", administrator, putVHost)
	h.handle("DELETE /api/vhosts/{vhost}", administrator, deleteVHost)
	h.handle("POST /api/vhosts/{vhost}/deletion/protection", administrator, func(c *call) (any, error) { return c.protect(true) })
	h.handle("DELETE /api/vhosts/{vhost}/deletion/protection", administrator, func(c *call) (any, error) { return c.protect(false) })
}

func deleteVHost(c *call) (any, error) {
	name := c.PathValue("vhost")
	if v := c.node.VHost(name); v != nil && protected(v) {
		return nil, &failure{
			http.StatusPreconditionFailed, "precondition_failed",
			"Refusing to delete virtual host '" + name + "' because it is protected from deletion",
		}
	}
	if !c.node.DeleteVHost(name) {
		return nil, notFound
	}
	return done{}, nil
}

func protected(v *vhost.VHost) bool {
	p := v.About().Protected
	return p != nil && *p
}

// protect sets whether requests can delete the virtual host.
func (c *call) protect(on bool) (any, error) {
	name := c.PathValue("vhost")
	v := c.node.VHost(name)
	switch {
	case v == nil && on:
		return nil, &failure{
			http.StatusNotFound, "not_found", "Cannot enable deletion protection of virtual host '" + name + "' because it does not exist",
		}
	case v == nil:
		return nil, notFound
	}
	about := v.About()
	about.Protected = &on
	v.SetAbout(about)
	return done{}, nil
}

// metadata returns the description, the tags, the default queue type and the protection of a virtual host.
func metadata(v *vhost.VHost) fields {
	about := v.About()
	m := fields{"description": about.Description, "tags": tagList(about.Tags), "default_queue_type": cmp.Or(about.QueueType, "classic")}
	if about.Protected != nil {
		m["protected_from_deletion"] = *about.Protected
	}
	return m
}

// describeVHost returns an element of GET /api/vhosts.
func (c *call) describeVHost(v *vhost.VHost) fields {
	ready, unacked := 0, 0
	for _, q := range v.Queues() {
		s := q.Stats()
		ready, unacked = ready+s.Ready, unacked+s.Unacked
	}
	return fields{
		"name": v.Name(), "protected_from_deletion": false, "tracing": false, "metadata": metadata(v),
		"cluster_state": fields{NodeName: "running"},
	}.with(metadata(v)).with(c.h.rates.depth(v, ready, unacked)).
		with(c.h.rates.messageStats(v, v.Messages().Counts(), clientCounters))
}

func listVHosts(c *call) (any, error) {
	vhosts, err := c.visible()
	if c.is(monitor) {
		vhosts = c.node.VHosts()
	}
	return pages(func(yield func(element) bool) {
		for _, v := range vhosts {
			if !yield(func() fields { return c.describeVHost(v) }) {
				return
			}
		}
	}), err
}

// vhostSettings is the body of a request that creates or changes a virtual host. It is also part of a virtual host in
// definitions. An unsupported setting is rejected, unless it has the default value.
type vhostSettings struct {
	Description      *string `json:"description"`
	Tags             *tags   `json:"tags"`
	DefaultQueueType *string `json:"default_queue_type"`
	Tracing          flag    `json:"tracing"`
	Protected        *flag   `json:"protected_from_deletion"` // only in definitions
}

// queueTypes contains the names of queue types in the metadata of virtual hosts.
var queueTypes = map[string]string{
	"classic": "", "rabbit_classic_queue": "", "undefined": "", "quorum": "quorum", "rabbit_quorum_queue": "quorum",
}

func (s *vhostSettings) check() error {
	known := false
	if s.DefaultQueueType != nil {
		_, known = queueTypes[*s.DefaultQueueType]
	}
	switch {
	case s.DefaultQueueType != nil && *s.DefaultQueueType == "stream":
		return badRequest("default_queue_type must be classic or quorum: streams are not supported")
	case s.DefaultQueueType != nil && !known:
		return badRequest(*s.DefaultQueueType + " is not a valid queue type")
	case bool(s.Tracing):
		return badRequest("tracing is not supported")
	}
	return nil
}

// apply changes the metadata of a virtual host, beginning with about.
func (s *vhostSettings) apply(v *vhost.VHost, about vhost.About) {
	if s.Description != nil {
		about.Description = *s.Description
	}
	if s.Tags != nil {
		about.Tags = *s.Tags
	}
	if s.DefaultQueueType != nil {
		about.QueueType = queueTypes[*s.DefaultQueueType]
	}
	if s.Protected != nil {
		about.Protected = (*bool)(s.Protected)
	}
	v.SetAbout(about)
}

func putVHost(c *call) (any, error) {
	var s vhostSettings
	if err := c.decode(&s); err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	name := c.PathValue("vhost")
	added := c.node.AddVHost(name)
	v := c.node.VHost(name)
	if v == nil { // the node is shut down, or another request has deleted the virtual host
		return nil, notFound
	}
	s.Protected = nil
	s.apply(v, vhost.About{Protected: v.About().Protected}) // as in RabbitMQ, a request replaces all other metadata
	if !added {
		return done{}, nil
	}
	// The creator of a virtual host gets all permissions in it.
	return created{}, c.node.Access.SetPermission(allPermissions(c.user.Name, name))
}

func allPermissions(user, vhost string) access.Permission {
	return access.Permission{User: user, VHost: vhost, Configure: ".*", Write: ".*", Read: ".*"}
}
