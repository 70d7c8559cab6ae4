package management

import (
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/broker/internal/alarm"
)

// describeNode returns the only element of GET /api/nodes. It omits the fields for Erlang processes.
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
		"net_ticktime":        0,
		"disk_free_limit":     0, // without a data directory
	}.with(limitsOfProcess()).with(c.h.rates.counted("node", "fd_used", openFiles())).
		with(c.h.rates.counted("node", "sockets_used", uint64(len(c.node.Sessions())))).
		with(c.h.rates.counted("node", "proc_used", uint64(runtime.NumGoroutine()))).with(c.h.rates.counted("node", "mem_used", uint64(memory.Used()))).with(c.churn())
	info.with(c.collections())
	for _, name := range unusedCounters {
		info.with(c.h.rates.counted("node", name, 0))
	}
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

// unusedCounters are counters of earlier stores of RabbitMQ, which also RabbitMQ 4.3 reports as 0. Metricbeat drops a node without them.
var unusedCounters = []string{
	"io_read_count", "io_read_bytes", "io_read_avg_time", "io_write_count", "io_write_bytes", "io_write_avg_time", "io_sync_count", "io_sync_avg_time",
	"io_seek_count", "io_seek_avg_time", "io_reopen_count", "mnesia_ram_tx_count", "mnesia_disk_tx_count", "msg_store_read_count",
	"msg_store_write_count", "queue_index_read_count", "queue_index_write_count",
}

// collections returns the figures of the garbage collector, which the program has in common with its broker.
func (c *call) collections() fields {
	of := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/gc/heap/frees:bytes"}}
	metrics.Read(of)
	return c.h.rates.counted("node", "gc_num", of[0].Value.Uint64()).with(c.h.rates.counted("node", "gc_bytes_reclaimed", of[1].Value.Uint64()))
}

// maxGoroutines is the value of proc_total. RabbitMQ limits the number of Erlang processes; goroutines have no limit.
const maxGoroutines = 1 << 20

// limitsOfProcess returns the limits of the process. Clients and alerts compute shares of them, so they are not zero.
func limitsOfProcess() fields {
	files := MaxFiles()
	return fields{"fd_total": files, "sockets_total": files, "proc_total": maxGoroutines}
}

// unlimitedFiles is the number of files if there is no limit.
const unlimitedFiles = 1 << 20

// describeMemory returns the body of GET /api/nodes/{node}/memory. The categories of Erlang are zero.
func (c *call) describeMemory() fields {
	all := fields{}
	for _, name := range memoryCategories {
		all[name] = int64(0)
	}
	used := processMemory()
	all["binary"], all["connection_other"], all["queue_procs"] = c.node.Memory.Used(), c.node.Connections.Used(), c.node.Topology.Used()
	all["other_system"] = max(0, used-c.node.Memory.Used()-c.node.Connections.Used()-c.node.Topology.Used())
	return all.with(fields{"strategy": "allocated", "total": fields{"erlang": used, "rss": used, "allocated": used}})
}

var memoryCategories = strings.Fields(`connection_readers connection_writers connection_channels connection_other stream_queue_procs
	stream_queue_replica_reader_procs stream_queue_coordinator_procs queue_procs quorum_queue_procs quorum_queue_dlx_procs plugins
	metadata_store other_proc metrics mgmt_db quorum_ets mnesia metadata_store_ets other_ets binary msg_index code atom other_system
	allocated_unused reserved_unallocated`)

// relative returns the shares of the memory in percent.
func relative(memory fields) fields {
	total := memory["total"].(fields)["allocated"].(int64)
	shares := fields{"total": 100}
	for _, name := range memoryCategories {
		shares[name] = memory[name].(int64) * 100 / max(total, 1)
	}
	return shares
}

// platform returns the value of the fields for the Erlang version.
func platform() string { return runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH }
