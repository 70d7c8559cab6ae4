package ordered

import (
	"cmp"
	"time"
)

// Window is the prefetch of a partition. It must never decrease, also not from one version to the next. If a consumer
// stops and its successor has a smaller window, RabbitMQ changes the order of the messages when the successor also stops.
// RabbitMQ 4.3.6 delivered 3 4 5 1 2 after a window of 2.
const Window = 128

// HeldWindow is the prefetch of a held queue, the maximum of AMQP. The owner must receive all copies.
const HeldWindow = 65535

// Kind is the kind of a message in a held queue.
type Kind string

// Kinds of messages in a held queue.
const (
	Join   Kind = "join"   // a process has subscribed; the message informs the active consumer that it is active
	Claim  Kind = "claim"  // a process is active; it receives its claim after all messages that previous owners rely on
	Marker Kind = "marker" // the process that has received its claim is the owner, with an epoch
	Proof  Kind = "proof"  // the owner requeues it to prove that it still is the owner; it needs no publication, which an alarm can block
	Copy   Kind = "copy"   // a message of the partition
	Done   Kind = "done"   // the copies with the same Seq are done

	Request Kind = "request" // an operator requests an Act for a key
)

// Act is the content of a Request. It applies only to messages that were copied before the Request.
type Act string

// Acts.
const (
	RetryFirst Act = "retry"    // retry the first message of the key now
	ParkFirst  Act = "park"     // park the first message of the key
	ParkAll    Act = "park-all" // park all messages of the key
)

// Seq is the position of a message among the copies of its key.
type Seq struct{ Epoch, Number int64 }

// Compare compares positions.
func (s Seq) Compare(t Seq) int {
	return cmp.Or(cmp.Compare(s.Epoch, t.Epoch), cmp.Compare(s.Number, t.Number))
}

// Record is the content of the headers of a message in a held queue.
type Record struct {
	Kind  Kind
	Owner string // subscription of the publisher, or a unique name of a Request
	Epoch int64  // of the publisher, or the time of a Claim in milliseconds

	// Fields of a Copy, of Done and of a Request.
	Key string

	// Fields of a Copy and of Done.
	Seq     Seq
	Version int64     // the highest version of a Seq replaces the other versions
	Due     time.Time // time of the next attempt at a Copy
	Starts  int64     // number of consecutive attempts at a Copy that began and did not end

	// By is the operator of a Request, or the operator who parks the message of a Copy and all earlier messages of the key; "": none.
	By    string
	Act   Act   // of a Request
	Limit int64 // maximum number of messages that ParkAll parks; 0: all
}

// Delivery is a delivery from one of the queues of a partition.
type Delivery struct {
	Tag         uint64
	Redelivered bool
	Suspect     bool // the message may have terminated processes, because it was delivered several times
	Size        int
	Message     any // the message for the driver
}

// Action is an instruction of a Partition to its driver, which must carry out all actions in their order.
type Action interface{ action() }

type (
	// AckHeld acknowledges a delivery of the held queue.
	AckHeld struct{ Tag uint64 }

	// RequeueHeld requeues a delivery of the held queue.
	RequeueHeld struct{ Tag uint64 }

	// AckPartition acknowledges a delivery of the partition.
	AckPartition struct{ Tag uint64 }

	// Publish publishes a record to the held queue on the channel that consumes the held queue. Message is the content of a
	// Copy.
	Publish struct {
		Record  Record
		Message any
	}

	// Consume starts the consumer of the partition.
	Consume struct{}

	// Start requests an attempt. The driver calls Begin, and then Finished if the attempt may begin, or Abandon instead of Begin.
	// Crashes attempts at the message in a row began and did not end.
	Start struct {
		Entry   *Entry
		Crashes int
	}

	// Permit answers a call of Begin that has returned Pending.
	Permit struct {
		Entry      *Entry
		Permission Permission
	}

	// Park requests that the driver moves a message to the failed queue, and then calls Finished with an empty Result. The operator
	// By has requested it, or Crashes attempts at the message began and did not end, or its copy was Refused, or the limit of held
	// messages is reached.
	Park struct {
		Entry   *Entry
		Crashes int
		By      string
		Refused error
	}

	// Resign closes the channel of the partition, and then the channel of the held queue. Further calls have no effect.
	Resign struct{ Reason error }
)

func (AckHeld) action()      {}
func (RequeueHeld) action()  {}
func (AckPartition) action() {}
func (Publish) action()      {}
func (Consume) action()      {}
func (Start) action()        {}
func (Permit) action()       {}
func (Park) action()         {}
func (Resign) action()       {}

// Permission is the result of Begin.
type Permission int

const (
	// Denied means that the attempt must not begin. The Partition adds another Start action later.
	Denied Permission = iota

	// Granted means that the attempt may begin.
	Granted

	// Pending means that a Permit action follows, or the end of the ownership.
	Pending
)

// Result is the result of an attempt. The zero value means that the message was processed, or that the broker has confirmed its copy in
// the failed queue.
type Result struct {
	Retry     bool      // the message waits until Due
	Due       time.Time // if Retry is set
	Message   any       // if Retry is set: the content of the copy
	Abandoned bool      // the message stays unacknowledged, for the next owner
}
