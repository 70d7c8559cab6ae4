// Package conformance tests the behavior of RabbitMQ that the embedded broker must share.
//
// Each test runs against the embedded broker and against RabbitMQ, so that its assertions about RabbitMQ are verified. If
// the versions of RabbitMQ differ, the embedded broker follows 4.3, and the test also specifies the behavior of the other
// versions.
//
// Each file has the tests of one subject, such as dead-lettering, time to live, quorum queues, errors, framing, confirms and
// consumers.
package conformance
