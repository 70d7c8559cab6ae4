package cli

import (
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/archive/console"
)

func TestCheckURL(t *testing.T) {
	for _, x := range []struct {
		url, prefix string
		ok          bool
	}{
		{"", "/reprise", true},
		{"https://ops", "", true},
		{"https://ops/", "", true},
		{"https://ops/reprise", "/reprise/", true},
		{"https://ops/reprise/", "/reprise", true},
		{"https://ops/reprise", "", false},
		{"https://ops/", "/reprise", false},
	} {
		err := archiveServiceConfig{url: x.url, console: console.Config{Prefix: x.prefix}}.checkURL()
		if (err == nil) != x.ok || err != nil && !strings.Contains(err.Error(), x.prefix) {
			t.Errorf("url %q, prefix %q: got error %v", x.url, x.prefix, err)
		}
	}
}
