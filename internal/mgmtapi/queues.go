package mgmtapi

import (
	"context"
	"net/url"

	"github.com/reprisemq/reprise/topology"
)

// Queue is a queue of a virtual host. A count is unknown for a few seconds after the declaration of the queue, or if the
// node of the queue is down. The counters of Stats start at 0.
type Queue struct {
	Name      string
	Messages  Field[int64] // Ready and Unacked
	Ready     Field[int64]
	Unacked   Field[int64]
	Consumers Field[int64]
	Args      topology.Table
	Stats     Stats
}

// Depth returns the number of messages in the queue, both ready and unacked.
func (q Queue) Depth() Field[int64] {
	return Field[int64]{Value: q.Ready.Value + q.Unacked.Value, Known: q.Ready.Known && q.Unacked.Known}
}

// Stats contains the counters of a queue. They restart at 0 when the broker restarts.
type Stats struct {
	Published    Field[int64]
	Acked        Field[int64]
	Get          Field[int64] // by basic.get, and not acknowledged automatically
	GetNoAck     Field[int64]
	DeliverNoAck Field[int64]
	PublishRate  Field[float64] // per second
}

// queueColumns are the fields of a queue that Queues requests. Without this list, a response is 20 times as long.
const queueColumns = "name,messages,messages_ready,messages_unacknowledged,consumers,arguments," +
	"message_stats.publish,message_stats.ack,message_stats.get,message_stats.get_no_ack,message_stats.deliver_no_ack,message_stats.publish_details.rate"

// Queues returns the queues of a virtual host. It omits a queue without a name.
func (a API) Queues(ctx context.Context) ([]Queue, error) {
	type rate struct {
		Rate Field[float64] `json:"rate"`
	}
	type stats struct {
		Published    Field[int64] `json:"publish"`
		Acked        Field[int64] `json:"ack"`
		Get          Field[int64] `json:"get"`
		GetNoAck     Field[int64] `json:"get_no_ack"`
		DeliverNoAck Field[int64] `json:"deliver_no_ack"`
		In           Field[rate]  `json:"publish_details"`
	}
	type queue struct {
		Name      Field[string] `json:"name"`
		Messages  Field[int64]  `json:"messages"`
		Ready     Field[int64]  `json:"messages_ready"`
		Unacked   Field[int64]  `json:"messages_unacknowledged"`
		Consumers Field[int64]  `json:"consumers"`
		Args      arguments     `json:"arguments"`
		Stats     Field[stats]  `json:"message_stats"`
	}
	found, _, err := list[queue](ctx, a, "queues"+a.Within()+"?columns="+queueColumns)
	if err != nil {
		return nil, err
	}
	queues := make([]Queue, 0, len(found))
	for _, q := range found {
		if !q.Name.Known {
			continue
		}
		s := q.Stats.Value
		known := Stats{s.Published.count(), s.Acked.count(), s.Get.count(), s.GetNoAck.count(), s.DeliverNoAck.count(), s.In.Value.Rate.count()}
		if s.In.Malformed {
			known.PublishRate = Field[float64]{Malformed: true}
		}
		if q.Stats.Malformed {
			known = Stats{}
		}
		queues = append(queues, Queue{q.Name.Value, q.Messages, q.Ready, q.Unacked, q.Consumers, table(q.Args), known})
	}
	return queues, nil
}

// Declaration returns the properties and the effective arguments of a queue: those of its declaration and of its policies.
func (a API) Declaration(ctx context.Context, name string) (topology.Queue, error) {
	var answer Field[struct {
		Type       Field[string] `json:"type"`
		Durable    Field[bool]   `json:"durable"`
		AutoDelete Field[bool]   `json:"auto_delete"`
		Exclusive  Field[bool]   `json:"exclusive"`
		Arguments  arguments     `json:"arguments"`
		Policy     arguments     `json:"effective_policy_definition"`
	}]
	err := a.Get(ctx, "queues"+a.Within()+"/"+url.PathEscape(name)+"?columns=type,durable,auto_delete,exclusive,arguments,effective_policy_definition", &answer)
	if err != nil {
		return topology.Queue{}, err
	}
	found := answer.Value
	args := effectiveArgs(found.Type.Value, table(found.Arguments), table(found.Policy))
	return topology.Queue{
		Name: name, Transient: found.Durable.Known && !found.Durable.Value,
		AutoDelete: found.AutoDelete.Value, Exclusive: found.Exclusive.Value, Args: args,
	}, nil
}
