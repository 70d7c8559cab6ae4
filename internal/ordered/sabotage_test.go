package ordered_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// fault is a missing rule. A random life with the seed finds it soon.
type fault struct {
	name, file, rule, without string
	seed                      int
}

var faults = []fault{
	{"ack before the copy is back", "key.go", "	e.key.publishing = true\n", `	e.key.publishing = true
	if e.original != 0 {
	p.actions = append(p.actions, AckPartition{e.original})
	e.original = 0
	}
`, 1},
	{"load in the order of arrival of the newest version", "key.go", "slices.SortedFunc(maps.Keys(c), Seq.Compare)", "slices.SortedFunc(maps.Keys(c), func(s, t Seq) int { return int(c[s].last.Tag) - int(c[t].last.Tag) })", 1},
	{"load stale copies", "partition.go", " || a.Epoch < newest:", ":", 12},
	{"free a key without a Done record", "key.go", "	case len(k.entries) > 1 && k.entries[1].copy != 0:", "	case true:", 1},
	{"end only the copies with the Seq of the Done record", "key.go", "if i <= ended {", "if i <= ended && l.newest.Kind == Done {", 2},
	{"oldest version wins", "key.go", "r.Version > l.newest.Version", "r.Version < l.newest.Version", 2},
	{"ignore that another process was the owner", "partition.go", "case d.Redelivered && !(own && r.Kind == Proof):", "case false:", 1},
	{"acknowledge the marker", "partition.go", "		if r.Kind == Proof {\n", "		if r.Kind == Marker {\n			p.ackHeld(d.Tag)\n		}\n		if r.Kind == Proof {\n", 6},
	{"count a start that does not begin", "key.go", "		p.actions = append(p.actions, Start{head, int(head.starts)})\n", "		head.starts++\n		p.actions = append(p.actions, Start{head, int(head.starts)})\n", 1},
	{"continue after a refused copy", "partition.go", "		p.park(e, Park{Refused: reason})\n", "		p.advance(now, e.key)\n", 1},
	{"own without a marker", "partition.go", "	for _, a := range arrived {\n		if a.Kind == Marker {\n", "	for _, a := range arrived {\n		if a.Kind == Marker && false {\n", 12},
	{"load deliveries of an earlier term", "partition.go", "slices.ContainsFunc(p.arrived, func(a arrival) bool { return a.Record == r })", "false", 9},
	{"keep the copy of a finished attempt", "key.go", "	if r.Kind == Done {\n		p.ackHeld(d.Tag)\n", "	if r.Kind == Done {\n", 1},
	{"start two messages of a key", "key.go", "		if k.publishing || head.copy == 0 && !p.yields(now, k) || !p.copyFollower(now, k) {", "		if len(k.entries) > 1 && k.entries[1].state == waiting && p.phase == owning {\n			k.entries[1].state = started\n			p.running++\n			p.actions = append(p.actions, Start{k.entries[1], 0})\n		}\n		if k.publishing || head.copy == 0 || !p.copyFollower(now, k) {", 1},
	{"apply a request to messages that were copied later", "request.go", "if target.copy != 0 && target.first < before {", "if target.copy != 0 {", 1},
	{"load a request as if it was stored last", "partition.go", "p.addRequest(a.Tag, a.Record, i)", "p.addRequest(a.Tag, a.Record, i+math.MaxInt32)", 1},
	{"park the message behind the first one", "key.go", "	case k.parkedBy() != \"\":\n		p.park(head, Park{By: k.parkedBy()})", "	case head.by != \"\" || len(k.entries) > 1 && k.entries[1].by != \"\":\n		p.park(head, Park{By: k.parkedBy()})", 1},
	{"lose the retry of a full partition", "key.go", "	case !k.crowded:\n", "	case false:\n", 1},
}

// rateFaults are found by TestModelWithRate.
var rateFaults = []fault{
	{"start above the rate", "partition.go", "	p.rates.take(now, e.key.name)\n	return Granted", "	return Granted", 1},
	{"start above the rate after a crash", "key.go", "		p.rates.take(now, e.key.name)\n", "", 1},
	{"forget the rate of a key too early", "rate.go", "r.Every*time.Duration(r.Burst) {", "r.Every/2 {", 1},
	{"park a key that waits for its rate", "key.go", " && (k.parks || !p.slowed(k)):", ":", 1},
}

// TestModelFindsFaults removes one rule after the other from the package, and checks that a test fails.
func TestModelFindsFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the package several times")
	}
	for test, faults := range map[string][]fault{"TestModel": faults, "TestModelWithRate": rateFaults} {
		for _, f := range faults {
			t.Run(strings.ReplaceAll(f.name, " ", "-"), func(t *testing.T) {
				out, err := f.run(t, test)
				if err == nil || !strings.Contains(out, "[rapid]") {
					t.Errorf("%s did not find the fault: %v\n%.2000s", test, err, out)
					return
				}
				_, found, _ := strings.Cut(out, "[rapid] failed after ")
				line, _, _ := strings.Cut(found, "\n")
				t.Log(line)
			})
		}
	}
}

// run runs a test without the rule.
func (f fault) run(t *testing.T, test string) (output string, err error) {
	t.Helper()
	path, err := filepath.Abs(f.file)
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(source), f.rule) != 1 {
		t.Fatalf("%s must contain the rule once: %q", f.file, f.rule)
	}
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, f.file), filepath.Join(dir, "overlay.json")
	list, _ := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	for name, content := range map[string]string{changed: strings.Replace(string(source), f.rule, f.without, 1), overlay: string(list)} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("go", "test", "-overlay", overlay, "-run", test+"$", "-rapid.checks=2000", "-rapid.seed="+strconv.Itoa(f.seed), "-rapid.nofailfile", "-rapid.shrinktime=1ms", ".").CombinedOutput()
	return string(out), err
}
