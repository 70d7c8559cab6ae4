// Package announce makes workers visible to operators in other processes, and lets operators pause them.
//
// It promises:
//
//   - the path of a message costs some atomic additions, and a retry the place in a report
//   - a client has one more channel, on its publishing connection, and one more goroutine
//   - a worker that may not announce itself works as before
//   - the pause of a queue is read from the broker: before each subscription on a new channel, after a command, and every
//     topology.StatusInterval. A lost command delays a pause or its end, and no more.
//
// The files:
//
//	agent.go    the goroutine of a client: statuses go out, commands come in
//	session.go  one channel of the agent, and what the broker refuses on it
//	member.go   a worker: its state, its pauses and its status
//	pause.go    the pause of a queue, in the broker
//	tally.go    counters
//	retries.go  reports of retries
//	build.go    versions
//
// It imports the packages topology, backoff and internal/{amqpconn,retry}.
package announce
