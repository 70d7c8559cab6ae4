package staking

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/reprisemq/reprise"
)

// firstBlock is the height of the first block with stakes.
const firstBlock = 857_910

// Lives simulates an indexer. It returns the events of n stakes, from active to withdrawn, with one stake per block.
// The events are grouped by kind. The last step of the stakes comes first, because programs must not rely on the order
// of events in different queues.
func Lives(n int) []Event {
	var events []Event
	for _, k := range []Kind{Withdraw, Expired, Unbonding, Active, Stats, BtcInfo, ConfirmedInfo} {
		for i := range n {
			events = append(events, event(k, i))
		}
	}
	return events
}

// troubles is the number of messages from Troubles.
const troubles = 2

// Troubles returns two messages that the services park. The first contains an event for an unknown stake. The body of
// the second is not an event.
func Troubles() ([]*reprise.Message, error) {
	lost, err := Message(&UnbondingStaking{StakingTxHash: hash("a stake that never was"), StartHeight: firstBlock})
	return []*reprise.Message{lost, message(Stats.Queue(), []byte("<html>502 Bad Gateway</html>"))}, err
}

// event returns the event of kind k for stake i or block i.
func event(k Kind, i int) Event {
	stake := hash(fmt.Sprintf("stake %d", i))
	height := uint64(firstBlock + i)
	value := uint64(50_000 + 1_000*i)
	switch k {
	case Active:
		return &ActiveStaking{
			StakingTxHash: stake, StakerPK: hash(fmt.Sprintf("staker %d", i%7)), FinalityProvider: hash("provider"),
			Value: value, StartHeight: height, StartTimestamp: 1_724_000_000 + 600*int64(i), TimeLock: 64_000, StakingTx: "02000000",
		}
	case Unbonding:
		return &UnbondingStaking{
			StakingTxHash: stake, StartHeight: height + 100, StartTimestamp: 1_724_060_000 + 600*int64(i), TimeLock: 1_008,
			UnbondingTx: "02000000", UnbondingTxHash: hash(fmt.Sprintf("unbonding %d", i)),
		}
	case Expired:
		return &ExpiredStaking{StakingTxHash: stake, TxType: "unbonding"}
	case Withdraw:
		return &WithdrawStaking{StakingTxHash: stake, WithdrawTxHash: hash(fmt.Sprintf("withdraw %d", i)), BtcHeight: height + 1_200, WithdrawTx: "02000000"}
	case Stats:
		return &StakingStats{
			StakingTxHash: stake, StakerPK: hash(fmt.Sprintf("staker %d", i%7)), FinalityProvider: hash("provider"), Value: value, State: "active",
		}
	case BtcInfo:
		return &BtcInfoUpdate{Height: height, ConfirmedTVL: value, UnconfirmedTVL: 2 * value}
	}
	return &ConfirmedInfoUpdate{Height: height, TVL: value}
}

func hash(of string) string {
	sum := sha256.Sum256([]byte(of))
	return hex.EncodeToString(sum[:])
}
