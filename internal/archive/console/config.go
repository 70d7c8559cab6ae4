package console

import (
	"github.com/reprisemq/reprise/internal/archive/console/internal/access"
	"github.com/reprisemq/reprise/internal/archive/console/internal/flow"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
)

type (
	// Config configures a Console.
	Config = web.Config

	// Worker describes a worker of this program for the console.
	Worker = flow.Worker

	// DoubtfulQueue is a queue that may be a dead-letter queue and is not archived.
	DoubtfulQueue = web.DoubtfulQueue

	// Token grants access to a user or a program.
	Token = access.Token

	// Role specifies the permissions of a token. Each role includes the permissions of the lower roles. The text form of a
	// token's role is view, operate or admin.
	Role = access.Role
)

// Roles in ascending order.
const (
	Nobody  = access.Nobody  // not logged in
	View    = access.View    // read everything except secrets
	Operate = access.Operate // replay, edit, discard, and undo
	Admin   = access.Admin   // see secrets, import, purge
)

// NewToken returns a token of 256 random bits for its owner, and the hash for Token.Hash.
func NewToken() (token, hash string) { return access.NewToken() }
