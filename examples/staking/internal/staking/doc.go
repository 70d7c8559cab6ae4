// Package staking is the queues of the Babylon staking indexer: an indexer reads
// the Bitcoin chain and tells, in a queue for each kind of event, what has become
// of stakes; services behind the queues book it.
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
// A message that cannot be booked yet is put back, and comes again after 5 s. Its
// header x-processing-attempts counts how often that was:
//
//	indexer ─► {queue} ─► service ─► booked ─────────► ack
//	              ▲          └─────► not now ──► copy, count + 1, confirmed ─► ack
//	              │                                │
//	              └── expires after 5 s ── {queue}_delay       or {queue}_failed, when
//	                                                           it was put back 10 times
//
// preset.Staking has it to the letter, so that the design's own programs, and
// those that others wrote for it, share the queues: what one side puts back the
// other may receive, and the count goes on. Unlike there, a message keeps its
// properties when it is put back, there is an end to putting back, and
// connections come back.
//
// There are two ways to consume. A new program has a handler, and an error puts
// the message back ([Ledger.Handler] is one):
//
//	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
//		Queue:    preset.StakingActiveQueue,
//		Strategy: preset.Staking{}.Strategy(),
//		Handler: reprise.JSON(func(ctx context.Context, e staking.ActiveStaking, m *reprise.Message) error {
//			return db.Book(ctx, e)
//		}),
//	})
//
// A program that was written for the design's own client has operations, and a
// [Queue] gives it the same:
//
//	there                               here
//	NewQueueClient(config, name)        Open(ctx, url, name, config)
//	SendMessage(ctx, body)              Send(ctx, body)
//	ReceiveMessages()                   Receive(ctx), again and again
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
