package conformance

import (
	"os"
	"strings"
	"testing"
)

// leftOut is what the differential test does not compare, and why: its scripts are kept from showing it. The table in
// docs/compatibility.md tells it to users.
var leftOut = []struct{ what, why string }{
	{
		"the order in which copies of one message, or messages settled or published at once, meet in a queue that they reach on different ways",
		"in RabbitMQ each queue is a process of its own, and which one is first is chance",
	},
	{
		"which of a channel's consumers on different queues is served first",
		"likewise",
	},
	{
		"the order in which messages of several consumers of a channel come back, or die, when they are settled at once",
		"RabbitMQ settles them consumer by consumer, in the order of their tags",
	},
	{
		"when a quorum queue with overflow `reject-publish` begins to refuse messages, and when it stops",
		"the limit is soft: RabbitMQ tells each channel of it after the fact",
	},
	{
		"when a dead letter `at-least-once` is tried again after no queue has taken it",
		"RabbitMQ has a timer of 180 s; here it is 5 s",
	},
	{
		"when a message expires in a classic queue with priorities that it is not alone in",
		"RabbitMQ looks for expired messages only when something else happens to such a queue",
	},
	{
		"messages published in a row to a queue that loses what is not taken at once, when its consumer has a prefetch and need not ack",
		"a quorum queue of RabbitMQ acks for it, which takes a moment, and counts the prefetch until then",
	},
	{
		"messages published in a row that expire at once, in a queue that is full",
		"in RabbitMQ the one may still be there, and give way to the next, or have expired: the same to whoever consumes, but not in `x-death`",
	},
	{
		"a consumer tag that is used again while messages of the cancelled consumer are unsettled",
		"a quorum queue of RabbitMQ takes the two for one consumer, and counts one",
	},
	{
		"transient queues",
		"whether RabbitMQ permits them is a matter of its configuration",
	},
	{
		"times to live other than zero and for ever",
		"what expires between two steps depends on the clock; tests of their own are about it",
	},
}

func TestWhatIsLeftOutIsTold(t *testing.T) {
	doc, err := os.ReadFile("../docs/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leftOut {
		if row := "| " + l.what + " | " + l.why + " |"; !strings.Contains(string(doc), row) {
			t.Errorf("docs/compatibility.md does not tell:\n%s", row)
		}
	}
}
