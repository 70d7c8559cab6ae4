package staking

import (
	"encoding/json"
	"fmt"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/topology/preset"
)

// Kind is the event_type of an event. Each kind has a queue of its own.
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

// Kinds are all kinds, in the order of their numbers.
var Kinds = []Kind{Active, Unbonding, Withdraw, Expired, Stats, BtcInfo, ConfirmedInfo}

var kinds = map[Kind]struct {
	name, queue string
	schema      int // schema_version that is written
}{
	Active:        {"active staking", preset.StakingActiveQueue, 0},
	Unbonding:     {"unbonding", preset.StakingUnbondingQueue, 0},
	Withdraw:      {"withdraw", preset.StakingWithdrawQueue, 1}, // 0 had the staking transaction's hash alone
	Expired:       {"expired", preset.StakingExpiredQueue, 0},
	Stats:         {"stats", preset.StakingStatsQueue, 1}, // 0 had no is_overflow
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

// Queue returns the name of the kind's queue, "" if there is no such kind.
func (k Kind) Queue() string { return kinds[k].queue }

// Head begins every event. Encode fills it in. Programs from before August 2024
// write no schema_version: it is 0 then.
type Head struct {
	SchemaVersion int  `json:"schema_version"`
	EventType     Kind `json:"event_type"`
}

func (h *Head) stamp(k Kind) { *h = Head{SchemaVersion: kinds[k].schema, EventType: k} }

func (h *Head) is(k Kind) error {
	if h.EventType != k {
		return fmt.Errorf("staking: event_type is %d, expected is %d (%s)", h.EventType, k, k)
	}
	return nil
}

// Event is one of the seven, by pointer: &ActiveStaking{…}, and so on. Field
// names and order on the wire are those of the published schema. Amounts are in
// satoshi, timestamps in seconds since 1970, time locks in blocks.
type Event interface {
	Kind() Kind

	// Validate reports an event_type of another kind. reprise.JSON asks it, so
	// that what came into a wrong queue is parked.
	Validate() error

	stamp(k Kind)
}

// ActiveStaking says that a staking transaction is deep enough in the chain.
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

// UnbondingStaking says that a stake is being taken back before its time.
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

// WithdrawStaking says that a stake was paid out. Below schema version 1 it has
// the first field alone.
type WithdrawStaking struct {
	Head
	StakingTxHash  string `json:"staking_tx_hash_hex"`
	WithdrawTxHash string `json:"withdraw_tx_hash_hex"`
	BtcHeight      uint64 `json:"withdraw_tx_btc_height"`
	WithdrawTx     string `json:"withdraw_tx_hex"`
}

// ExpiredStaking says that the time lock of a stake has run out.
type ExpiredStaking struct {
	Head
	StakingTxHash string `json:"staking_tx_hash_hex"`
	TxType        string `json:"tx_type"` // "active" or "unbonding"
}

// StakingStats tells the statistics of a stake's new state.
type StakingStats struct {
	Head
	StakingTxHash    string `json:"staking_tx_hash_hex"`
	StakerPK         string `json:"staker_pk_hex"`
	FinalityProvider string `json:"finality_provider_pk_hex"`
	Value            uint64 `json:"staking_value"`
	State            string `json:"state"` // such as "active" or "unbonded"
	IsOverflow       bool   `json:"is_overflow"`
}

// BtcInfoUpdate tells the value locked as of the newest block.
type BtcInfoUpdate struct {
	Head
	Height         uint64 `json:"height"`
	ConfirmedTVL   uint64 `json:"confirmed_tvl"`
	UnconfirmedTVL uint64 `json:"unconfirmed_tvl"`
}

// ConfirmedInfoUpdate tells the value locked as of the newest confirmed block.
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

// Encode returns the body of an event, and fills in its Head.
func Encode(e Event) ([]byte, error) {
	e.stamp(e.Kind())
	return json.Marshal(e)
}

// Decode reads an event of whichever kind its event_type says. Fields that it
// does not know are left out: those of a newer schema.
func Decode(body []byte) (Event, error) {
	var head Head
	if err := json.Unmarshal(body, &head); err != nil {
		return nil, fmt.Errorf("staking: the body is no event: %w", err)
	}
	events := map[Kind]Event{
		Active: &ActiveStaking{}, Unbonding: &UnbondingStaking{}, Withdraw: &WithdrawStaking{}, Expired: &ExpiredStaking{},
		Stats: &StakingStats{}, BtcInfo: &BtcInfoUpdate{}, ConfirmedInfo: &ConfirmedInfoUpdate{},
	}
	e, known := events[head.EventType]
	if !known {
		return nil, fmt.Errorf("staking: event_type is %d: it goes from %d to %d", head.EventType, Active, ConfirmedInfo)
	}
	if err := json.Unmarshal(body, e); err != nil {
		return nil, fmt.Errorf("staking: the body is no %s event: %w", head.EventType, err)
	}
	return e, nil
}

// Message returns what to publish for an event, as all programs of the design do:
// to the queue by its name, plain text, never tried before.
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
		NoTimestamp: true, // the other programs send none
	}
}
