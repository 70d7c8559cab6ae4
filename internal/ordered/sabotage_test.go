package ordered_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestModelFindsFaults removes one rule after the other from the package, and checks that TestModel fails.
func TestModelFindsFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the package several times")
	}
	for _, fault := range []struct{ name, file, rule, without string }{
		{"ack before the copy is back", "key.go", "	e.key.publishing = true\n", `	e.key.publishing = true
	if e.original != 0 {
		p.actions = append(p.actions, AckPartition{e.original})
		e.original = 0
	}
`},
		{"load in the order of arrival of the newest version", "key.go", "slices.SortedFunc(maps.Keys(c), Seq.Compare)", "slices.SortedFunc(maps.Keys(c), func(s, t Seq) int { return int(c[s].last.Tag) - int(c[t].last.Tag) })"},
		{"load stale copies", "partition.go", " || a.Epoch < newest:", ":"},
		{"free a key without a Done record", "key.go", "	case len(k.entries) > 1 && k.entries[1].copy != 0:", "	case true:"},
		{"end only the copies with the Seq of the Done record", "key.go", "if i <= ended {", "if i <= ended && l.newest.Kind == Done {"},
		{"oldest version wins", "key.go", "r.Version > l.newest.Version", "r.Version < l.newest.Version"},
		{"ignore that another process was the owner", "partition.go", "case d.Redelivered && !(own && r.Kind == Proof):", "case false:"},
		{"acknowledge the marker", "partition.go", "		if r.Kind == Proof {\n", "		if r.Kind == Marker {\n			p.ackHeld(d.Tag)\n		}\n		if r.Kind == Proof {\n"},
		{"continue after a refused copy", "partition.go", "		p.park(e, Park{Refused: reason})\n", "		p.advance(now, e.key)\n"},
		{"own without a marker", "partition.go", "	for _, a := range arrived {\n		if a.Kind == Marker {\n", "	for _, a := range arrived {\n		if a.Kind == Marker && false {\n"},
		{"load deliveries of an earlier term", "partition.go", "slices.ContainsFunc(p.arrived, func(a arrival) bool { return a.Record == r })", "false"},
		{"acknowledge markers before stale copies", "partition.go", "slices.Concat(stale, p.useless, signs)", "slices.Concat(signs, stale, p.useless)"},
		{"publish two copies of a key", "key.go", "if k.publishing || head.copy == 0", "if head.copy == 0"},
		{"keep the copy of a finished attempt", "key.go", "	if r.Kind == Done {\n		p.ackHeld(d.Tag)\n", "	if r.Kind == Done {\n"},
		{"start two messages of a key", "key.go", "		if k.publishing || head.copy == 0 || !p.copyFollower(now, k) {", "		if len(k.entries) > 1 && k.entries[1].state == waiting && p.phase == owning {\n			k.entries[1].state = started\n			p.running++\n			p.actions = append(p.actions, Start{k.entries[1]})\n		}\n		if k.publishing || head.copy == 0 || !p.copyFollower(now, k) {"},
		{"apply a request to messages that were copied later", "request.go", "if target.copy != 0 && target.first < before {", "if target.copy != 0 {"},
		{"park more messages than requested", "request.go", "int64(i) < r.Limit", "i >= 0"},
		{"load a request as if it was stored last", "partition.go", "p.addRequest(a.Tag, a.Record, i)", "p.addRequest(a.Tag, a.Record, i+math.MaxInt32)"},
		{"park the message behind the first one", "key.go", "	case k.parkedBy() != \"\":\n		p.park(head, Park{By: k.parkedBy()})", "	case head.by != \"\" || len(k.entries) > 1 && k.entries[1].by != \"\":\n		p.park(head, Park{By: k.parkedBy()})"},
		{"lose the retry of a full partition", "key.go", "	case !k.crowded:\n", "	case false:\n"},
	} {
		t.Run(strings.ReplaceAll(fault.name, " ", "-"), func(t *testing.T) {
			path, err := filepath.Abs(fault.file)
			if err != nil {
				t.Fatal(err)
			}
			source, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Count(string(source), fault.rule) != 1 {
				t.Fatalf("%s must contain the rule once: %q", fault.file, fault.rule)
			}
			dir := t.TempDir()
			changed, overlay := filepath.Join(dir, fault.file), filepath.Join(dir, "overlay.json")
			list, _ := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
			for name, content := range map[string]string{changed: strings.Replace(string(source), fault.rule, fault.without, 1), overlay: string(list)} {
				if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, err := exec.Command("go", "test", "-overlay", overlay, "-run", "TestModel$", "-rapid.checks=40000", "-rapid.seed=3", "-rapid.nofailfile", "-rapid.shrinktime=1ms", ".").CombinedOutput()
			if err == nil || !strings.Contains(string(out), "[rapid]") {
				t.Errorf("TestModel did not find the fault: %v\n%.2000s", err, out)
				return
			}
			_, found, _ := strings.Cut(string(out), "[rapid] failed after ")
			line, _, _ := strings.Cut(found, "\n")
			t.Log(line)
		})
	}
}
