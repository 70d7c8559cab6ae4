package reportcmd

import (
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/archive/api"
)

// If messages moved during the count, the text reports the slack, so that users do not interpret the difference as a loss.
func TestAuditTextReportsSlack(t *testing.T) {
	for slack, want := range map[int64]string{
		0: "",
		1: "orders: the count is approximate (±1): messages moved during the count",
		4: "orders: the count is approximate (±4): messages moved during the count",
	} {
		got := auditText(api.Ledger{Kept: true, Accounts: []api.Account{{Account: "orders", State: "balanced", In: 6, Slack: slack}}}, 0)
		if !strings.Contains(got, want) || want == "" && strings.Contains(got, "orders:") {
			t.Errorf("slack %d: got\n%s", slack, got)
		}
	}
}
