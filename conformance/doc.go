// Package conformance is one suite of behaviours that RabbitMQ has and the embedded broker must have.
//
// Each test runs against the embedded broker and against real RabbitMQ, so that what it claims of RabbitMQ is known to be
// true. Where versions of RabbitMQ differ, the embedded broker follows 4.3 and the test says what the others do.
//
// The tests are grouped by what they are about: dead-lettering, time to live, quorum queues, errors, framing, confirms,
// consumers.
package conformance
