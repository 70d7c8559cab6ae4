package reprise

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise/internal/consume"
)

// A remembered outcome applies to a redelivery that follows soon, not to an equal message of another day.
func TestOutcomesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var x held
		message := func(redelivered bool) *delivery {
			d := &delivery{Delivery: consume.Delivery{Attempt: 1}}
			d.MessageID, d.Redelivered = "order-7", redelivered
			return d
		}
		for after, want := range map[time.Duration]bool{time.Minute: true, 2 * time.Hour: false} {
			earlier := message(false)
			earlier.result.text = "card declined"
			x.remember(earlier)
			time.Sleep(after)
			if x.recall(message(false)) {
				t.Error("the outcome applies to a message that is not redelivered")
			}
			later := message(true)
			if got := x.recall(later); got != want || want && later.result.text != "card declined" {
				t.Errorf("after %s: got %t with %q, want %t", after, got, later.result.text, want)
			}
		}
	})
}
