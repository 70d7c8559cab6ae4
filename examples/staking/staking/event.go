package staking

import (
	"encoding/json"
	"fmt"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/preset"
)

// Kind is the event_type of an event. There is a queue for each kind.
type Kind int

// The kinds of events.
const (
	Active        Kind = 1
	Unbonding     Kind = 2
	Withdraw      Kind = 3
	Expired       Kind = 4
	Stats         Kind = 5
	BtcInfo       Kind = 6
	ConfirmedInfo Kind = 7
)

// Kinds lists all kinds in numerical order.
var Kinds = []Kind{Active, Unbonding, Withdraw, Expired, Stats, BtcInfo, ConfirmedInfo}

var kinds = map[Kind]struct {
	name, queue string
	schema      int // schema_version of published events
}{
	Active:        {"active staking", preset.StakingActiveQueue, 0},
	Unbonding:     {"unbonding", preset.StakingUnbondingQueue, 0},
	Withdraw:      {"withdraw", preset.StakingWithdrawQueue, 1}, // version 0 contained only the hash of the staking transaction
	Expired:       {"expired", preset.StakingExpiredQueue, 0},
	Stats:         {"stats", preset.StakingStatsQueue, 1}, // version 0 did not contain is_overflow
	BtcInfo:       {"BTC info", preset.StakingBtcInfoQueue, 0},
	ConfirmedInfo: {"confirmed info", preset.StakingConfirmedInfoQueue, 0},
}

// String returns a name such as "active staking".
func (k Kind) String() string {
	if known, ok := kinds[k]; ok {
		return known.name
	}
	return fmt.Sprintf("Kind(%d)", int(k))
}

// Queue returns the name of the queue for k, or "" if k is unknown.
func (k Kind) Queue() string { return kinds[k].queue }

// Head contains the first fields of every event, which Encode sets. Programs from before August 2024 do not write
// schema_version, so SchemaVersion is 0 in events from these programs.
type Head struct {
	SchemaVersion int  `json:"schema_version"`
	EventType     Kind `json:"event_type"`
}

func (h *Head) stamp(k Kind) { *h = Head{SchemaVersion: kinds[k].schema, EventType: k} }

func (h *Head) is(k Kind) error {
	if h.EventType != k {
		return fmt.Errorf("staking: event_type must be %[2]d (%[3]s): got %[1]d", h.EventType, k, k)
	}
	return nil
}

// Event is a pointer to one of the seven event types, such as &ActiveStaking{…}. The published schema defines the names
// and the order of the fields on the wire. Amounts are in satoshi, timestamps in seconds since the Unix epoch, and time
// locks in blocks.
type Event interface {
	Kind() Kind

	// Validate returns an error if the event_type differs from Kind. Handlers from reprise.JSON call Validate, so they
	// park a message that is in the wrong queue.
	Validate() error

	stamp(k Kind)
}

// ActiveStaking reports that a staking transaction has enough confirmations.
type ActiveStaking struct {
	Head
	StakingTxHash    string `json:"staking_tx_hash_hex"`
	StakerPK         string `json:"staker_pk_hex"`
	FinalityProvider string `json:"finality_provider_pk_hex"`
	Value            uint64 `json:"staking_value"`
	StartHeight      uint64 `json:"staking_start_height"`
	StartTimestamp   int64  `json:"staking_start_timestamp"`
	TimeLock         uint64 `json:"staking_timelock"`
	OutputIndex      uint64 `json:"staking_output_index"`
	StakingTx        string `json:"staking_tx_hex"`
	IsOverflow       bool   `json:"is_overflow"`
}

// UnbondingStaking reports that a staker ends a stake before its time lock expires.
type UnbondingStaking struct {
	Head
	StakingTxHash   string `json:"staking_tx_hash_hex"`
	StartHeight     uint64 `json:"unbonding_start_height"`
	StartTimestamp  int64  `json:"unbonding_start_timestamp"`
	TimeLock        uint64 `json:"unbonding_timelock"`
	OutputIndex     uint64 `json:"unbonding_output_index"`
	UnbondingTx     string `json:"unbonding_tx_hex"`
	UnbondingTxHash string `json:"unbonding_tx_hash_hex"`
}

// WithdrawStaking reports the payout of a stake. Before schema version 1, the event contained only StakingTxHash.
type WithdrawStaking struct {
	Head
	StakingTxHash  string `json:"staking_tx_hash_hex"`
	WithdrawTxHash string `json:"withdraw_tx_hash_hex"`
	BtcHeight      uint64 `json:"withdraw_tx_btc_height"`
	WithdrawTx     string `json:"withdraw_tx_hex"`
}

// ExpiredStaking reports that the time lock of a stake has expired.
type ExpiredStaking struct {
	Head
	StakingTxHash string `json:"staking_tx_hash_hex"`
	TxType        string `json:"tx_type"` // "active" or "unbonding"
}

// StakingStats reports the new state of a stake, for statistics.
type StakingStats struct {
	Head
	StakingTxHash    string `json:"staking_tx_hash_hex"`
	StakerPK         string `json:"staker_pk_hex"`
	FinalityProvider string `json:"finality_provider_pk_hex"`
	Value            uint64 `json:"staking_value"`
	State            string `json:"state"` // such as "active" or "unbonded"
	IsOverflow       bool   `json:"is_overflow"`
}

// BtcInfoUpdate reports the total value locked as of the newest block.
type BtcInfoUpdate struct {
	Head
	Height         uint64 `json:"height"`
	ConfirmedTVL   uint64 `json:"confirmed_tvl"`
	UnconfirmedTVL uint64 `json:"unconfirmed_tvl"`
}

// ConfirmedInfoUpdate reports the total value locked as of the newest confirmed block.
type ConfirmedInfoUpdate struct {
	Head
	Height uint64 `json:"height"`
	TVL    uint64 `json:"tvl"`
}

// Kind implements Event.
func (*ActiveStaking) Kind() Kind       { return Active }
func (*UnbondingStaking) Kind() Kind    { return Unbonding }
func (*WithdrawStaking) Kind() Kind     { return Withdraw }
func (*ExpiredStaking) Kind() Kind      { return Expired }
func (*StakingStats) Kind() Kind        { return Stats }
func (*BtcInfoUpdate) Kind() Kind       { return BtcInfo }
func (*ConfirmedInfoUpdate) Kind() Kind { return ConfirmedInfo }

// Validate implements Event.
func (e *ActiveStaking) Validate() error       { return e.is(e.Kind()) }
func (e *UnbondingStaking) Validate() error    { return e.is(e.Kind()) }
func (e *WithdrawStaking) Validate() error     { return e.is(e.Kind()) }
func (e *ExpiredStaking) Validate() error      { return e.is(e.Kind()) }
func (e *StakingStats) Validate() error        { return e.is(e.Kind()) }
func (e *BtcInfoUpdate) Validate() error       { return e.is(e.Kind()) }
func (e *ConfirmedInfoUpdate) Validate() error { return e.is(e.Kind()) }

// Encode sets the Head of an event and returns the message body.
func Encode(e Event) ([]byte, error) {
	e.stamp(e.Kind())
	return json.Marshal(e)
}

// Decode decodes an event. The event_type determines the type of the result. Decode ignores unknown fields, because a
// newer schema can add fields.
func Decode(body []byte) (Event, error) {
	var head Head
	if err := json.Unmarshal(body, &head); err != nil {
		return nil, fmt.Errorf("staking: cannot parse the body as an event: %w", err)
	}
	events := map[Kind]Event{
		Active: &ActiveStaking{}, Unbonding: &UnbondingStaking{}, Withdraw: &WithdrawStaking{}, Expired: &ExpiredStaking{},
		Stats: &StakingStats{}, BtcInfo: &BtcInfoUpdate{}, ConfirmedInfo: &ConfirmedInfoUpdate{},
	}
	e, known := events[head.EventType]
	if !known {
		return nil, fmt.Errorf("staking: event_type must be %[2]d to %[3]d: got %[1]d", head.EventType, Active, ConfirmedInfo)
	}
	if err := json.Unmarshal(body, e); err != nil {
		return nil, fmt.Errorf("staking: cannot decode %s event: %w", head.EventType, err)
	}
	return e, nil
}

// Message returns a message with the event e, in the form that all programs of this design use: the routing key is the
// queue name, the content type is text/plain, and the attempts header is 0.
func Message(e Event) (*reprise.Message, error) {
	body, err := Encode(e)
	if err != nil {
		return nil, err
	}
	return message(e.Kind().Queue(), body), nil
}

func message(queue string, body []byte) *reprise.Message {
	return &reprise.Message{
		RoutingKey:  queue,
		Body:        body,
		ContentType: "text/plain",
		Headers:     map[string]any{preset.StakingAttemptsHeader: int32(0)},
		NoTimestamp: true, // the original programs do not set a timestamp
	}
}
