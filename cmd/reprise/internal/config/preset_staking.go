package config

import (
	"cmp"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/topology/preset"
)

var stakingDesign = design{
	name: "staking",
	queues: []string{
		preset.StakingActiveQueue, preset.StakingUnbondingQueue, preset.StakingWithdrawQueue, preset.StakingExpiredQueue,
		preset.StakingStatsQueue, preset.StakingBtcInfoQueue, preset.StakingConfirmedInfoQueue,
	},
	settings: stakingSettings,
	refused: []refusal{
		{"backoff", "means nothing with this preset, where every retry waits retry_delay: write retry_delay: 5s beside preset:"},
	},
}

type staking struct{ preset.Staking }

func stakingSettings(f *fields) system {
	var p staking
	f.waitInto("retry_delay", &p.RetryDelay)
	f.queueType(&p.QueueType)
	return p
}

func (p staking) worker(queue string) (reprise.WorkerConfig, error) {
	return reprise.WorkerConfig{
		Queue:    queue,
		Strategy: p.Strategy(),
		Policy:   reprise.Policy{Backoff: backoff.Fixed(cmp.Or(p.RetryDelay, preset.StakingRetryDelay))},
	}, p.Validate()
}
