package failed_test

import (
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/archive/failed"
)

func TestFingerprint(t *testing.T) {
	for _, c := range []struct{ err, want string }{
		{"", ""},
		{"no details here", "no details here"},
		{"order 17: dial tcp 10.0.0.7:5432: i/o timeout after 1.5s", "order *: dial tcp *: i/o timeout after *"},
		{"order17 not found", "order* not found"},
		{"user 550e8400-e29b-41d4-a716-446655440000 is gone", "user * is gone"},
		{"user deadbeef-cafe-babe-face-facefacefeed is gone", "user * is gone"},
		{"commit 3f2a9bc81d is bad", "commit * is bad"},
		{"dial [fe80::1ff:fe23:4567:890a%eth0]:80: refused", "dial *: refused"},
		{"at 0xc000123abc+0x1f", "at *"},
		{"2026-01-02T15:04:05.123Z failed", "* failed"},
		{"2026-01-02 15:04:05 failed", "* failed"},
		{"Mon, 02 Jan 2026 15:04:05 GMT: late", "*: late"},
		{"Tue Feb 3 15:04:05 2026: late", "*: late"},
		{"mail to jane.doe+x@example.co.uk bounced", "mail to * bounced"},
		{`key "abc-17-def" is missing`, `key "*" is missing`},
		{`field "name" is missing`, `field "name" is missing`},
		{"can't find 5, won't try", "can't find *, won't try"},
		{"token 'a1b2c3' expired", "token '*' expired"},
		{"http2: stream 5 closed", "http*: stream * closed"},
		{"balance is -5.30", "balance is *"},
		{"codes [1, 2, 3]", "codes [*]"},
		{"several\tparts  and\x00spaces", "several parts and spaces"},
		{"\n first\n\tat x", "first"},
		{"invalid:\n name is missing\n more", "invalid: name is missing"},
		{"bad \xff bytes", "bad ? bytes"},
	} {
		if got := failed.Fingerprint(c.err); got != c.want {
			t.Errorf("%q: got %q, want %q", c.err, got, c.want)
		}
	}
}

// Each line contains errors of one cause, in the words of twelve languages and their frameworks. Errors of different lines
// have different causes.
func TestFingerprintSeparatesCauses(t *testing.T) {
	groups := [][]string{
		{`customer "Anna Meier" is blocked`, `customer "Bob" is blocked`, `customer “Ana Pérez” is blocked`, `customer 'Zoë' is blocked`},
		{`Kunde „Müller“ ist gesperrt`, `Kunde »Anna Meier« ist gesperrt`, `Kunde "Øster" ist gesperrt`},
		{`le client « Jean » est bloqué`, `le client « Marie Curie » est bloqué`},
		{`клиент «Иван» заблокирован`, `клиент «Анна» заблокирован`},
		{`顧客「山田」は存在しません`, `顧客「鈴木」は存在しません`},
		{`no such key dGhpcyBpcyBhIHRlc3Q=`, `no such key Zm9vL2Jhcis9YmF6cXV4`, `no such key QWxhZGRpbjpvcGVu_c2VzYW1l`},
		{"404 upstream"},
		{"POST /x: 404 upstream"},
		{"500 upstream"},
		{`column "email" does not exist`},
		{`column "name" does not exist`},
		{`unknown field "Amount"`},
		{`unknown field "Currency"`},
		{`payment refused: "Insufficient funds"`},
		{`payment refused: "Card expired"`},
		{
			`php: exit status 255: PHP Fatal error:  Uncaught PDOException: SQLSTATE[23000]: Duplicate entry '17' for key 'PRIMARY'`,
			`php: exit status 255: PHP Fatal error:  Uncaught PDOException: SQLSTATE[23000]: Duplicate entry '18' for key 'PRIMARY'`,
		},
		{`php: exit status 255: PHP Fatal error:  Uncaught PDOException: SQLSTATE[HY000]: General error`},
		{"java.lang.IllegalStateException: order 17 not found\n\tat a.B.c(B.java:17)", "java.lang.IllegalStateException: order 18 not found\n\tat x.Y.z(Y.java:99)"},
		{"java.lang.IllegalArgumentException: order 17 not found"},
		{"Error: connect ECONNREFUSED 10.0.0.1:5432\n    at f (x.js:1)", "Error: connect ECONNREFUSED 10.0.0.2:5432\n    at g (y.js:2)"},
		{"Error: connect ETIMEDOUT 10.0.0.1:5432"},
		{"System.InvalidOperationException: Sequence contains no elements\n   at A.B()", "System.InvalidOperationException: Sequence contains no elements"},
		{"NoMethodError: undefined method 'total' for nil"},
		{"NoMethodError: undefined method 'price' for nil"},
		{"KeyError: 'order_id'"},
		{"KeyError: 'amount'"},
		{"requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://x/1", "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://x/2"},
		{"requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url: https://x/1"},
		{
			`thread 'main' panicked at src/main.rs:17:5: index out of bounds: the len is 3 but the index is 99`,
			`thread 'main' panicked at src/main.rs:17:5: index out of bounds: the len is 4 but the index is 7`,
		},
		{`** (DBConnection.ConnectionError) tcp connect (localhost:5432): connection refused - :econnrefused`},
		{`ORA-00001: unique constraint (SHOP.PK17) violated`, `ORA-00001: unique constraint (SHOP.PK18) violated`},
		{`ORA-02291: integrity constraint (SHOP.FK17) violated`},
		{`panic: runtime error: invalid memory address or nil pointer dereference`},
		{`RepublishQueueHandler failed`},
		{`RepublishExchangeHandler failed`},
	}
	seen := map[string]string{}
	for _, group := range groups {
		first := failed.Fingerprint(group[0])
		for _, text := range group {
			if got := failed.Fingerprint(text); got != first {
				t.Errorf("%q: got %q, want %q, as for %q", text, got, first, group[0])
			}
		}
		if other, ok := seen[first]; ok {
			t.Errorf("%q and %q have one fingerprint: %q", other, group[0], first)
		}
		seen[first] = group[0]
	}
}

// Details do not change the fingerprint.
func TestFingerprintIgnoresDetails(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		detail := rapid.OneOf(
			rapid.StringMatching(`[1-9][0-9]{0,8}`),
			rapid.StringMatching(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`),
			rapid.StringMatching(`[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}(:[0-9]{2,5})?`),
			rapid.StringMatching(`20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?Z`),
			rapid.StringMatching(`0x[0-9a-f]{1,16}`),
			rapid.StringMatching(`[a-z]{1,8}@[a-z]{1,8}\.(com|org)`),
			rapid.StringMatching(`[0-9]{1,4}(ms|s|m|h)`),
		)
		before := rapid.StringMatching(`([a-z]{2,8} ){1,3}`).Draw(t, "before")
		after := rapid.StringMatching(`( [g-z]{2,8}){1,3}`).Draw(t, "after")
		want := failed.Fingerprint(before + "7" + after)
		if got := failed.Fingerprint(before + detail.Draw(t, "detail") + after); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}

func FuzzFingerprint(f *testing.F) {
	for _, s := range []string{"", "order 17", `"a 1" 'b 2'`, "\xff\x00", "* - * + *", "1e-9", "''*''", "exit status 1", "'code: E17', 5", "HTTP/1.1 503 a1", "(17, \"x1\")", "Error 1062 (23000): 5", "a@b.c", "::1", "Mon Jan 2 15:04:05 2006"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := failed.Fingerprint(s)
		if again := failed.Fingerprint(got); again != got {
			t.Errorf("%q: got %q, and again %q, want no change", s, got, again)
		}
		if len(got) > min(len(s), 4<<10) || !utf8.ValidString(got) {
			t.Errorf("%q: fingerprint %q must be valid UTF-8 of at most %d bytes: got %d bytes", s, got, min(len(s), 4<<10), len(got))
		}
	})
}

func TestFingerprintIsIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.StringMatching("(([A-Za-z]{1,4}| |\"|'|„|“|«|「|」|é|Ä|山|=|\n|:|[0-9]){0,3}){0,9}"),
			rapid.StringMatching("[a-f0-9:.@'\"` *+-]{0,40}"),
			rapid.StringMatching("((exit status|code=|HTTP/1.1|errno|SQLSTATE|E|'|\"|, | |\\*|[(]|[)]:)[0-9]{0,5}){0,9}")).Draw(t, "error")
		got := failed.Fingerprint(s)
		if again := failed.Fingerprint(got); again != got {
			t.Fatalf("%q: got %q, and again %q, want no change", s, got, again)
		}
	})
}

func BenchmarkFingerprint(b *testing.B) {
	for b.Loop() {
		failed.Fingerprint("order 17: dial tcp 10.0.0.7:5432: i/o timeout after 1.5s in step 4 (SQLSTATE 40P01)")
	}
}
