package main

import (
	"strconv"

	"github.com/reprisemq/reprise/bench/internal/report"
)

// scenario is a measurement that several contenders repeat.
type scenario struct {
	name, text, target string
	filled             bool // before a round, the work queue contains the messages
	copied             bool // after a round, the wait queue contains the messages
	entries            []entry
	base               string          // title of the ratio; default: by hand
	columns            []report.Column // default: columns
}

// entry is a contender in a scenario.
type entry struct {
	name, contender string
	against, limit  string
	job             settings
	share           float64 // fraction of the messages that the contender handles; 0 means 1
	partitions      int     // 0: the messages are in the work queue
	fill            filling // default: bodies of 65 bytes
	amqp091         bool    // reprise uses amqp091-go
}

type settings struct{ prefetch, concurrency, batch int }

func (s settings) args() []string {
	return []string{
		"-prefetch", strconv.Itoa(s.prefetch), "-concurrency", strconv.Itoa(s.concurrency), "-batch", strconv.Itoa(s.batch),
	}
}

var scenarios = []scenario{
	{
		name:   "consume",
		text:   "Messages of a quorum queue are consumed, handled by a handler that does nothing, and acked.",
		target: "reprise: 0.95 of the loop by hand that acks in batches, with the same prefetch",
		filled: true,
		entries: []entry{
			{name: "no acks at all", contender: "consume-no-ack"},
			{name: "by hand, prefetch 16, acks each", contender: "consume-each", against: "by hand, prefetch 16, acks 8", limit: "no acks at all", job: settings{prefetch: 16}},
			{name: "by hand, prefetch 16, acks 8", contender: "consume-batch", against: "by hand, prefetch 16, acks 8", limit: "no acks at all", job: settings{prefetch: 16, batch: 8}},
			{name: "reprise, prefetch 16", contender: "consume-reprise", against: "by hand, prefetch 16, acks 8", limit: "no acks at all", job: settings{prefetch: 16, concurrency: 1}},
			{name: "by hand, prefetch 200, acks each", contender: "consume-each", against: "by hand, prefetch 200, acks 50", limit: "no acks at all", job: settings{prefetch: 200}},
			{name: "by hand, prefetch 200, acks 50", contender: "consume-batch", against: "by hand, prefetch 200, acks 50", limit: "no acks at all", job: settings{prefetch: 200, batch: 50}},
			{name: "reprise, prefetch 200", contender: "consume-reprise", against: "by hand, prefetch 200, acks 50", limit: "no acks at all", job: settings{prefetch: 200, concurrency: 8}},
			{name: "reprise with amqp091-go, prefetch 200", contender: "consume-reprise", against: "by hand, prefetch 200, acks 50", limit: "no acks at all", job: settings{prefetch: 200, concurrency: 8}, amqp091: true},
		},
	},
	{
		name:   "routing",
		text:   "As consume, with handlers of reprise that route, decode and collect messages, and with middleware.\nThe bodies are in the page cache.",
		target: "Mux, and middleware that finds nothing to do: 0.95 of the plain handler; Batch: 0.8",
		base:   "× plain",
		filled: true,
		entries: []entry{
			{name: "plain", contender: "consume-reprise", against: "plain", job: settings{prefetch: 200, concurrency: 8}},
			{name: "Mux", contender: "consume-mux", against: "plain", job: settings{prefetch: 200, concurrency: 8}},
			{name: "Mux, policy and concurrency", contender: "consume-limited", against: "plain", job: settings{prefetch: 200, concurrency: 8}},
			{name: "claim check, small bodies", contender: "consume-stored", against: "plain", job: settings{prefetch: 200, concurrency: 8}},
			{name: "encryption, plaintext", contender: "consume-encrypted", against: "plain", job: settings{prefetch: 200, concurrency: 8}},
			{name: "plain, 1 KiB", contender: "consume-reprise", against: "plain, 1 KiB", job: settings{prefetch: 200, concurrency: 8}, fill: filling{body: kib}},
			{name: "JSON, 1 KiB", contender: "consume-json", against: "plain, 1 KiB", job: settings{prefetch: 200, concurrency: 8}, fill: filling{body: kib}},
			{name: "encryption, 1 KiB", contender: "consume-encrypted", against: "plain, 1 KiB", job: settings{prefetch: 200, concurrency: 8}, fill: filling{kib, sealed}},
			{name: "plain, 256 KiB", contender: "consume-reprise", against: "plain, 256 KiB", job: settings{prefetch: 32, concurrency: 8}, share: 0.02, fill: filling{body: 256 * kib}},
			{name: "claim check, 256 KiB", contender: "consume-stored", against: "plain, 256 KiB", job: settings{prefetch: 32, concurrency: 8}, share: 0.02, fill: filling{256 * kib, stored}},
			{name: "plain, 100 handlers", contender: "consume-reprise", against: "plain, 100 handlers", job: settings{prefetch: 400, concurrency: 100}},
			{name: "Batch of 100", contender: "consume-collected", against: "plain, 100 handlers", job: settings{prefetch: 400, concurrency: 100, batch: 100}},
		},
	},
	{
		name:   "limits",
		text:   "As consume, with limits that are never reached.",
		target: "0.95 of no limit",
		base:   "× no limit",
		filled: true,
		entries: []entry{
			{name: "no limit", contender: "consume-reprise", against: "no limit", job: settings{prefetch: 200, concurrency: 8}},
			{name: "shared rate", contender: "consume-shared-rate", against: "no limit", job: settings{prefetch: 200, concurrency: 8}},
			{name: "shared concurrency", contender: "consume-shared-concurrency", against: "no limit", job: settings{prefetch: 200, concurrency: 8}},
		},
	},
	{
		name:   "order",
		text:   "As consume, with 10,000 keys and 8 partitions. One message in 20 fails once, and is retried after 100 ms.",
		target: "by key: 0.5 of any order",
		base:   "× any order",
		filled: true,
		entries: []entry{
			{name: "any order", contender: "consume-reprise", against: "any order", job: settings{prefetch: 200, concurrency: 8}},
			{name: "by key", contender: "consume-reprise", against: "any order", job: settings{concurrency: 8}, partitions: 8},
			{name: "any order, failures", contender: "fail-some", against: "any order, failures", job: settings{prefetch: 200, concurrency: 8}},
			{name: "by key, failures", contender: "fail-some", against: "any order, failures", job: settings{concurrency: 8}, partitions: 8},
		},
	},
	{
		name:   "retries",
		text:   "Every message fails; a copy goes to a wait queue, and the message is acked when the copy is confirmed.",
		target: "reprise: 0.9 of the pipelined loop by hand, 8 times the one that waits for each confirm",
		filled: true, copied: true,
		entries: []entry{
			{name: "by hand, one by one", contender: "retry-one-by-one", against: "by hand, pipelined", job: settings{prefetch: 200}, share: 0.1},
			{name: "by hand, pipelined", contender: "retry-pipelined", against: "by hand, pipelined", job: settings{prefetch: 200, batch: 50}},
			{name: "by hand, pipelined, whole history", contender: "retry-trail", against: "by hand, pipelined", job: settings{prefetch: 200, batch: 50}},
			{name: "reprise, prefetch 200", contender: "retry-reprise", against: "by hand, pipelined", job: settings{prefetch: 200, concurrency: 8}},
			{name: "reprise with amqp091-go, prefetch 200", contender: "retry-reprise", against: "by hand, pipelined", job: settings{prefetch: 200, concurrency: 8}, amqp091: true},
			{name: "reprise, prefetch 200, announced", contender: "retry-announced", against: "by hand, pipelined", job: settings{prefetch: 200, concurrency: 8}},
			{name: "reprise, prefetch 16", contender: "retry-reprise", against: "by hand, pipelined", job: settings{prefetch: 16, concurrency: 1}},
		},
	},
	{
		name:    "handlers",
		text:    "reprise up passes the messages to a handler that does nothing, in one process of Python\n(http.server) or Node.js.",
		target:  "process: 10,000 messages/s, and 3 times http",
		filled:  true,
		base:    "× http",
		columns: []report.Column{{Metric: perSecond, Title: "messages/s", Ratio: true}},
		entries: []entry{
			{name: "Python, exec", contender: "up-exec-python", against: "Python, http", job: settings{prefetch: 200, concurrency: 8}, share: 0.005},
			{name: "Python, http", contender: "up-http-python", against: "Python, http", job: settings{prefetch: 200, concurrency: 50}, share: 0.2},
			{name: "Python, http on a Unix socket", contender: "up-unix-python", against: "Python, http", job: settings{prefetch: 200, concurrency: 50}, share: 0.2},
			{name: "Python, process", contender: "up-process-python", against: "Python, http", job: settings{prefetch: 200, concurrency: 50}},
			{name: "Node.js, exec", contender: "up-exec-node", against: "Node.js, http", job: settings{prefetch: 200, concurrency: 8}, share: 0.005},
			{name: "Node.js, http", contender: "up-http-node", against: "Node.js, http", job: settings{prefetch: 200, concurrency: 50}, share: 0.2},
			{name: "Node.js, http on a Unix socket", contender: "up-unix-node", against: "Node.js, http", job: settings{prefetch: 200, concurrency: 50}, share: 0.2},
			{name: "Node.js, process", contender: "up-process-node", against: "Node.js, http", job: settings{prefetch: 200, concurrency: 50}},
		},
	},
	{
		name:   "publish",
		text:   "Messages are published and confirmed.",
		target: "",
		entries: []entry{
			{name: "by hand, one by one", contender: "publish-one-by-one", against: "by hand, 200 in flight", share: 0.1},
			{name: "by hand, 200 in flight", contender: "publish-pipelined", against: "by hand, 200 in flight", job: settings{concurrency: 200}},
			{name: "reprise, 200 goroutines", contender: "publish-reprise", against: "by hand, 200 in flight", job: settings{concurrency: 200}},
			{name: "reprise with amqp091-go, 200 goroutines", contender: "publish-reprise", against: "by hand, 200 in flight", job: settings{concurrency: 200}, amqp091: true},
		},
	},
}

func names() (all []string) {
	for _, s := range scenarios {
		all = append(all, s.name)
	}
	return all
}

// The metrics of a round.
const (
	perSecond    = "msgs_per_s"
	cpuPerMsg    = "cpu_us_per_msg"
	brokerPerMsg = "broker_cpu_us_per_msg"
	allocsPerMsg = "allocs_per_msg"
	bytesPerMsg  = "alloc_bytes_per_msg"
)

var columns = []report.Column{
	{Metric: perSecond, Title: "messages/s", Ratio: true, Share: true},
	{Metric: cpuPerMsg, Title: "CPU µs/message", Digits: 1},
	{Metric: brokerPerMsg, Title: "the broker's", Digits: 1},
	{Metric: allocsPerMsg, Title: "allocations", Digits: 1},
	{Metric: bytesPerMsg, Title: "bytes"},
}
