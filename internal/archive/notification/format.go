package notification

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"
)

// document is a message in the JSON format, in the envelope of Standard Webhooks.
type document struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      data      `json:"data"`
}

type data struct {
	Text   string         `json:"text"` // summary
	URL    string         `json:"url"`  // URL of the console
	Counts map[Kind]int64 `json:"counts"`
	Events []Event        `json:"events"`
}

// documentType is the value of document.Type.
const documentType = "reprise.notification"

// body returns a message with the events of a batch. console is the URL of the console.
func body(f Format, console string, at time.Time, b *batch) ([]byte, error) {
	console = strings.TrimSuffix(console, "/")
	d := data{Text: summary(b), URL: console + "/", Counts: b.Counts}
	for _, e := range b.Events {
		e.URL = console + e.page()
		d.Events = append(d.Events, e)
	}
	switch f {
	case Slack:
		return json.Marshal(slackMessage(d))
	case Teams:
		return json.Marshal(teamsMessage(d))
	}
	return json.Marshal(document{documentType, at.UTC(), d})
}

// summary returns the number of events of each kind, or the title of a single event.
func summary(b *batch) string {
	if len(b.Events) == 1 && b.Counts[b.Events[0].Kind] == 1 {
		return "Reprise: " + b.Events[0].Title
	}
	var parts []string
	for _, k := range append(Kinds(), Test) {
		switch n := b.Counts[k]; {
		case n == 1:
			parts = append(parts, "1 "+plurals[k][0])
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d %s", n, plurals[k][1]))
		}
	}
	return "Reprise: " + strings.Join(parts, ", ")
}

// omitted counts the events that the message does not list.
func (d *data) omitted() (n int64) {
	for _, counted := range d.Counts {
		n += counted
	}
	return n - int64(len(d.Events))
}

// maxLines is the maximum number of events in a message for Slack or Teams. Slack accepts at most 50 blocks.
const maxLines = 20

// lines calls add for each event to show in the message. It returns a final line about the omitted events, or "".
func (d *data) lines(add func(Event)) string {
	shown := d.Events[:min(len(d.Events), maxLines)]
	for _, e := range shown {
		add(e)
	}
	if more := d.omitted() + int64(len(d.Events)-len(shown)); more > 0 {
		return fmt.Sprintf("and %d more", more)
	}
	return ""
}

// slackText escapes the characters that are special in Slack messages, for example in links and mentions.
var slackText = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

func slackMessage(d data) any {
	section := func(text string) map[string]any {
		return map[string]any{"type": "section", "text": map[string]any{"type": "mrkdwn", "verbatim": true, "text": text}}
	}
	blocks := []any{section("*" + slackText.Replace(d.Text) + "*")}
	more := d.lines(func(e Event) {
		text := fmt.Sprintf("<%s|%s>", slackText.Replace(e.URL), strings.ReplaceAll(slackText.Replace(e.Title), "|", "¦"))
		if e.Detail != "" {
			text += "\n" + slackText.Replace(e.Detail)
		}
		blocks = append(blocks, section(text))
	})
	if more != "" {
		more += ": "
	}
	blocks = append(blocks, section(fmt.Sprintf("%s<%s|Console>", more, slackText.Replace(d.URL))))
	return map[string]any{"text": slackText.Replace(d.Text), "blocks": blocks}
}

// teamsMessage returns an Adaptive Card. Its strings are text runs, in which Teams does not interpret Markdown. An
// error message therefore cannot become a link.
func teamsMessage(d data) any {
	run := func(text string, more map[string]any) map[string]any {
		r := map[string]any{"type": "TextRun", "text": text}
		maps.Copy(r, more)
		return r
	}
	block := func(runs ...any) map[string]any {
		return map[string]any{"type": "RichTextBlock", "inlines": runs}
	}
	elements := []any{block(run(d.Text, map[string]any{"weight": "Bolder", "size": "Medium"}))}
	more := d.lines(func(e Event) {
		runs := []any{run(e.Title, map[string]any{"selectAction": map[string]any{"type": "Action.OpenUrl", "url": e.URL}})}
		if e.Detail != "" {
			runs = append(runs, run(" "+e.Detail, map[string]any{"isSubtle": true}))
		}
		elements = append(elements, block(runs...))
	})
	if more != "" {
		elements = append(elements, block(run(more, nil)))
	}
	return map[string]any{
		"type": "message",
		"attachments": []any{map[string]any{
			"contentType": "application/vnd.microsoft.card.adaptive",
			"content": map[string]any{
				"$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4",
				"body":    elements,
				"actions": []any{map[string]any{"type": "Action.OpenUrl", "title": "Console", "url": d.URL}},
			},
		}},
	}
}
