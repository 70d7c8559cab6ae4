package config

import "math"

// Results configures where the results of a handler go.
type Results struct {
	ReplyTo       bool   // to the reply-to of each message
	Exchange, Key string // of all messages, unless ReplyTo is set
	MaxSize       int    // in bytes
}

// DefaultResult is the default maximum size of a result.
const DefaultResult = 1 << 20

const replyTo = "reply-to"

// results reads the word reply-to, or a mapping.
func (v value) results() (*Results, bool) {
	r := &Results{MaxSize: DefaultResult}
	if !v.isMapping() {
		r.ReplyTo = v.plain() == replyTo
		return r, r.ReplyTo || v.fail("results must be reply-to, {queue: NAME} or {exchange: NAME, key: KEY}")
	}
	f, _ := v.fields("results")
	read(f, "reply_to", &r.ReplyTo, value.boolean)
	queue := read(f, "queue", &r.Key, amqpName("prices", 0))
	exchange := read(f, "exchange", &r.Exchange, amqpName("results", 0))
	key := f.with("key", func(x value) {
		if text, ok := x.word(); ok && len(text) > maxName {
			x.fail("%s must have at most %d bytes", x.name, maxName)
		} else if ok && !queue {
			r.Key = text
		}
	})
	f.with("max_size", func(x value) {
		const largest = 512 << 20 // of RabbitMQ's max_message_size
		if n, ok := x.size(); ok && n > largest {
			x.fail("%s must be at most 512MiB", x.name)
		} else if ok {
			r.MaxSize = int(min(n, math.MaxInt32))
		}
	})
	f.finish()
	places := 0
	for _, set := range []bool{r.ReplyTo, queue, exchange} {
		if set {
			places++
		}
	}
	if places != 1 || key && !exchange {
		f.missing("results must have one of reply_to: true, queue: NAME, and exchange: NAME with key: KEY", "reply_to", "queue", "exchange")
	}
	return r, true
}
