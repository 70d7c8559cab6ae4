package topology

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// For returns an error if the given version of RabbitMQ does not implement the topology (see Needs). A broker sends
// its version in the server property "version" of a connection.
func (t Topology) For(version string) error {
	if t.Needs == "" {
		return nil
	}
	need, _ := parseVersion(t.Needs)
	have, ok := parseVersion(version)
	if ok && slices.Compare(have, need) >= 0 {
		return nil
	}
	return fmt.Errorf("topology: broker must be RabbitMQ %s or later: got %q (earlier versions ignore arguments of this topology; use another route, such as Buckets)", t.Needs, version)
}

// newer returns the later of two versions. "" is earlier than all others.
func newer(a, b string) string {
	x, _ := parseVersion(a)
	y, _ := parseVersion(b)
	if slices.Compare(x, y) >= 0 {
		return a
	}
	return b
}

// parseVersion parses a version such as "4.3.6". It ignores the first character that is neither a digit nor a dot, and
// all following characters, as in "4.3.0-rc.1" or "3.10.8+1".
func parseVersion(s string) (numbers []int, ok bool) {
	end := strings.IndexFunc(s, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if end >= 0 {
		s = s[:end]
	}
	for part := range strings.SplitSeq(s, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, false
		}
		numbers = append(numbers, n)
	}
	return numbers, true
}
