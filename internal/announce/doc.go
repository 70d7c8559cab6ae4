// Package announce makes workers visible to operators in other processes, and lets operators pause them.
//
// Guarantees:
//
//   - A message costs a few atomic additions, and a retry costs an entry in a report.
//   - A client uses one additional channel on the publishing connection, and one additional goroutine.
//   - A worker without permission to announce itself works as before.
//   - The agent reads the pause of a queue from the broker before each subscription on a new channel, after a command, and every
//     topology.StatusInterval. A lost command only delays a pause or its end.
//
// The files:
//
//	agent.go    the goroutine of a client: sends statuses, receives commands
//	session.go  one channel of the agent, and refusals of the broker on it
//	member.go   the state, the pauses and the status of a worker
//	pause.go    the pause of a queue, as stored in the broker
//	tally.go    counters
//	retries.go  reports of retries
//	build.go    versions of the program and of this module
//	watch.go    receives the statuses of all workers
//
// The package imports the packages topology, backoff and internal/{amqpconn,retry}.
package announce
