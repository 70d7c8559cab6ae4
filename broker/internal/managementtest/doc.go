// Package managementtest tests the management API of the embedded broker, and compares it with the API of RabbitMQ.
package managementtest
