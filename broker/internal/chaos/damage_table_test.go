package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

const (
	damageFile    = "testdata/damage.txt"
	damageCommand = "go test ./broker/internal/chaos -run TestDamage -chaos.damage -update"
)

// documentDamage compares the results with the table in testdata/damage.txt, which docs/durability.md summarizes. If the test
// has damaged the files only at a sample of places, the results may be a subset of the table.
func documentDamage(t *testing.T, found map[string]map[string]bool) {
	t.Helper()
	old, err := os.ReadFile(damageFile)
	if err != nil {
		t.Fatal(err)
	}
	if !*allDamage {
		was := readDamage(string(old))
		for cell, outcomes := range found {
			for outcome := range outcomes {
				if !was[cell][outcome] {
					t.Errorf("%s does not contain the result %s: %s (if the result is correct, run %s)", damageFile, cell, outcome, damageCommand)
				}
			}
		}
		return
	}
	switch table := damageTable(found); {
	case table == string(old):
	case *update:
		if err := os.WriteFile(damageFile, []byte(table), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s differs from the results (if they are correct, run %s)\n%s", damageFile, damageCommand, table)
	}
}

func damageKinds() (kinds []string) {
	for _, d := range damages() {
		if !slices.Contains(kinds, d.kind) {
			kinds = append(kinds, d.kind)
		}
	}
	return kinds
}

func damageTable(found map[string]map[string]bool) string {
	kinds := damageKinds()
	var b strings.Builder
	fmt.Fprintf(&b, "| file | broker was | %s |\n|---|---|%s\n", strings.Join(kinds, " | "), strings.Repeat("---|", len(kinds)))
	rows := make(map[string]bool)
	for cell := range found {
		words := strings.Split(cell, "|")
		rows[words[0]+"|"+words[1]] = true
	}
	for _, row := range slices.SortedFunc(maps.Keys(rows), func(a, b string) int { return cmp.Compare(a, b) }) {
		file, ended, _ := strings.Cut(row, "|")
		fmt.Fprintf(&b, "| `%s` | %s |", file, ended)
		for _, kind := range kinds {
			fmt.Fprintf(&b, " %s |", strings.Join(slices.Sorted(maps.Keys(found[row+"|"+kind])), ", "))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// readDamage parses the output of damageTable.
func readDamage(table string) map[string]map[string]bool {
	found := make(map[string]map[string]bool)
	for line := range strings.Lines(table) {
		words := strings.Split(strings.TrimSpace(line), " | ")
		file, ok := strings.CutPrefix(words[0], "| `")
		if !ok {
			continue
		}
		for i, kind := range damageKinds() {
			outcomes := make(map[string]bool)
			for outcome := range strings.SplitSeq(strings.Trim(words[i+2], " |"), ", ") {
				outcomes[outcome] = true
			}
			found[strings.TrimSuffix(file, "`")+"|"+words[1]+"|"+kind] = outcomes
		}
	}
	return found
}
