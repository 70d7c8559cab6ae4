package editor

import (
	"runtime"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/archive/console/internal/show"
	"github.com/reprisemq/reprise/internal/archive/failed"
)

// A small body cannot lead to a large page or use a lot of memory.
func TestBodyLimits(t *testing.T) {
	const depth = 9000
	nested := strings.Repeat("[", depth) + strings.Repeat("1,", depth) + "1" + strings.Repeat("]", depth)
	for name, c := range map[string]failed.Content{
		"nested": {Body: []byte(nested)},
		"fields": {Body: []byte(strings.Repeat("&", show.MaxBodyShown)), Properties: failed.Properties{ContentType: "application/x-www-form-urlencoded"}},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		v := show.ViewBody(c)
		editableBody(c.Body)
		diffText(c.Body)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 16<<20 {
			t.Errorf("%s: body of %d bytes allocated %d bytes, want at most %d", name, len(c.Body), took, 16<<20)
		}
		if len(v.Fields) > show.MaxFields || name == "fields" && !v.Cut {
			t.Errorf("%s: got %d fields, want at most %d, cut is %v", name, len(v.Fields), show.MaxFields, v.Cut)
		}
	}
}
