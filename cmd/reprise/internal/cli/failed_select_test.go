package cli

import (
	"testing"

	"github.com/alecthomas/kong"

	"github.com/reprisemq/reprise/failed"
)

// The conditions on the command line have the same names as the conditions of the archive and its API.
func TestSelectionHasTheConditionsOfAFilter(t *testing.T) {
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
		case p.Flag == "" || p.Name == "state": // arguments; each command has a separate default of --state
		case f == nil:
			t.Errorf("there is no --%s", p.Flag)
		case f.Help != p.Help || f.PlaceHolder != p.Value || f.IsBool() != (p.Value == "") || f.IsCumulative() != p.Repeated:
			t.Errorf("--%s %s is %q, want %s: %q", p.Flag, f.PlaceHolder, f.Help, p.Value, p.Help)
		}
	}
	for name := range flags {
		t.Errorf("--%s is no condition of a failed.Filter", name)
	}
}
