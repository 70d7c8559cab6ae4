// Package brokertest tests the broker through its Go API and through AMQP connections.
package brokertest
