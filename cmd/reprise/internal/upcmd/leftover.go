package upcmd

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/broker/disk"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/localbroker"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/protocol"
)

// maxLeftoverQueues is the maximum number of queues in the result of leftoverMessages.
const maxLeftoverQueues = 20

// leftoverQueue is a non-empty queue of the embedded broker.
type leftoverQueue struct {
	name     string
	messages int
}

// leftoverMessages describes the messages in the data directory of the embedded broker, if the configuration now
// specifies another broker. It returns "" if there are no messages.
func leftoverMessages(cfg *config.Config) string {
	if cfg.Broker == "" {
		return ""
	}
	dir := localbroker.Absolute(filepath.Join(cfg.Dir, config.DefaultData))
	counts, err := disk.Count(dir)
	switch {
	case errors.Is(err, broker.ErrInUse):
		return fmt.Sprintf("cannot count the messages in %s, which another process uses (the configured broker does not use them)", dir)
	case err != nil:
		return fmt.Sprintf("cannot read whether the embedded broker has left messages in %s: %v", dir, err)
	}
	var queues []leftoverQueue
	for _, q := range counts {
		if q.Messages > 0 && !protocol.IsControlQueue(q.Name) {
			queues = append(queues, leftoverQueue{q.Name, q.Messages})
		}
	}
	if len(queues) == 0 {
		return ""
	}
	slices.SortFunc(queues, func(a, b leftoverQueue) int {
		return cmp.Or(cmp.Compare(b.messages, a.messages), cmp.Compare(a.name, b.name))
	})
	messages := 0
	var names []string
	for i, q := range queues {
		messages += q.messages
		if i < maxLeftoverQueues {
			names = append(names, fmt.Sprintf("%s: %d", q.name, q.messages))
		}
	}
	if more := len(queues) - maxLeftoverQueues; more > 0 {
		names = append(names, fmt.Sprintf("%d more queues", more))
	}
	return fmt.Sprintf("the embedded broker has left %s in %s (%s), and broker: does not use them: "+
		"move them with reprise move --from %[2]s --to URL",
		terminal.Plural(messages, "message"), dir, strings.Join(names, ", "))
}
