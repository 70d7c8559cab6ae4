package move

import (
	"testing"

	"github.com/reprisemq/reprise/internal/doctor"
)

// A batch could change the order in a queue that refuses messages, or lose messages of a queue with a low delivery limit.
func TestBatchOfQueue(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]int{
		``: 0,
		`"x-max-length":9,"x-overflow":"drop-head"`:                                             0,
		`"x-overflow":"reject-publish","x-queue-type":"quorum"`:                                 0, // never full
		`"x-overflow":"reject-publish","x-max-length":9`:                                        1,
		`"x-overflow":"reject-publish-dlx","x-max-length-bytes":9`:                              1,
		`"x-queue-type":"quorum","x-delivery-limit":1,"x-dead-letter-exchange":"dead-messages"`: 1,
		`"x-queue-type":"quorum","x-delivery-limit":7`:                                          0,
	} {
		b, err := doctor.Parse([]byte(`{"queues":[{"name":"q","vhost":"/","durable":true,"arguments":{`+args+`}}]}`), "")
		if err != nil {
			t.Fatal(err)
		}
		p := planner{Plan: &Plan{}, from: b, to: &doctor.Broker{}, queues: map[string]*doctor.Queue{}}
		if err := p.selectQueues(); err != nil {
			t.Fatal(err)
		}
		if len(p.Queues) != 1 || p.Queues[0].batch != want {
			t.Errorf("%s: got %+v, want batch %d", args, p.Queues, want)
		}
	}
}
