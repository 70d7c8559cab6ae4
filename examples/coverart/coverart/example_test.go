package coverart_test

import (
	"fmt"

	"github.com/reprisemq/reprise/examples/coverart/coverart"
)

// The keys are sorted, so that the index of a release is always the same document.
func ExampleIndexJSON() {
	release := &coverart.Release{GID: "403a79a8-0cbd-4a6c-b694-39a2cbd6dc75"}
	document, err := coverart.IndexJSON(release)
	fmt.Println(string(document), err)
	// Output: {"images":[],"release":"https://musicbrainz.org/release/403a79a8-0cbd-4a6c-b694-39a2cbd6dc75"} <nil>
}

// A handler passes the error of an invalid body to reprise.Park, so that the worker parks the message immediately.
func ExampleParseDelete() {
	for _, body := range []string{
		"829521842\n76df3287-6cda-33eb-8e9a-044b5e15ffdd",
		"index.json\n76df3287-6cda-33eb-8e9a-044b5e15ffdd\njpg",
		"829521842",
	} {
		d, err := coverart.ParseDelete([]byte(body))
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(d.ID, d.GID, d.Suffix)
	}
	// Output:
	// 829521842 76df3287-6cda-33eb-8e9a-044b5e15ffdd jpg
	// index.json 76df3287-6cda-33eb-8e9a-044b5e15ffdd jpg
	// delete event: body must have the lines id, gid[, suffix]: got 1 line
}
