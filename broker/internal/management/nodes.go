package management

import (
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/reprisemq/reprise/broker/internal/alarm"
	"github.com/reprisemq/reprise/broker/internal/node"
)

// nodeInfo is GET /api/nodes. Of what RabbitMQ tells of files and processes there is nothing here to be told.
type nodeInfo struct {
	Name            string        `json:"name"`
	Type            string        `json:"type"`
	Running         bool          `json:"running"`
	BeingDrained    bool          `json:"being_drained"`
	Partitions      []string      `json:"partitions"`
	OSPID           string        `json:"os_pid"`
	MemoryLimit     int64         `json:"mem_limit"`
	MemoryAlarm     bool          `json:"mem_alarm"`
	MemoryUsed      int64         `json:"mem_used"`
	MemoryDetails   details       `json:"mem_used_details"`
	MemoryStrategy  string        `json:"mem_calculation_strategy"`
	DiskFree        *int64        `json:"disk_free,omitempty"` // with a data directory, as far as anybody can tell
	DiskFreeDetails *details      `json:"disk_free_details,omitempty"`
	DiskFreeLimit   *int64        `json:"disk_free_limit,omitempty"`
	DiskFreeAlarm   bool          `json:"disk_free_alarm"`
	RatesMode       string        `json:"rates_mode"`
	Uptime          int64         `json:"uptime"`
	RunQueue        int           `json:"run_queue"`
	Processors      int           `json:"processors"`
	ExchangeTypes   []described   `json:"exchange_types"`
	AuthMechanisms  []described   `json:"auth_mechanisms"`
	Applications    []application `json:"applications"`
	Contexts        []webContext  `json:"contexts"`
	LogFiles        []string      `json:"log_files"`
	DBDir           string        `json:"db_dir"`
	ConfigFiles     []string      `json:"config_files"`
	EnabledPlugins  []string      `json:"enabled_plugins"`
	RabbitMQVersion string        `json:"rabbitmq_version"`
	ErlangVersion   string        `json:"erlang_version"`
	ErlangFull      string        `json:"erlang_full_version"`
	ClusterLinks    []string      `json:"cluster_links"` // no other nodes, so that there is no link
	churn
}

type application struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Version     string `json:"version"`
}

func (c *call) describeNode() nodeInfo {
	memory := c.node.Memory
	info := nodeInfo{
		Name: NodeName, Type: "ram", Running: true, Partitions: []string{}, OSPID: strconv.Itoa(os.Getpid()),
		MemoryLimit: memory.Limit(), MemoryAlarm: c.node.Alarms.Has(alarm.Memory),
		MemoryUsed: memory.Used(), MemoryDetails: c.h.rates.of("node", "memory", uint64(memory.Used())),
		MemoryStrategy: "messages", RatesMode: "basic", Uptime: time.Since(c.node.Started).Milliseconds(),
		Processors: runtime.GOMAXPROCS(0), ExchangeTypes: exchangeTypes(), AuthMechanisms: authMechanisms(),
		Applications: []application{{"reprise", "Reprise, an embedded broker that does as this version of RabbitMQ does", Version}},
		Contexts:     c.contexts(), LogFiles: []string{}, ConfigFiles: []string{}, EnabledPlugins: []string{"rabbitmq_management"},
		RabbitMQVersion: Version, ErlangVersion: runtime.Version(),
		ErlangFull:   runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH,
		ClusterLinks: []string{}, churn: c.churn(),
	}
	if disk := c.node.Disk; disk != nil {
		info.describeDisk(c, disk)
	}
	return info
}

func (i *nodeInfo) describeDisk(c *call, disk *node.Disk) {
	free, limit := disk.Free(), disk.Limit()
	i.Type, i.DBDir, i.DiskFreeLimit, i.DiskFreeAlarm = "disc", disk.Dir(), &limit, c.node.Alarms.Has(alarm.Disk)
	if free >= 0 {
		rate := c.h.rates.of("node", "disk_free", uint64(free))
		i.DiskFree, i.DiskFreeDetails = &free, &rate
	}
}
