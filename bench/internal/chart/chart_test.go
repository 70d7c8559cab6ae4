package chart_test

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/bench/internal/chart"
)

func TestDrawWritesSVGWithNamesOfLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "chart.svg")
	err := chart.Draw(file, "queues", "CPU µs per message", []chart.Line{
		{Name: "ours", Points: []chart.Point{{1, 1.06}, {10, 1.14}, {1000, 1}}},
		{Name: "theirs", Points: []chart.Point{{1, 17.7}, {1000, 27.5}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{">ours<", ">theirs<", ">queues<", ">CPU µs per message<", ">1000<", ">100<"} {
		if !strings.Contains(string(svg), text) {
			t.Errorf("SVG does not contain %s", text)
		}
	}
	for d := xml.NewDecoder(strings.NewReader(string(svg))); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
