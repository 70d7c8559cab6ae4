package failedcmd

import (
	"testing"

	"github.com/alecthomas/kong"

	"github.com/reprisemq/reprise/internal/archive/failed"
)

// Each flag has the name, the placeholder and the help of a condition of the archive.
func TestSelectionMatchesFilter(t *testing.T) {
	parser, err := kong.New(&selection{})
	if err != nil {
		t.Fatal(err)
	}
	flags := map[string]*kong.Flag{}
	for _, f := range parser.Model.Flags {
		flags[f.Name] = f
	}
	delete(flags, "help")
	for _, p := range failed.FilterParams() {
		f := flags[p.Flag]
		delete(flags, p.Flag)
		switch {
		case p.Flag == "" || p.Name == "state": // arguments, and --state, whose default depends on the command
		case f == nil:
			t.Errorf("flag --%s not found", p.Flag)
		case f.Help != p.Help || f.PlaceHolder != p.Value || f.IsBool() != (p.Value == "") || f.IsCumulative() != p.Repeated:
			t.Errorf("--%s %s: got help %q, want %s: %q", p.Flag, f.PlaceHolder, f.Help, p.Value, p.Help)
		}
	}
	for name := range flags {
		t.Errorf("--%s is not a condition of failed.Filter", name)
	}
}
