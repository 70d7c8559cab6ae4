package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/reprisemq/reprise/bench/internal/brokers"
	"github.com/reprisemq/reprise/bench/internal/proc"
	"github.com/reprisemq/reprise/bench/internal/report"
	"github.com/reprisemq/reprise/bench/load"
)

// These are the metrics of all scenarios.
const (
	perSecond  = "msgs_per_s"
	p50        = "p50_us"
	p90        = "p90_us"
	p99        = "p99_us"
	p999       = "p999_us"
	worst      = "max_us"
	cpuPerMsg  = "cpu_us_per_msg"
	resident   = "rss_mib"
	peak       = "peak_mib"
	loadCPU    = "load_cpu_us_per_msg"
	calls      = "reads_and_writes_per_msg"
	switches   = "switches_per_msg"
	mebibyte   = 1 << 20
	perMessage = 1e6
)

// generate puts load on a broker from a separate process. It returns the metrics of the load and the resource use of
// the broker. If watch is not nil, generate calls it with each event, and watch may add metrics.
func (b *bench) generate(ctx context.Context, broker brokers.Broker, args []string, watch func(load.Event, report.Metrics) error) (report.Metrics, load.Result, error) {
	m := report.Metrics{}
	var before, after usage
	result, err := b.amqpload(ctx, append([]string{"-url", broker.URL()}, args...), func(e load.Event) (err error) {
		switch e {
		case load.Measuring:
			if err := proc.ResetPeak(broker.PID()); err != nil {
				return err
			}
			before, err = usageOf(broker)
		case load.Drained:
			if after, err = usageOf(broker); err == nil {
				err = memory(broker, m)
			}
		}
		if err == nil && watch != nil {
			err = watch(e, m)
		}
		return err
	})
	if err != nil {
		return nil, result, err
	}
	after.report(m, before, float64(result.Published), result.CPUSeconds, result.Seconds)
	m[perSecond] = result.DeliveredPerSecond
	if l := result.Latency; l != nil {
		m[p50], m[p90], m[p99], m[p999], m[worst] = l.P50, l.P90, l.P99, l.P999, l.Max
	}
	return m, result, nil
}

// usage is the resource use of the process of a broker, and the busy time of the machine, until now.
type usage struct {
	cpu, busy float64
	steps     proc.Steps
}

func usageOf(broker brokers.Broker) (u usage, err error) {
	if u.cpu, err = proc.CPU(broker.PID()); err != nil {
		return u, err
	}
	if u.busy, err = proc.Busy(); err != nil {
		return u, err
	}
	u.steps, err = proc.ReadSteps(broker.PID())
	return u, err
}

// report sets the metrics of the use since before, of n messages. The generator used the processor for the time load.
func (u usage) report(m report.Metrics, before usage, n, load, seconds float64) {
	m[cpuPerMsg] = (u.cpu - before.cpu) * perMessage / n
	m[calls] = float64(u.steps.Calls-before.steps.Calls) / n
	m[switches] = float64(u.steps.Switches-before.steps.Switches) / n
	m[loadCPU] = load * perMessage / n
	m[report.Others] = (u.busy - before.busy - (u.cpu - before.cpu) - load) / seconds
}

func memory(broker brokers.Broker, m report.Metrics) error {
	now, err := proc.MemoryOf(broker.PID())
	m[resident], m[peak] = float64(now.Resident)/mebibyte, float64(now.Peak)/mebibyte
	return err
}

// amqpload runs the load generator.
func (b *bench) amqpload(ctx context.Context, args []string, observe func(load.Event) error) (load.Result, error) {
	var result load.Result
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(b.tmp, "amqpload"), append(args, "-events")...)
	var out bytes.Buffer
	cmd.Stdout = &out
	events, err := cmd.StderrPipe()
	if err != nil {
		return result, err
	}
	if err := cmd.Start(); err != nil {
		return result, err
	}
	var problem error
	var said strings.Builder
	for lines := bufio.NewScanner(events); lines.Scan(); {
		switch e := load.Event(lines.Text()); e {
		case load.Measuring, load.Published, load.Drained:
			if err := observe(e); err != nil && problem == nil {
				problem = err
				cancel()
			}
		default:
			said.WriteString(lines.Text())
		}
	}
	err = cmd.Wait()
	switch {
	case problem != nil:
		return result, problem
	case err != nil:
		return result, fmt.Errorf("%w: %s", err, said.String())
	}
	return result, json.Unmarshal(out.Bytes(), &result)
}
