package cdnpurge

import (
	"net/http"
	"strings"
	"testing"
)

// Akamai's own clients have the same results for these requests.
func TestSignatureMatchesReference(t *testing.T) {
	c := Credentials{
		ClientToken:  "akab-client-token-xxx-xxxxxxxxxxxxxxxx",
		AccessToken:  "akab-access-token-xxx-xxxxxxxxxxxxxxxx",
		ClientSecret: strings.Repeat("x", 43) + "=",
	}
	const host = "https://akaa-baseurl-xxxxxxxxxxx-xxxxxxxxxxxxx.luna.akamaiapis.net"
	for _, tc := range []struct{ method, path, body, want string }{
		{"GET", "/", "", "tL+y4hxyHxgWVD30X3pWnGKHcPzmrIF+LThiAOhMxYU="},
		{"GET", "/testapi/v1/t1?p1=1&p2=2", "", "hKDH1UlnQySSHjvIcZpDMbQHihTQ0XyVAKZaApabdeA="},
		{"POST", "/testapi/v1/t3", strings.Repeat("data", 8), "hXm4iCxtpN22m4cbZb4lVLW5rhX8Ca82vCFqXzSTPe4="},
	} {
		r, err := http.NewRequestWithContext(t.Context(), tc.method, host+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := c.authorization(r, []byte(tc.body), "20140321T19:34:21+0000", "nonce-xx-xxxx-xxxx-xxxx-xxxxxxxxxxxx")
		want := "EG1-HMAC-SHA256 client_token=" + c.ClientToken + ";access_token=" + c.AccessToken +
			";timestamp=20140321T19:34:21+0000;nonce=nonce-xx-xxxx-xxxx-xxxx-xxxxxxxxxxxx;signature=" + tc.want
		if got != want {
			t.Errorf("%s %s: got %s, want %s", tc.method, tc.path, got, want)
		}
	}
}
