package staking_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise/examples/staking/staking"
)

// bodies contains bodies exactly as the original programs publish them.
var bodies = []struct {
	event staking.Event
	body  string
}{
	{
		&staking.ActiveStaking{
			StakingTxHash: "aa", StakerPK: "bb", FinalityProvider: "cc", Value: 50000, StartHeight: 857910, StartTimestamp: 1724000000,
			TimeLock: 64000, OutputIndex: 1, StakingTx: "dd", IsOverflow: true,
		},
		`{"schema_version":0,"event_type":1,"staking_tx_hash_hex":"aa","staker_pk_hex":"bb","finality_provider_pk_hex":"cc","staking_value":50000,` +
			`"staking_start_height":857910,"staking_start_timestamp":1724000000,"staking_timelock":64000,"staking_output_index":1,"staking_tx_hex":"dd","is_overflow":true}`,
	},
	{
		&staking.UnbondingStaking{
			StakingTxHash: "aa", StartHeight: 858000, StartTimestamp: 1724060000, TimeLock: 1008, OutputIndex: 2, UnbondingTx: "bb", UnbondingTxHash: "cc",
		},
		`{"schema_version":0,"event_type":2,"staking_tx_hash_hex":"aa","unbonding_start_height":858000,"unbonding_start_timestamp":1724060000,` +
			`"unbonding_timelock":1008,"unbonding_output_index":2,"unbonding_tx_hex":"bb","unbonding_tx_hash_hex":"cc"}`,
	},
	{
		&staking.WithdrawStaking{StakingTxHash: "aa", WithdrawTxHash: "bb", BtcHeight: 859000, WithdrawTx: "cc"},
		`{"schema_version":1,"event_type":3,"staking_tx_hash_hex":"aa","withdraw_tx_hash_hex":"bb","withdraw_tx_btc_height":859000,"withdraw_tx_hex":"cc"}`,
	},
	{
		&staking.ExpiredStaking{StakingTxHash: "aa", TxType: "unbonding"},
		`{"schema_version":0,"event_type":4,"staking_tx_hash_hex":"aa","tx_type":"unbonding"}`,
	},
	{
		&staking.StakingStats{StakingTxHash: "aa", StakerPK: "bb", FinalityProvider: "cc", Value: 18446744073709551615, State: "active"},
		`{"schema_version":1,"event_type":5,"staking_tx_hash_hex":"aa","staker_pk_hex":"bb","finality_provider_pk_hex":"cc",` +
			`"staking_value":18446744073709551615,"state":"active","is_overflow":false}`,
	},
	{
		&staking.BtcInfoUpdate{Height: 857910, ConfirmedTVL: 1, UnconfirmedTVL: 2},
		`{"schema_version":0,"event_type":6,"height":857910,"confirmed_tvl":1,"unconfirmed_tvl":2}`,
	},
	{
		&staking.ConfirmedInfoUpdate{Height: 857910, TVL: 3},
		`{"schema_version":0,"event_type":7,"height":857910,"tvl":3}`,
	},
}

func TestEncodeAndDecodeOriginalBodies(t *testing.T) {
	for _, tc := range bodies {
		body, err := staking.Encode(tc.event)
		if err != nil || string(body) != tc.body {
			t.Errorf("%s: %v\n got %s\nwant %s", tc.event.Kind(), err, body, tc.body)
		}
		got, err := staking.Decode([]byte(tc.body))
		if diff := cmp.Diff(tc.event, got); diff != "" || err != nil {
			t.Errorf("%s: got %v, -want +got:\n%s", tc.event.Kind(), err, diff)
		}
	}
}

func TestMessageUsesQueueOfKind(t *testing.T) {
	want := map[staking.Kind]string{
		1: "active_staking_queue", 2: "unbonding_staking_queue", 3: "withdraw_staking_queue", 4: "expired_staking_queue",
		5: "staking_stats_queue", 6: "btc_info_queue", 7: "confirmed_info_queue",
	}
	for _, tc := range bodies {
		m, err := staking.Message(tc.event)
		must(t, err)
		if m.RoutingKey != want[tc.event.Kind()] || m.Exchange != "" || m.ContentType != "text/plain" || m.Headers["x-processing-attempts"] != int32(0) {
			t.Errorf("%s: got message %+v, want text/plain to %q with 0 attempts", tc.event.Kind(), m, want[tc.event.Kind()])
		}
	}
	if len(staking.Kinds) != len(want) || staking.Kind(0).Queue() != "" || staking.Kind(8).Queue() != "" {
		t.Errorf("kinds: got %v, want 1 to 7 and no queues for 0 and 8", staking.Kinds)
	}
}

// Decode must accept events from programs from before August 2024, and events with later schema versions.
func TestDecodeReadsOtherVersions(t *testing.T) {
	for body, want := range map[string]staking.Event{
		`{"event_type":3,"staking_tx_hash_hex":"aa"}`: &staking.WithdrawStaking{Head: staking.Head{EventType: 3}, StakingTxHash: "aa"},
		`{"schema_version":9,"event_type":7,"height":1,"tvl":2,"more":{"a":1}}`: &staking.ConfirmedInfoUpdate{
			Head: staking.Head{SchemaVersion: 9, EventType: 7}, Height: 1, TVL: 2,
		},
	} {
		got, err := staking.Decode([]byte(body))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: got %v, -want +got:\n%s", body, err, diff)
		}
	}
}

func TestDecodeRejectsInvalidEvents(t *testing.T) {
	for body, want := range map[string]string{
		``:                                    "cannot parse the body as an event",
		`<html>`:                              "cannot parse the body as an event",
		`{"height":1}`:                        "event_type must be 1 to 7: got 0",
		`{"event_type":8}`:                    "event_type must be 1 to 7: got 8",
		`{"event_type":6,"height":-1}`:        "cannot decode BTC info event",
		`{"event_type":"6"}`:                  "cannot parse the body as an event",
		`{"event_type":4,"tx_type":["once"]}`: "cannot decode expired event",
	} {
		if _, err := staking.Decode([]byte(body)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", body, err, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, tc := range bodies {
		f.Add([]byte(tc.body))
		for i := range tc.body {
			if _, err := staking.Decode([]byte(tc.body[:i])); err == nil {
				f.Errorf("event truncated after %d bytes accepted: %s", i, tc.body[:i])
			}
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := staking.Decode(body)
		if err != nil {
			return
		}
		if err := e.Validate(); err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(e)
		must(t, err)
		same, err := staking.Decode(again)
		if diff := cmp.Diff(e, same); diff != "" || err != nil {
			t.Fatal(err, diff)
		}
	})
}
