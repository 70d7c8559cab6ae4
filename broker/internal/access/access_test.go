package access

import (
	"errors"
	"testing"
)

func TestPermissions(t *testing.T) {
	c := New()
	if err := c.SetPermission(Permission{User: "ada", VHost: "/"}); !errors.Is(err, ErrUnknownUser) {
		t.Errorf("SetPermission for an unknown user: got %v, want ErrUnknownUser", err)
	}
	if err := c.SetUser(User{Name: "ada", Hash: HashPassword("pw")}); err != nil {
		t.Fatal(err)
	}
	if c.MayEnter("ada", "/") {
		t.Error("MayEnter reports true without a permission")
	}
	err := c.SetPermission(Permission{User: "ada", VHost: "/", Configure: "^ada-.*$", Write: ".*"})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		vhost string
		op    Operation
		name  string
		want  bool
	}{
		{"/", Configure, "ada-q", true},
		{"/", Configure, "bob-q", false},
		{"/", Write, "bob-q", true},
		{"/", Read, "ada-q", false}, // empty expression
		{"other", Write, "q", false},
	} {
		if got := c.Allowed("ada", test.vhost, test.op, test.name); got != test.want {
			t.Errorf("%v %q in %q: got %v, want %v", test.op, test.name, test.vhost, got, test.want)
		}
	}
	before := c.Generation()
	c.DeletePermission("ada", "/")
	if c.MayEnter("ada", "/") || c.Generation() == before {
		t.Error("deleted permission is still in effect, or Generation did not change")
	}
	if err := c.SetPermission(Permission{User: "ada", VHost: "/", Read: "("}); err == nil {
		t.Error("SetPermission accepts ( as a regular expression")
	}
	if err := c.DeleteUser("ada"); err != nil || c.Authenticate("ada", "pw") {
		t.Errorf("deleted user can log in (%v)", err)
	}
	if err := c.DeleteUser("ada"); !errors.Is(err, ErrUnknownUser) {
		t.Errorf("second DeleteUser: got %v, want ErrUnknownUser", err)
	}
}

func TestHash(t *testing.T) {
	h := HashPassword("s3cret")
	again, err := ParseHash(h.String())
	if err != nil || !again.Matches("s3cret") || again.Matches("S3cret") {
		t.Errorf("parsed hash %v does not match: %v", again, err)
	}
	// Example from RabbitMQ's documentation: salt 908D C60A, password "test12".
	doc, err := ParseHash("kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR")
	if err != nil || !doc.Matches("test12") {
		t.Errorf("hash from RabbitMQ's documentation does not match (%v)", err)
	}
	var none Hash
	if none.Matches("") {
		t.Error("the zero hash matches the empty password")
	}
	for _, bad := range []string{"!", "AAAA"} {
		if _, err := ParseHash(bad); err == nil {
			t.Errorf("ParseHash accepts %q", bad)
		}
	}
}
