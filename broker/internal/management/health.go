package management

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/reprisemq/reprise/broker/internal/alarm"
)

func (h *Handler) health() {
	for _, path := range []string{"alarms", "local-alarms"} {
		h.handle("GET /api/health/checks/"+path, anyone, checkAlarms)
	}
	// There is one node, which runs as long as it answers.
	for _, path := range []string{
		"virtual-hosts", "ready-to-serve-clients", "is-in-service", "below-node-connection-limit",
		"certificate-expiration/{within}/{unit}",
	} {
		h.handle("GET /api/health/checks/"+path, anyone, func(*call) (any, error) { return healthy, nil })
	}
	h.handle("GET /api/health/checks/node-is-quorum-critical", anyone, func(*call) (any, error) {
		return statusInfo{Status: "ok", Reason: "single node cluster"}, nil
	})
	h.handle("GET /api/health/checks/port-listener/{port}", anyone, checkPort)
	h.handle("GET /api/health/checks/protocol-listener/{protocol}", anyone, checkProtocol)
	h.handle("GET /api/aliveness-test/{vhost}", anyone, func(c *call) (any, error) {
		_, err := c.vhost()
		return healthy, err
	})
}

// statusInfo is the answer of a health check.
type statusInfo struct {
	Status string `json:"status"`
	Reason string `json:"reason,omitempty"`
}

var healthy = statusInfo{Status: "ok"}

// unhealthy is a check that failed, with what it looked at.
type unhealthy struct {
	Status    string      `json:"status"`
	Reason    string      `json:"reason"`
	Alarms    []alarmInfo `json:"alarms,omitempty"`
	Ports     []int       `json:"ports,omitempty"`
	Protocols []string    `json:"protocols,omitempty"`
	Missing   any         `json:"missing,omitempty"`
}

type alarmInfo struct {
	Node     string         `json:"node"`
	Resource alarm.Resource `json:"resource"`
}

// failedCheck is answered with status 503.
type failedCheck struct{ body unhealthy }

func (failedCheck) Error() string { return "health check failed" }

func checkAlarms(c *call) (any, error) {
	var all []alarmInfo
	for _, resource := range c.node.Alarms.Resources() {
		all = append(all, alarmInfo{NodeName, resource})
	}
	if all == nil {
		return healthy, nil
	}
	return nil, failedCheck{unhealthy{Status: "failed", Reason: "There are alarms in effect in the cluster", Alarms: all}}
}

// portStatus and protocolStatus are the answers for a listener that is there.
type portStatus struct {
	Status string `json:"status"`
	Port   int    `json:"port"`
}

type protocolStatus struct {
	Status    string   `json:"status"`
	Protocols []string `json:"protocols"`
}

const noListener = "No active listener"

func checkPort(c *call) (any, error) {
	port, err := strconv.Atoi(c.PathValue("port"))
	if err != nil {
		return nil, badRequest("Invalid port")
	}
	ports := []int{}
	for _, l := range c.listening() {
		if l.Port != 0 {
			ports = append(ports, l.Port)
		}
	}
	if slices.Contains(ports, port) {
		return portStatus{"ok", port}, nil
	}
	return nil, failedCheck{unhealthy{Status: "failed", Reason: noListener, Ports: ports, Missing: port}}
}

// protocolNames are what a protocol is called in questions, by what it is called in answers.
var protocolNames = map[string][]string{
	"amqp": {"amqp", "amqp091", "amqp0-9-1", "amqp0.9.1", "amqp-0-9-1"},
	"http": {"http"},
}

func checkProtocol(c *call) (any, error) {
	wanted, protocols := c.PathValue("protocol"), c.protocols()
	for _, p := range protocols {
		if slices.Contains(protocolNames[p], wanted) {
			return protocolStatus{"ok", protocols}, nil
		}
	}
	return nil, failedCheck{unhealthy{
		Status: "failed", Reason: noListener, Protocols: protocols, Missing: []string{wanted},
	}}
}

func refuseCheck(w http.ResponseWriter, f failedCheck) {
	write(w, http.StatusServiceUnavailable, f.body)
}
