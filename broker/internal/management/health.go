package management

import (
	"slices"
	"strconv"
)

func (h *Handler) health() {
	for _, path := range []string{"alarms", "local-alarms"} {
		h.handle("GET /api/health/checks/"+path, anyone, checkAlarms)
	}
	// These checks always succeed, because the only node is running if it responds. The handler does not check the
	// connection limit or the certificates.
	for _, path := range []string{
		"virtual-hosts", "ready-to-serve-clients", "is-in-service", "below-node-connection-limit",
		"certificate-expiration/{within}/{unit}", "reached-target-cluster-size", "metadata-store/initialized", "metadata-store/initialized/with-data",
		"quorum-queues-without-elected-leaders/all-vhosts", "quorum-queues-without-elected-leaders/all-vhosts/pattern/{pattern}",
	} {
		h.handle("GET /api/health/checks/"+path, anyone, func(*call) (any, error) { return healthy(), nil })
	}
	h.handle("GET /api/health/checks/node-is-quorum-critical", anyone, func(*call) (any, error) {
		return fields{"status": "ok", "reason": "single node cluster"}, nil
	})
	h.handle("GET /api/health/checks/port-listener/{port}", anyone, checkPort)
	h.handle("GET /api/health/checks/protocol-listener/{protocol}", anyone, checkProtocol)
	h.handle("GET /api/healthchecks/node", anyone, func(*call) (any, error) { return healthy(), nil })
	for _, path := range []string{
		"aliveness-test/{vhost}", "health/checks/quorum-queues-without-elected-leaders/vhost/{vhost}",
		"health/checks/quorum-queues-without-elected-leaders/vhost/{vhost}/pattern/{pattern}",
	} {
		h.handle("GET /api/"+path, anyone, func(c *call) (any, error) {
			_, err := c.vhost()
			return healthy(), err
		})
	}
}

func healthy() fields { return fields{"status": "ok"} }

// failedCheck is the body of a response with status 503. It contains the reason and the checked values.
type failedCheck fields

func (failedCheck) Error() string { return "health check failed" }

func unhealthy(reason string, checked fields) error {
	return failedCheck(fields{"status": "failed", "reason": reason}.with(checked))
}

func checkAlarms(c *call) (any, error) {
	var all []fields
	for _, resource := range c.node.Alarms.Resources() {
		all = append(all, fields{"node": NodeName, "resource": resource})
	}
	if all == nil {
		return healthy(), nil
	}
	return nil, unhealthy("There are alarms in effect in the cluster", fields{"alarms": all})
}

const noListener = "No active listener"

func checkPort(c *call) (any, error) {
	port, err := strconv.Atoi(c.PathValue("port"))
	if err != nil {
		return nil, badRequest("Invalid port")
	}
	ports := []int{}
	for _, l := range c.listening() {
		if l.port != 0 {
			ports = append(ports, l.port)
		}
	}
	if slices.Contains(ports, port) {
		return healthy().with(fields{"port": port}), nil
	}
	return nil, unhealthy(noListener, fields{"ports": ports, "missing": port})
}

// protocolNames maps the name of a protocol in responses to the names that requests can use.
var protocolNames = map[string][]string{
	"amqp": {"amqp", "amqp091", "amqp0-9-1", "amqp0.9.1", "amqp-0-9-1"},
	"http": {"http"},
}

func checkProtocol(c *call) (any, error) {
	wanted, protocols := c.PathValue("protocol"), c.protocols()
	for _, p := range protocols {
		if slices.Contains(protocolNames[p], wanted) {
			return healthy().with(fields{"protocols": protocols}), nil
		}
	}
	return nil, unhealthy(noListener, fields{"protocols": protocols, "missing": []string{wanted}})
}
