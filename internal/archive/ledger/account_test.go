package ledger

import (
	"strings"
	"testing"
)

// Queues with similar names do not belong to the account.
func TestPlaces(t *testing.T) {
	a := Account{Work: []string{"orders", "mails"}, Wait: []string{"retry", "mails.level.*"}}.withDefaults()
	for queue, want := range map[string]place{
		"orders": work, "mails": work, "retry": wait, "retry.aside": wait, "orders.aside": nowhere,
		"orders.failed": parked, "mails.failed": parked,
		"orders.wait.0-1000": wait, "orders.wait.1000-1250": wait,
		"orders.level.3": levels, "mails.level.3": wait,
		"orders.eu": nowhere, "orders.eu.wait.0-1000": nowhere, "orders.eu.level.3": nowhere, "exchange.orders.level-3": nowhere,
		"orders.wait.x": nowhere, "orders.level.": nowhere, "orders.failed.failed": nowhere, "other": nowhere, "": nowhere,
	} {
		if got := a.place(queue); got != want {
			t.Errorf("queue %q: got place %d, want %d", queue, got, want)
		}
	}
}

func TestJoinIsTransitive(t *testing.T) {
	joined := Join([]Account{
		{Work: []string{"a"}, Wait: []string{"1"}},
		{Work: []string{"b"}, Wait: []string{"2"}},
		{Work: []string{"c"}},
		{Work: []string{"d"}, Wait: []string{"2", "1"}},
	})
	if len(joined) != 2 || joined[0].Name() != "a, b, d" || joined[1].Name() != "c" {
		t.Errorf("Join: got %+v, want the accounts \"a, b, d\" and c", joined)
	}
}

func TestAccountValidate(t *testing.T) {
	for want, a := range map[string]Account{
		"Work must not be empty":                {},
		"must not contain an empty name":        {Work: []string{""}},
		"in both Account.Wait and Account.Work": {Work: []string{"a"}, Wait: []string{"a"}},
	} {
		if err := a.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got error %v, want %q", a, err, want)
		}
	}
}
