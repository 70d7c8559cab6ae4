package management

import (
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/reprisemq/reprise/broker/internal/alarm"
)

// describeNode returns the only element of GET /api/nodes. It omits the fields for Erlang processes and files.
func (c *call) describeNode() fields {
	memory := c.node.Memory
	info := fields{
		"name":                     NodeName,
		"type":                     "ram",
		"running":                  true,
		"being_drained":            false,
		"partitions":               []string{},
		"os_pid":                   strconv.Itoa(os.Getpid()),
		"mem_limit":                memory.Limit(),
		"mem_alarm":                c.node.Alarms.Has(alarm.Memory),
		"mem_calculation_strategy": "messages",
		"disk_free_alarm":          false,
		"rates_mode":               "basic",
		"uptime":                   time.Since(c.node.Started).Milliseconds(),
		"run_queue":                0,
		"processors":               runtime.GOMAXPROCS(0),
		"exchange_types":           exchangeTypes(),
		"auth_mechanisms":          authMechanisms(),
		"applications": []fields{{
			"name": "reprise", "description": "Reprise, an embedded broker that behaves like this version of RabbitMQ", "version": Version,
		}},
		"contexts":            c.contexts(),
		"log_files":           []string{},
		"db_dir":              "",
		"config_files":        []string{},
		"enabled_plugins":     []string{"rabbitmq_management"},
		"rabbitmq_version":    Version,
		"erlang_version":      runtime.Version(),
		"erlang_full_version": platform(),
		"cluster_links":       []string{}, // the node does not have peers
	}.with(c.h.rates.counted("node", "mem_used", uint64(memory.Used()))).with(c.churn())
	if disk := c.node.Disk; disk != nil {
		info.with(fields{
			"type": "disc", "db_dir": disk.Dir(), "disk_free_limit": disk.Limit(), "disk_free_alarm": c.node.Alarms.Has(alarm.Disk),
		})
		if free := disk.Free(); free >= 0 {
			info.with(c.h.rates.counted("node", "disk_free", uint64(free)))
		}
	}
	return info
}

// platform returns the value of the fields for the Erlang version.
func platform() string { return runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH }
