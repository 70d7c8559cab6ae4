// Package conformance tests the behavior of RabbitMQ that the embedded broker must share.
//
// Tests run against the embedded broker and, if available, against several versions of RabbitMQ, which verifies the
// assertions about RabbitMQ. If the versions of RabbitMQ differ, the embedded broker follows 4.3, and the test also
// specifies the behavior of the other versions.
//
// Each file tests one subject, such as dead-lettering, time to live, quorum queues, errors, framing, confirms and
// consumers.
package conformance
