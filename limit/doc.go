// Package limit limits the rate, or the number, of attempts of all processes together, without a database.
//
//	payments, err := limit.New(client, limit.Config{Name: "payments", Rate: 100})
//	…
//	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{Queue: "orders", Handler: h, Limiter: payments})
//
// Every worker of every process that uses the name "payments" shares the 100 attempts per second, whatever its queue.
//
// # How it works
//
// The consumers of the queue reprise.limits.NAME are the processes. Its single active consumer divides the limit. Every 2
// seconds, each process sends what it could use, and receives a share:
//
//	process ── demand, held share ──► reprise.limits.payments ──► one of the processes
//	        ◄── share ── reprise.limits.payments.ID ◄──
//
// A process receives more only after the others have confirmed that they use less. A share ends after 6 seconds without an
// answer. So the limit also holds while processes come, go, stop, or lose their connections.
//
// # Promise
//
//   - Rate: in each period of w seconds, at most Rate × w attempts start, plus one for each process, or plus the attempts of 10 ms
//     if they are more.
//   - Concurrency: at most that many attempts run, unless a process loses its connection for more than 9 seconds while its
//     attempts continue, because nobody can see them.
//   - A process that needs more receives its fair share within a few round trips, and unused shares are divided among the others.
//     After the dividing process has gone, no share grows for 9 seconds.
//   - While the broker blocks publishers, shares stay as they are. If it needs more than 3 seconds for a message, there are no
//     answers, and after 6 seconds no attempts start.
//
// Without a share, Wait returns an error, and the worker pauses; the reason is in its status.
package limit
