package workretry_test

import (
	"context"
	"fmt"
	"os"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/examples/workretry/workretry"
)

// Compare retries the same flaky jobs in four ways, and injects failures during the retries.
func ExampleCompare() {
	ctx := context.Background()
	b, err := broker.New(broker.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = b.Shutdown(ctx) }()
	report, err := workretry.Compare(ctx,
		workretry.Broker{URL: "amqp://guest:guest@embedded/", Dial: b.DialContext},
		workretry.Comparison{Jobs: 12, Seed: 1, Delay: 10e6})
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return
	}
	for _, w := range report.Ways {
		c := w.Retried()
		fmt.Printf("%-21s %d lost, %d duplicated\n", w.Name+":", c.Lost, c.Duplicated)
	}
	// Output:
	// requeue:              0 lost, 0 duplicated
	// publish, then ack:    0 lost, 6 duplicated
	// ack, then publish:    4 lost, 0 duplicated
	// dead-letter exchange: 0 lost, 0 duplicated
}
