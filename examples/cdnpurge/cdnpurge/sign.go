package cdnpurge

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Credentials sign requests to Akamai's APIs with EdgeGrid (EG1-HMAC-SHA256). The signature covers the method, the URL,
// the body, the time and a nonce.
type Credentials struct {
	ClientToken, ClientSecret, AccessToken string
}

// signatureTime is the layout of the time in a signature, which is in UTC.
const signatureTime = "20060102T15:04:05+0000"

// sign sets the header Authorization. The nonce must be different in each request.
func (c Credentials) sign(r *http.Request, body []byte, at time.Time, nonce string) {
	r.Header.Set("Authorization", c.authorization(r, body, at.UTC().Format(signatureTime), nonce))
}

func (c Credentials) authorization(r *http.Request, body []byte, at, nonce string) string {
	unsigned := fmt.Sprintf("EG1-HMAC-SHA256 client_token=%s;access_token=%s;timestamp=%s;nonce=%s;", c.ClientToken, c.AccessToken, at, nonce)
	hash := ""
	if len(body) > 0 {
		sum := sha256.Sum256(body)
		hash = base64.StdEncoding.EncodeToString(sum[:])
	}
	const signedHeaders = "" // the Fast Purge API requires none
	data := strings.Join([]string{
		r.Method, r.URL.Scheme, strings.ToLower(cmp.Or(r.Host, r.URL.Host)), r.URL.RequestURI(), signedHeaders, hash, unsigned,
	}, "\t")
	return unsigned + "signature=" + mac(mac(c.ClientSecret, at), data)
}

// verify reports whether a request that a server has received is signed with c, at most 30 s ago or ahead.
func (c Credentials) verify(r *http.Request, body []byte) bool {
	fields := map[string]string{}
	for field := range strings.SplitSeq(r.Header.Get("Authorization"), ";") {
		name, value, _ := strings.Cut(field, "=")
		fields[name] = value
	}
	at, err := time.Parse(signatureTime, fields["timestamp"])
	if err != nil || time.Since(at).Abs() > 30*time.Second || fields["nonce"] == "" {
		return false
	}
	signed := r.Clone(r.Context())
	if signed.URL.Scheme = "http"; r.TLS != nil {
		signed.URL.Scheme = "https"
	}
	want := c.authorization(signed, body, fields["timestamp"], fields["nonce"])
	return hmac.Equal([]byte(want), []byte(r.Header.Get("Authorization")))
}

func mac(key, data string) string {
	h := hmac.New(sha256.New, []byte(key))
	_, _ = h.Write([]byte(data))
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}
