package route

import "strings"

// topic is the matcher of topic exchanges. Keys consist of words, separated by dots. In a binding key, "*" matches
// exactly one word, and "#" matches zero or more words (https://www.rabbitmq.com/docs/exchanges#topic).
//
// The binding keys form a tree with a word on each edge. The cost of a match depends on the number of words in the
// routing key and on the wildcards, but not on the total number of bindings.
type topic[Q comparable] struct {
	root *topicNode[Q]
}

type topicNode[Q comparable] struct {
	next map[string]*topicNode[Q]
	here refs[Q] // bindings whose key ends at this node
	hash bool    // the edge to this node is "#", so the node also matches any further words
}

func newTopic[Q comparable]() *topic[Q] { return &topic[Q]{root: &topicNode[Q]{}} }

// words returns the words in a key. As in RabbitMQ, the empty key has no words, and "." has two empty words.
func words(key string) []string {
	if key == "" {
		return nil
	}
	return strings.Split(key, ".")
}

// Hashes returns the number of "#" in a binding key.
func Hashes(key string) (n int) {
	for _, w := range words(key) {
		if w == "#" {
			n++
		}
	}
	return n
}

func (m *topic[Q]) add(b Binding[Q]) {
	n := m.root
	for _, w := range words(b.Key) {
		child := n.next[w]
		if child == nil {
			child = &topicNode[Q]{hash: w == "#"}
			if n.next == nil {
				n.next = make(map[string]*topicNode[Q])
			}
			n.next[w] = child
		}
		n = child
	}
	if n.here == nil {
		n.here = make(refs[Q])
	}
	n.here.add(b.Destination)
}

func (m *topic[Q]) remove(b Binding[Q]) { m.root.remove(words(b.Key), b.Destination) }

// remove removes a binding, and the nodes that no longer lead to a binding.
func (n *topicNode[Q]) remove(rest []string, d Destination[Q]) {
	if len(rest) == 0 {
		n.here.remove(d)
		return
	}
	child := n.next[rest[0]]
	if child == nil {
		return
	}
	child.remove(rest[1:], d)
	if len(child.here) == 0 && len(child.next) == 0 {
		delete(n.next, rest[0])
	}
}

// match follows all possible paths for the routing key at the same time, as a set of nodes, so that binding keys with
// several "#" do not slow it down.
func (m *topic[Q]) match(dst []Destination[Q], key string, _ Message) []Destination[Q] {
	var nodes nodeSet[Q]
	nodes.enter(m.root)
	for _, w := range words(key) {
		var after nodeSet[Q]
		for _, n := range nodes.list {
			if n.hash {
				after.enter(n)
			}
			after.enter(n.next[w])
			after.enter(n.next["*"])
		}
		nodes = after
	}
	for _, n := range nodes.list {
		dst = n.here.appendTo(dst)
	}
	return dst
}

// nodeSet is a set of nodes in insertion order.
type nodeSet[Q comparable] struct{ set[*topicNode[Q]] }

// enter adds a node, unless it is nil, and then its child "#", because "#" may match zero words.
func (s *nodeSet[Q]) enter(n *topicNode[Q]) {
	for ; n != nil && s.add(n); n = n.next["#"] {
	}
}
