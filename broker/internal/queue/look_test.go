package queue

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func bodies(q *Queue) (all []string) {
	for _, w := range q.Look() {
		all = append(all, string(w.Message.Body))
	}
	return all
}

func TestLookMatchesDeliveryOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, quorum := range []bool{false, true} {
			config := Defaults("q")
			config.Quorum, config.MaxPriority = quorum, 9
			if quorum {
				config.Retry = Retry{Failed: true, Min: time.Minute, Max: time.Minute}
			}
			q := New(config)
			for i, priority := range []uint8{4, 9, 4, 0, 4} {
				m := message(string(rune('a' + i)))
				m.Priority, m.HasPriority = priority, true
				q.Publish(m)
			}
			first, second, third := q.take(false), q.take(false), q.take(false) // b, a, c
			q.Requeue(false, third, second)
			q.Requeue(true, first)
			looked := bodies(q)
			if again := bodies(q); !slices.Equal(looked, again) {
				t.Errorf("quorum %t: Look returned %q, then %q", quorum, looked, again)
			}
			time.Sleep(2 * time.Minute) // until the delayed retry is due
			var got []string
			for it := q.take(true); it != nil; it = q.take(true) {
				got = append(got, string(it.Message.Body))
			}
			if quorum {
				// Look returns delayed messages last. When they are due, they precede all messages that have not been requeued.
				looked = slices.Insert(slices.DeleteFunc(looked, func(s string) bool { return s == "b" }), 2, "b")
			}
			if !slices.Equal(looked, got) {
				t.Errorf("quorum %t: Look: got %q, want the deliveries %q", quorum, looked, got)
			}
			q.Close()
		}
	})
}

func TestOutlook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var target *Queue
		asked := false
		config := Defaults("q")
		config.Quorum, config.Retry = true, Retry{Failed: true, Min: time.Hour, Max: time.Hour}
		config.DeadLetter = &DeadLetter{RoutingKey: new("other")}
		config.Publish, config.Ask = to(&target), func(*Queue) { asked = true }
		q := New(config)
		defer q.Close()
		if o := q.Outlook(); o != (Outlook{}) {
			t.Errorf("empty queue: got %+v, want the zero value", o)
		}
		now := time.Now()
		late, soon := message("late"), message("soon")
		late.TTL, soon.TTL = time.Minute, time.Second
		soon.HasPriority, soon.Priority = true, 0
		q.Publish(late)
		q.Publish(soon)
		if o := q.Outlook(); o != (Outlook{Expires: now.Add(time.Second)}) {
			t.Errorf("two priorities: got %+v, want the expiry of the second message", o)
		}
		q.Requeue(true, q.take(false))
		time.Sleep(time.Second)
		synctest.Wait() // wait for the timer
		if o := q.Outlook(); o != (Outlook{Leaving: true, Due: now.Add(time.Hour)}) || !asked {
			t.Errorf("one expired and one requeued message: got %+v, asked %t, want Leaving, Due in an hour and asked true", o, asked)
		}
		target = New(Defaults("other"))
		for q.SendDeadLetters() {
		}
		if o := q.Outlook(); o != (Outlook{Due: now.Add(time.Hour)}) {
			t.Errorf("after the dead letter was published: got %+v, want only Due in an hour", o)
		}
	})
}
