package protocol_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/protocol"
)

// A report is unchanged after it is encoded and decoded. ReadRetryReport rejects values that a database or the console does
// not support.
func TestReadRetryReport(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r := protocol.RetryReport{Queue: "orders", Retries: []protocol.Retry{{MessageID: "1", Wait: "w", Attempt: 1, Failed: at, Due: at.Add(time.Hour), Error: strings.Repeat("ä", 4096)}}}
	body, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, ok := protocol.ReadRetryReport(body)
	if !ok || len(got.Retries) != 1 || got.Retries[0].MessageID != "1" || len(got.Retries[0].Error) > 4096 || !got.Retries[0].Due.Equal(at.Add(time.Hour)) {
		t.Errorf("decoded report: got %+v, %t, want message 1 with an error of at most 4096 bytes", got, ok)
	}
	bad := got
	bad.Version = 1
	bad.Retries = append(bad.Retries, protocol.Retry{MessageID: "2", Failed: at, Due: at}, protocol.Retry{Attempt: 1})
	body, err = json.Marshal(bad)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := protocol.ReadRetryReport(body); !ok || len(got.Retries) != 1 {
		t.Errorf("report with invalid retries: got %+v, %t, want one retry", got, ok)
	}
	for _, body := range []string{"", "{}", `{"v":2,"queue":"q"}`, `{"v":1}`, `{"v":1,"queue":"q","missing":-1}`, `{"v":1,"queue":"` + strings.Repeat("q", 256) + `"}`} {
		if _, ok := protocol.ReadRetryReport([]byte(body)); ok {
			t.Errorf("ReadRetryReport accepted %s", body)
		}
	}
	for i := 0; !r.Full(); i++ {
		if i > 100 {
			t.Fatal("report with more than 100 retries is not full")
		}
		r.Retries = append(r.Retries, r.Retries[0])
	}
}
