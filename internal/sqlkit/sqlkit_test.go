package sqlkit_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

func TestTimesComeBack(t *testing.T) {
	if !sqlkit.TimeOf(sqlkit.Millis(time.Time{})).IsZero() {
		t.Error("no time became one")
	}
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Int64Range(-1e14, 1e14).Filter(func(n int64) bool { return n != 0 }).Draw(t, "ms")
		want := time.UnixMilli(ms)
		if got := sqlkit.TimeOf(sqlkit.Millis(want)); !got.Equal(want) || got.Location() != time.UTC {
			t.Errorf("%s became %s", want, got)
		}
	})
}
