package demo

import (
	_ "embed" // releases.json
	"encoding/json"
	"fmt"

	"github.com/reprisemq/reprise/examples/coverart"
)

// releasesJSON are real releases with the number of their real front cover.
// Edits are mostly left out.
//
//go:embed releases.json
var releasesJSON []byte

// Releases with a part to play.
const (
	// refusedGID is the release whose bucket the store refuses for ever: Dance
	// Fever (live at Madison Square Garden), by Florence + the Machine.
	refusedGID = "27dd50ed-1446-4f14-8cda-23fe2f476ccc"

	// unknownGID is a real release that the catalogue does not have: Mahal, by
	// Glass Beams.
	unknownGID = "5cbbe06e-ef56-414f-8b1a-00d9840d7119"
)

func loadCatalogue() (*coverart.Memory, error) {
	var m coverart.Memory
	if err := json.Unmarshal(releasesJSON, &m.Releases); err != nil {
		return nil, fmt.Errorf("demo: releases.json: %w", err)
	}
	return &m, nil
}

// titles names releases for people.
type titles map[string]string

func titlesOf(m *coverart.Memory) titles {
	t := titles{unknownGID: "(a release nobody knows)"}
	for _, r := range m.Releases {
		t[r.GID] = r.Title + " · " + r.Artist
	}
	return t
}

// of says what an event is about.
func (t titles) of(event string, body []byte) string {
	var gid string
	switch event {
	case "index":
		gid, _ = coverart.ParseIndex(body)
	case "delete":
		d, _ := coverart.ParseDelete(body)
		gid = d.GID
	case "move":
		m, _ := coverart.ParseMove(body)
		gid = m.Old
	}
	switch title, found := t[gid]; {
	case found:
		return title
	case gid != "":
		return gid
	}
	return "(a body that makes no sense)"
}
