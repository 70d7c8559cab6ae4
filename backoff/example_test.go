package backoff_test

import (
	"fmt"
	"time"

	"github.com/reprisemq/reprise/backoff"
)

func ExampleExponential() {
	b := backoff.Exponential{Initial: time.Second, Factor: 3, Max: time.Minute}
	for attempt := 1; attempt <= 6; attempt++ {
		fmt.Print(b.Delay(attempt), " ")
	}
	// Output: 1s 3s 9s 27s 1m0s 1m0s
}

func ExampleLinear() {
	b := backoff.Linear{Initial: 10 * time.Second, Step: 30 * time.Second, Max: 2 * time.Minute}
	for attempt := 1; attempt <= 6; attempt++ {
		fmt.Print(b.Delay(attempt), " ")
	}
	// Output: 10s 40s 1m10s 1m40s 2m0s 2m0s
}

func ExampleList() {
	b := backoff.List{time.Second, time.Minute, time.Hour}
	fmt.Println(b.Delay(1), b.Delay(2), b.Delay(3), b.Delay(4))
	// Output: 1s 1m0s 1h0m0s 1h0m0s
}

func ExampleEqual() {
	b := backoff.Equal(backoff.Fixed(time.Minute))
	b.Rand = func() float64 { return 0.5 } // a test can set its own source; the default is math/rand/v2
	fmt.Println(b.Delay(1))
	// Output: 45s
}

func ExampleDecorrelated() {
	b := backoff.Decorrelated{Initial: time.Second, Max: time.Minute}
	for attempt := 1; attempt <= 5; attempt++ {
		low, high := b.Range(attempt)
		fmt.Printf("after attempt %d: %s to %s\n", attempt, low, high)
	}
	// Output:
	// after attempt 1: 1s to 3s
	// after attempt 2: 1s to 9s
	// after attempt 3: 1s to 27s
	// after attempt 4: 1s to 1m0s
	// after attempt 5: 1s to 1m0s
}

// Range returns the shortest and the longest delay before the tenth attempt.
func ExampleRange() {
	b := backoff.Equal(backoff.Exponential{Initial: time.Second, Max: time.Hour})
	low, high := backoff.Range(b, 9)
	fmt.Println(b)
	fmt.Println(low, "to", high)
	// Output:
	// exponential from 1s ×2 up to 1h, half random
	// 2m8s to 4m16s
}
