package testhook

import "time"

// YoungQueue is the time after its declaration in which a client does not trust a queue, on any broker. nil: the default, on RabbitMQ.
var YoungQueue *time.Duration
