package cli

import (
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/api"
)

// The text mentions that messages moved during the count, so that users do not interpret the difference as a loss. An
// exact difference needs no such text.
func TestAuditWords(t *testing.T) {
	for slack, want := range map[int64]string{
		0: "",
		1: "orders: balanced to within 1 message: some moved while the queues were counted",
		4: "orders: balanced to within 4 messages: some moved while the queues were counted",
	} {
		got := auditText(api.Ledger{Kept: true, Accounts: []api.Account{{Account: "orders", State: "balanced", In: 6, Slack: slack}}}, 0)
		if !strings.Contains(got, want) || want == "" && strings.Contains(got, "orders:") {
			t.Errorf("slack %d:\n%s", slack, got)
		}
	}
}
