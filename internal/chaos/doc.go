// Package chaos tests workers and brokers whose processes, nodes and connections are killed while messages are in flight. Each test
// compares the processed messages with the published messages.
//
//	TestKilledBrokerKeepsConfirmedMessages   the embedded broker's process, with SIGKILL; package load publishes and counts
//	TestWorkerSurvivesKilledLeaders          nodes of a RabbitMQ cluster that lead the work queue
//	majority_test.go                         nodes of a RabbitMQ cluster until queues have no majority
//	TestGuarantees                           connections and the worker's process, at every frame of a message's life; see
//	                                         package explore
//
// Package replay kills processes of the archive. broker/internal/chaos cuts the power of a broker and damages its files.
package chaos
