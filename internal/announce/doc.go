// Package announce makes workers visible to operators in other processes, and lets operators pause them.
//
// Guarantees:
//
//   - The path of a message costs some atomic additions, and a retry costs an entry in a report.
//   - A client has one more channel, on its publishing connection, and one more goroutine.
//   - A worker without permission to announce itself works as before.
//   - The agent reads the pause of a queue from the broker before each subscription on a new channel, after a command, and every
//     topology.StatusInterval. A lost command only delays a pause or its end.
//
// The files:
//
//	agent.go    the goroutine of a client: sends statuses, receives commands
//	session.go  one channel of the agent, and refusals of the broker on it
//	member.go   a worker: its state, its pauses and its status
//	pause.go    the pause of a queue, in the broker
//	tally.go    counters
//	retries.go  reports of retries
//	build.go    versions
//
// The package imports the packages topology, backoff and internal/{amqpconn,retry}.
package announce
