// Package inside is the door through which package reprisetest looks into a broker. What it finds there is nobody's API:
// package broker shows a program what a program may need, and a test wants to see more than that.
package inside

import "github.com/reprisemq/reprise/internal/node"

// Node returns the state of a *broker.Broker. Package broker sets it.
var Node func(broker any) *node.Node
