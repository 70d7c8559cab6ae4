// Package staking implements the queues of the Babylon staking indexer. The indexer reads the Bitcoin chain. For each
// change of a stake, it publishes an event to the queue for this kind of event. The services behind the queues book the
// events.
//
//	kind             queue                     event (JSON, event_type)
//	Active           active_staking_queue      ActiveStaking        1
//	Unbonding        unbonding_staking_queue   UnbondingStaking     2
//	Withdraw         withdraw_staking_queue    WithdrawStaking      3
//	Expired          expired_staking_queue     ExpiredStaking       4
//	Stats            staking_stats_queue       StakingStats         5
//	BtcInfo          btc_info_queue            BtcInfoUpdate        6
//	ConfirmedInfo    confirmed_info_queue      ConfirmedInfoUpdate  7
//
// If a service cannot book an event yet, it requeues the message, which is retried after 5 s. The header
// x-processing-attempts counts the retries:
//
//	indexer ─► {queue} ─► service ─► booked ─────────► ack
//	              ▲          └─────► not yet ─► copy, count + 1, confirmed ─► ack
//	              │                                │
//	              └── expires after 5 s ── {queue}_delay       or {queue}_failed,
//	                                                           after 10 retries
//
// [Design] declares the same queues, and uses the same headers, as the original programs of this design.
// Therefore these programs can share the queues with a program that uses Reprise. Each can receive a message that the
// other has requeued, and the count continues. In contrast to the original programs, Reprise keeps the properties of a
// requeued message, limits the number of retries, and reconnects.
//
// There are two ways to consume. A new program provides a handler. If the handler returns an error, the message is
// requeued ([Ledger.Handler] is an example):
//
//	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
//		Queue:    "active_staking_queue",
//		Strategy: staking.Design{}.Strategy(),
//		Handler: reprise.JSON(func(ctx context.Context, e staking.ActiveStaking, m *reprise.Delivery) error {
//			return db.Book(ctx, e)
//		}),
//	})
//
// A program that was written for the original client calls the operations of that client. A [Queue] provides equivalent
// operations:
//
//	original client                     this package
//	NewQueueClient(config, name)        Open(ctx, url, name, config)
//	SendMessage(ctx, body)              Send(ctx, body)
//	ReceiveMessages()                   Receive(ctx), once per message
//	QueueMessage.Body                   Received.Body
//	QueueMessage.Receipt                Received.Receipt
//	QueueMessage.RetryAttempts          Received.RetryAttempts
//	DeleteMessage(receipt)              Delete(receipt)
//	ReQueueMessage(ctx, message)        Requeue(receipt, reason)
//	                                    Park(receipt, reason)
//	Ping(ctx)                           Ping(ctx)
//	Stop()                              Stop(ctx)
//	GetQueueName()                      Name()
//
// [Demo] runs an indexer and services side by side.
package staking
