package preset_test

import (
	"fmt"
	"time"

	"github.com/reprisemq/reprise/internal/preset"
)

// This example prints the declarations of the work/retry design with custom settings.
func ExampleWorkRetry() {
	design := preset.WorkRetry{RetryDelay: time.Minute, Kind: "fanout"}
	if err := design.Validate(); err != nil {
		fmt.Println(err)
		return
	}
	t := design.Topology()
	for _, e := range t.Exchanges {
		fmt.Println("exchange", e.Name, e.Kind)
	}
	for _, q := range t.Queues {
		fmt.Println("queue", q.Name, q.Args)
	}
	for _, b := range t.Bindings {
		fmt.Println("binding", b)
	}
	// Output:
	// exchange WorkExchange fanout
	// exchange RetryExchange fanout
	// queue WorkQueue map[x-dead-letter-exchange:RetryExchange]
	// queue RetryQueue map[x-dead-letter-exchange:WorkExchange x-message-ttl:60000]
	// queue WorkQueue.failed map[x-delivery-limit:2147483647 x-queue-type:quorum]
	// binding WorkExchange → WorkQueue
	// binding RetryExchange → RetryQueue
}
