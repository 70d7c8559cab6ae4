package notification

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// hostile is a batch whose strings contain markup that a receiver could interpret.
var hostile = &batch{
	Counts: map[Kind]int64{NewGroup: 41, ReplayStopped: 1},
	Events: []Event{
		{Kind: NewGroup, Time: noon, Subject: "group/7", Title: "New error group in a|b", Detail: "<!channel> & <https://evil|click> [x](https://evil)", Messages: 2},
		{Kind: ReplayStopped, Time: noon, Subject: "replay/3", Title: "Replay 3 stopped"},
	},
}

func written(t *testing.T, f Format, b *batch) (v any) {
	t.Helper()
	text, err := body(f, "https://ops/reprise/", noon, b)
	check(t, err)
	check(t, json.Unmarshal(text, &v))
	return v
}

func parsed(t *testing.T, text string) (v any) {
	t.Helper()
	check(t, json.Unmarshal([]byte(text), &v))
	return v
}

func TestFormats(t *testing.T) {
	for f, want := range map[Format]string{
		JSON: `{"type": "reprise.notification", "timestamp": "2026-03-01T12:00:00Z", "data": {
			"text": "Reprise: 41 new error groups, 1 replay stopped", "url": "https://ops/reprise/", "counts": {"new-group": 41, "replay-stopped": 1},
			"events": [
				{"kind": "new-group", "time": "2026-03-01T12:00:00Z", "subject": "group/7", "title": "New error group in a|b",
					"detail": "<!channel> & <https://evil|click> [x](https://evil)", "messages": 2, "url": "https://ops/reprise/groups/7"},
				{"kind": "replay-stopped", "time": "2026-03-01T12:00:00Z", "subject": "replay/3", "title": "Replay 3 stopped", "url": "https://ops/reprise/replays/3"}]}}`,
		Slack: `{"text": "Reprise: 41 new error groups, 1 replay stopped", "blocks": [
			{"type": "section", "text": {"type": "mrkdwn", "verbatim": true, "text": "*Reprise: 41 new error groups, 1 replay stopped*"}},
			{"type": "section", "text": {"type": "mrkdwn", "verbatim": true, "text": "<https://ops/reprise/groups/7|New error group in a¦b>\n&lt;!channel&gt; &amp; &lt;https://evil|click&gt; [x](https://evil)"}},
			{"type": "section", "text": {"type": "mrkdwn", "verbatim": true, "text": "<https://ops/reprise/replays/3|Replay 3 stopped>"}},
			{"type": "section", "text": {"type": "mrkdwn", "verbatim": true, "text": "and 40 more: <https://ops/reprise/|Console>"}}]}`,
		Teams: `{"type": "message", "attachments": [{"contentType": "application/vnd.microsoft.card.adaptive", "content": {
			"$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4",
			"body": [
				{"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": "Reprise: 41 new error groups, 1 replay stopped", "weight": "Bolder", "size": "Medium"}]},
				{"type": "RichTextBlock", "inlines": [
					{"type": "TextRun", "text": "New error group in a|b", "selectAction": {"type": "Action.OpenUrl", "url": "https://ops/reprise/groups/7"}},
					{"type": "TextRun", "text": " <!channel> & <https://evil|click> [x](https://evil)", "isSubtle": true}]},
				{"type": "RichTextBlock", "inlines": [
					{"type": "TextRun", "text": "Replay 3 stopped", "selectAction": {"type": "Action.OpenUrl", "url": "https://ops/reprise/replays/3"}}]},
				{"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": "and 40 more"}]}],
			"actions": [{"type": "Action.OpenUrl", "title": "Console", "url": "https://ops/reprise/"}]}}]}`,
	} {
		if diff := cmp.Diff(parsed(t, want), written(t, f, hostile)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", f, diff)
		}
	}
}

// Slack accepts at most 50 blocks of 3000 characters each.
func TestSlackIsWithinLimits(t *testing.T) {
	b := &batch{Counts: map[Kind]int64{}}
	for _, k := range Kinds() {
		for range maxShown {
			b.Events = append(b.Events, Event{Kind: k, Subject: "queue/" + strings.Repeat("%", 255), Title: line(strings.Repeat("&", 9999)), Detail: line(strings.Repeat("<", 9999))})
		}
		b.Counts[k] = maxShown
	}
	blocks := written(t, Slack, b).(map[string]any)["blocks"].([]any)
	if len(blocks) > 50 {
		t.Errorf("got %d blocks, want at most 50", len(blocks))
	}
	for _, block := range blocks {
		if text := block.(map[string]any)["text"].(map[string]any)["text"].(string); len([]rune(text)) > 3000 {
			t.Errorf("got %d characters in a block, want at most 3000", len([]rune(text)))
		}
	}
}

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "",
		"\n two \nlines":               "two",
		"a\x00b\u202ec\xffd":           "a b c\uFFFDd",
		strings.Repeat("ä", 101):       strings.Repeat("ä", 100) + "…",
		"x" + strings.Repeat("ä", 100): "x" + strings.Repeat("ä", 99) + "…",
	} {
		if got := line(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestValidateWebhook(t *testing.T) {
	for _, w := range []Webhook{
		{URL: "ftp://hush", Format: JSON},
		{URL: "http://%zz/hush", Format: JSON},
		{URL: "https://h/hush", Format: "xml"},
		{URL: "https://h/hush", Format: JSON, Secret: "hush"},
		{URL: "https://h/hush", Format: JSON, Secret: "whsec_aHVzaA=="},
		{URL: "https://h/hush", Format: JSON, Events: []Kind{Test}},
	} {
		if err := w.Validate(); err == nil || strings.Contains(err.Error(), "hush") || strings.Contains(err.Error(), "aHVzaA") {
			t.Errorf("%+v: got error %v, want one without the secret", w, err)
		}
	}
	good := Webhook{URL: "https://h/hush", Format: Teams, Secret: secret, Events: Kinds()}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
}
