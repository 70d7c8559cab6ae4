package config

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/handler"
)

func TestRulesMatchHandlerErrors(t *testing.T) {
	status := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1") // the number of attempts in the rule also applies to retries with a Retry-After
		w.WriteHeader(status)
	}))
	defer s.Close()
	c := mustParse(t, `
workers:
  - queue: http
    http: `+s.URL+`
    rules: [{status: [503, 507], attempts: 1}, {status: 429, attempts: 2, give_up_after: 1h}]
  - queue: exec
    exec: [sh, -c, x]
    rules: [{exit: 69, attempts: 1}, {exit: 71, park: true}, {exit: 72, park: false}, {exit: [70, 75], attempts: 2}]
`)
	service, err := handler.NewHTTP(handler.HTTPConfig{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer service.Close()
	for code, want := range map[int]int{503: 1, 507: 1, 429: 2, 500: reprise.DefaultMaxAttempts, 404: 0} {
		status = code
		expect(t, c.Workers[0].Policy, service, code, want)
	}
	for code, want := range map[int]int{69: 1, 71: 1, 72: reprise.DefaultMaxAttempts, 70: 2, 75: 2, 1: reprise.DefaultMaxAttempts, handler.ExitDataErr: 0} {
		program, err := handler.NewExec(handler.ExecConfig{Command: []string{"sh", "-c", "exit " + strconv.Itoa(code)}})
		if err != nil {
			t.Fatal(err)
		}
		expect(t, c.Workers[1].Policy, program, code, want)
	}
	if d := c.Workers[0].Policy.Rules[1].GiveUpAfter; d != time.Hour {
		t.Errorf("give_up_after: got %s, want %s", d, time.Hour)
	}
}

// expect checks the number of attempts of a message whose handler h always fails with the code. A want of 0 means that
// the message is parked after its first attempt, regardless of the policy.
func expect(t *testing.T, p reprise.Policy, h reprise.Handler, code, want int) {
	t.Helper()
	err := h.Handle(t.Context(), &reprise.Delivery{})
	if got := p.Decide(err, max(want, 1), 0); got.Retry {
		t.Errorf("code %d: retried after %d attempts", code, max(want, 1))
	}
	if want > 1 && !p.Decide(err, want-1, 0).Retry {
		t.Errorf("code %d: parked after %d attempts, want %d", code, want-1, want)
	}
}
