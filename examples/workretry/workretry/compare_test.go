package workretry

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// inMemory runs a test in virtual time, on a broker in memory.
func inMemory(t *testing.T, test func(t *testing.T, b Broker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b, err := broker.New(broker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := b.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		test(t, Broker{URL: "amqp://guest:guest@embedded/", Dial: b.DialContext})
	})
}

// seed1 is the expected output for seed 1.
const seed1 = `
retries                 sent  attempts  done  parked  lost  duplicated
requeue                   20        59    15       5     0           0
publish, then ack         20        74    21       5     0           6
ack, then publish         20        55    11       5     4           0
dead-letter exchange      20        63    15       5     0           0

breaks in parking       sent  attempts  done  parked  lost  duplicated
requeue                    4        16     0       7     0           3
publish, then ack          4        19     0       7     0           3
ack, then publish          4        17     0       2     2           0
dead-letter exchange       4        19     0       7     0           3

what breaks                                       requeue     publish, then ack  ack, then publish  dead-letter exchange
  in the middle of a retry
    the process exits before anything is settled  ·           ·                  ·                  ·
    the process exits between the two steps       –           duplicated         lost               –
    the confirm of the copy is lost               –           duplicated         ·                  –
    the consuming connection is lost              ·           duplicated         lost               ·
  in the middle of being parked
    the process exits before anything is settled  ·           ·                  ·                  ·
    the process exits between the two steps       duplicated  duplicated         lost               duplicated
    the confirm of the copy is lost               duplicated  duplicated         ·                  duplicated
    the consuming connection is lost              duplicated  duplicated         lost               duplicated
  · done or parked once, as if nothing had broken; – there is no such moment in this way

balance: 96 sent + 15 duplicated = 62 done + 43 parked + 6 lost
`

// Compare is deterministic. Two runs with the same seed have the same output.
func TestCompareIsDeterministic(t *testing.T) {
	for range 2 {
		inMemory(t, func(t *testing.T, b Broker) {
			report, err := Compare(t.Context(), b, Comparison{Delay: time.Second, Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			var printed bytes.Buffer
			report.Print(&printed)
			if diff := cmp.Diff(strings.TrimPrefix(seed1, "\n"), printed.String()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// The output is the same over TCP, and on RabbitMQ.
func TestComparePrintsSameOutputOnAllBrokers(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		t.Parallel()
		report, err := Compare(t.Context(), Broker{URL: b.URL}, Comparison{Delay: 20 * time.Millisecond, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		var printed bytes.Buffer
		report.Print(&printed)
		if diff := cmp.Diff(strings.TrimPrefix(seed1, "\n"), printed.String()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// The results match docs/guarantees.md for several seeds.
func TestCompareMatchesGuarantees(t *testing.T) {
	for seed := range uint64(5) {
		inMemory(t, func(t *testing.T, b Broker) {
			report, err := Compare(t.Context(), b, Comparison{Delay: time.Second, Seed: 2 + seed, Jobs: MinJobs + int(seed)})
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			for _, w := range report.Ways {
				for _, c := range []Counts{w.Retried(), w.Parking()} {
					if c.Sent+c.Duplicated != c.Done+c.Parked+c.Lost {
						t.Errorf("seed %d, %s: sent + duplicated must be done + parked + lost: got %+v", seed, w.Name, c)
					}
				}
				retried, parking := w.Retried(), w.Parking()
				switch w.Name {
				case "requeue", "dead-letter exchange":
					if retried.Lost+retried.Duplicated+parking.Lost > 0 {
						t.Errorf("seed %d, %s: got %+v, parking %+v, want nothing lost or duplicated", seed, w.Name, retried, parking)
					}
				case "publish, then ack":
					if retried.Lost+parking.Lost > 0 || retried.Duplicated == 0 {
						t.Errorf("seed %d, %s: got %+v, parking %+v, want nothing lost and some duplicated", seed, w.Name, retried, parking)
					}
				case "ack, then publish":
					if retried.Lost == 0 || retried.Duplicated+parking.Duplicated > 0 {
						t.Errorf("seed %d, %s: got %+v, parking %+v, want some lost and nothing duplicated", seed, w.Name, retried, parking)
					}
				}
			}
		})
	}
}

// Compare deletes all its queues.
func TestCompareDeletesQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := broker.New(broker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = Compare(t.Context(), Broker{URL: "amqp://guest:guest@embedded/", Dial: b.DialContext}, Comparison{Jobs: MinJobs})
		if err != nil {
			t.Error(err)
		}
		for _, q := range b.Queues() {
			t.Errorf("queue not deleted: %+v", q)
		}
		if err := b.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestComparisonValidate(t *testing.T) {
	for _, tc := range []struct {
		c    Comparison
		want string
	}{
		{Comparison{Jobs: 11}, "at least 12: got 11"},
		{Comparison{Jobs: -1}, "at least 12: got -1"},
		{Comparison{Delay: -1}, "whole milliseconds"},
		{Comparison{Delay: 2 * time.Hour}, "to 1h"},
	} {
		if err := tc.c.Validate(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: got %v, want %q", tc.c, err, tc.want)
		}
	}
	_, err := Compare(t.Context(), Broker{URL: "amqps://guest:guest@rabbit/"}, Comparison{})
	if err == nil || !strings.Contains(err.Error(), "use an amqp:// URL") {
		t.Errorf("amqps URL: got %v, want an error", err)
	}
}

// README.md contains the output for seed 1.
func TestReadmeContainsOutput(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if shown := (Comparison{}).String() + "\n" + seed1; !strings.Contains(string(readme), shown) {
		t.Errorf("README.md does not contain:\n%s", shown)
	}
}
