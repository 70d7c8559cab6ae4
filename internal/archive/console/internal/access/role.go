package access

import (
	"fmt"
	"slices"
)

// Role is a set of permissions. Each role includes the permissions of the roles before it.
type Role uint8

// The roles.
const (
	Nobody  Role = iota // not logged in
	View                // read everything except secrets
	Operate             // replay, edit, discard, and undo
	Admin               // see secrets, import, purge
)

var roleNames = []string{"nobody", "view", "operate", "admin"}

func (r Role) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return fmt.Sprintf("Role(%d)", uint8(r))
}

// MarshalText implements [encoding.TextMarshaler].
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]. It accepts view, operate and admin.
func (r *Role) UnmarshalText(text []byte) error {
	i := slices.Index(roleNames, string(text))
	if i <= 0 {
		return fmt.Errorf("role must be view, operate or admin: got %q", text)
	}
	*r = Role(i)
	return nil
}
