package plancmd

// Topology is reprise topology.
type Topology struct {
	Graph graphCmd `cmd:"" help:"Draw the exchanges and queues of a configuration."`
}
