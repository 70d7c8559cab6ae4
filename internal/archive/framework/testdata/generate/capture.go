// Capture prints the first message of a queue as a fixture:
//
//	go run internal/archive/framework/testdata/generate/capture.go URL QUEUE LIBRARY VERSION SOURCE >internal/archive/framework/testdata/NAME.json
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/failed"
)

func main() {
	log.SetFlags(0)
	ctx := context.Background()
	c, err := reprise.Dial(ctx, os.Args[1], nil)
	if err != nil {
		log.Fatal(err)
	}
	var text []byte
	err = c.Peek(ctx, os.Args[2], 1, func(m *reprise.Delivery) {
		content := failed.ContentOf(m)
		headers, bad := failed.EncodeTable(content.Headers)
		if bad != nil {
			log.Fatal(bad)
		}
		properties, bad := failed.EncodeTable(content.Properties.Table())
		if bad != nil {
			log.Fatal(bad)
		}
		text, _ = json.MarshalIndent(map[string]any{
			"library": os.Args[3], "version": os.Args[4], "source": os.Args[5], "queue": m.Queue,
			"properties": json.RawMessage(properties), "headers": json.RawMessage(headers), "body": m.Body,
		}, "", "  ")
	})
	if err != nil || text == nil {
		log.Fatalf("no message: %v", err)
	}
	os.Stdout.Write(append(text, '\n'))
}
