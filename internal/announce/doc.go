// Package announce makes workers visible to operators in other processes, and lets operators pause them.
//
// Guarantees:
//
//   - The result of a message costs a few atomic additions, and a retry costs an entry in a report.
//   - A client has one additional channel on the publishing connection, and one additional goroutine. To read a pause,
//     it briefly opens another channel.
//   - A worker without permission to announce itself processes messages normally.
//   - The agent reads the pause of a queue from the broker before a worker subscribes on a new channel, and after a
//     command. If the user may declare the queue of the pause, the agent also reads the pause every
//     protocol.StatusInterval, so that a lost command only delays a pause or its end.
//
// The files:
//
//	agent.go    the goroutine of a client: sends statuses, receives commands
//	session.go  the agent on one connection, and refusals by the broker
//	member.go   the state, the pauses and the status of a worker
//	pause.go    the pause of a queue, as stored in the broker
//	tally.go    counters
//	retries.go  reports of retries
//	build.go    versions of the program and of this module
//	watch.go    receives the statuses of all workers
//
// The package imports the packages topology, backoff and internal/{amqpconn,retry}.
package announce
