package config

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

func TestPriority(t *testing.T) {
	text := func(priority string) string {
		return fmt.Sprintf("broker: amqp://guest:guest@localhost/\nworkers:\n  - {queue: orders, exec: [echo], priority: %s}\n", priority)
	}
	for written, want := range map[string]int32{"10": 10, "-10": -10, "0": 0, "-2147483648": math.MinInt32, "2147483647": math.MaxInt32} {
		if got := mustParse(t, text(written)).Workers[0].Priority; got != want {
			t.Errorf("priority %s: got %d, want %d", written, got, want)
		}
	}
	for written, want := range map[string]string{
		"-2147483649":          "priority must be at least -2147483648: got -2147483649",
		"18446744073709551615": "priority must be at most 2147483647: got 18446744073709551615",
		"high":                 "priority must be an integer from -2147483648 to 2147483647",
	} {
		if _, err := Parse("dir/test.yaml", []byte(text(written)), environment); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("priority %s: got %v, want %s", written, err, want)
		}
	}
}

func TestPlainQueue(t *testing.T) {
	text := func(worker string) string {
		return fmt.Sprintf("broker: amqp://guest:guest@localhost/\nworkers:\n  - {queue: orders, exec: [echo]%s}\n", worker)
	}
	for written, want := range map[string]int{"": 0, ", plain: false": 0, ", plain: true": 1} {
		queues := mustParse(t, text(written)).Workers[0].Topology.Queues
		if len(queues) != want || want == 1 && (queues[0].Name != "orders" || len(queues[0].Args) != 0 || !queues[0].IfAbsent) {
			t.Errorf("%q: got %+v, want %d queues without arguments", written, queues, want)
		}
	}
	_, err := Parse("dir/test.yaml", []byte(text(", plain: true, route: {dead-letter: {delay: 1m}}")), environment)
	if err == nil || !strings.Contains(err.Error(), "plain: true must not be combined with this route") {
		t.Errorf("got %v, want an error about the route", err)
	}
}
