package node

import (
	"log/slog"
)

// Trial returns a copy of the node with its users, parameters, virtual hosts, exchanges and queues, but without permissions, bindings,
// messages and connections. It is in memory, and has the same limits. Callers use it to check whether changes would
// succeed, and must call Close.
func (n *Node) Trial() *Node {
	log := slog.New(slog.DiscardHandler)
	t, _ := New(Config{Log: log, MaxQueues: n.config.MaxQueues}) // cannot fail without a store
	t.Topology, t.Parameters = n.Topology.Clone(), n.Parameters.Clone()
	for _, u := range n.Access.Users() {
		_ = t.Access.SetUser(u) // cannot fail, because the user exists
	}
	// Topic permissions are not copied, because they do not affect an import.
	clear(t.vhosts)
	for _, v := range n.VHosts() {
		t.vhosts[v.Name()] = v.Trial(t.vhostConfig())
	}
	return t
}

// Close closes the virtual hosts of a node without connections.
func (n *Node) Close() {
	for _, v := range n.hosts() {
		v.Close()
	}
}
