package workertest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker"
)

// authority is a certificate authority.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, pool: x509.NewCertPool()}
	own := a.issue("authority")
	a.cert, a.key = own.Leaf, own.PrivateKey.(*ecdsa.PrivateKey)
	a.pool.AddCert(a.cert)
	return a
}

// issue returns a certificate for a name. The first call creates the certificate of the authority.
func (a *authority) issue(name string, hosts ...string) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: hosts,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: a.cert == nil, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := a.cert, a.key
	if a.cert == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// files writes a certificate and its key to files whose paths a URL can contain.
func (a *authority) files(c tls.Certificate) (cert, key string) {
	a.t.Helper()
	der, err := x509.MarshalECPrivateKey(c.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		a.t.Fatal(err)
	}
	dir := a.t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: c.Certificate[0]}, key: {Type: "EC PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	return cert, key
}

// serveTLS starts a broker with TLS and returns its address.
func serveTLS(t *testing.T, config *tls.Config) string {
	t.Helper()
	b, err := broker.New(broker.Config{Users: map[string]string{"ada": "s3cret"}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- b.Serve(l) }()
	t.Cleanup(func() {
		_ = b.Shutdown(context.Background())
		<-served
	})
	return l.Addr().String()
}

// closedAddr is an address on which no server listens.
const closedAddr = "127.0.0.1:1"

// resolving returns an option that connects to the addresses in names instead of resolving host names.
func resolving(names map[string]string) func(c *reprise.Config) {
	return func(c *reprise.Config) {
		c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if to, ok := names[addr]; ok {
				addr = to
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	ca, foreign := newAuthority(t), newAuthority(t)
	addr := serveTLS(t, &tls.Config{
		Certificates: []tls.Certificate{ca.issue("server", "one.example")}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: ca.pool,
	})
	strict := serveTLS(t, &tls.Config{
		Certificates: []tls.Certificate{ca.issue("server", "strict.example")}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.pool,
	})
	other := serveTLS(t, &tls.Config{Certificates: []tls.Certificate{ca.issue("server", "two.example")}})
	names := resolving(map[string]string{"one.example:5671": addr, "two.example:5671": other, "strict.example:5671": strict})
	first := resolving(map[string]string{"one.example:5671": addr, "two.example:5671": closedAddr})
	second := resolving(map[string]string{"one.example:5671": closedAddr, "two.example:5671": other})
	clear := resolving(map[string]string{"one.example:5671": startEmbedded(t)})

	caFile, _ := ca.files(tls.Certificate{Certificate: [][]byte{ca.cert.Raw}, PrivateKey: ca.key})
	foreignFile, _ := ca.files(tls.Certificate{Certificate: [][]byte{foreign.cert.Raw}, PrivateKey: foreign.key})
	cert, key := ca.files(ca.issue("ada"))
	files := func(ca, cert, key string) string {
		return url.Values{"cacertfile": {ca}, "certfile": {cert}, "keyfile": {key}, "auth_mechanism": {"external"}}.Encode()
	}
	trusting := func(certificates ...tls.Certificate) func(c *reprise.Config) {
		return func(c *reprise.Config) { c.TLS = &tls.Config{RootCAs: ca.pool, Certificates: certificates} }
	}

	for name, tc := range map[string]struct {
		url     string
		options []func(*reprise.Config)
		want    string // expected error
	}{
		"custom authority":              {"amqps://ada:s3cret@one.example", []func(*reprise.Config){names, trusting()}, ""},
		"authority in the URL":          {"amqps://ada:s3cret@one.example?cacertfile=" + caFile, []func(*reprise.Config){names}, ""},
		"client certificate":            {"amqps://one.example?auth_mechanism=external", []func(*reprise.Config){names, trusting(ca.issue("ada"))}, ""},
		"client certificate in the URL": {"amqps://one.example?" + files(caFile, cert, key), []func(*reprise.Config){names}, ""},
		"required certificate":          {"amqps://ada:s3cret@strict.example", []func(*reprise.Config){names, trusting(ca.issue("who"))}, ""},
		"the first host's name":         {"amqps://ada:s3cret@one.example,two.example", []func(*reprise.Config){first, trusting()}, ""},
		"the second host's name":        {"amqps://ada:s3cret@one.example,two.example", []func(*reprise.Config){second, trusting()}, ""},
		"server name in the URL":        {"amqps://ada:s3cret@" + addr + "?server_name_indication=one.example&cacertfile=" + caFile, nil, ""},

		"unknown authority": {
			"amqps://ada:s3cret@one.example",
			[]func(*reprise.Config){names},
			"one.example:5671: the broker's TLS certificate is not trusted: x509: certificate signed by unknown authority; " +
				"trust its authority, in Config.TLS as RootCAs or by the URL's cacertfile",
		},
		"wrong authority": {
			"amqps://ada:s3cret@one.example?cacertfile=" + foreignFile,
			[]func(*reprise.Config){names},
			"trust its authority, in Config.TLS as RootCAs or by the URL's cacertfile",
		},
		"wrong name": {
			"amqps://ada:s3cret@" + addr,
			[]func(*reprise.Config){trusting()},
			"connect by a name in the certificate, or set the expected name in Config.TLS as ServerName or by the URL's server_name_indication",
		},
		"no such file":                {"amqps://ada:s3cret@one.example?cacertfile=/no/such/file", []func(*reprise.Config){names}, "cannot use the files of the URL: cannot read the authorities: open /no/such/file"},
		"file without a certificate":  {"amqps://ada:s3cret@one.example?cacertfile=" + key, []func(*reprise.Config){names}, "has no certificate in PEM"},
		"no certificate":              {"amqps://ada:s3cret@strict.example", []func(*reprise.Config){names, trusting()}, "the server refused TLS (certificate required); check the client certificate"},
		"wrong certificate":           {"amqps://ada:s3cret@strict.example", []func(*reprise.Config){names, trusting(foreign.issue("ada"))}, "the server refused TLS ("},
		"certificate of unknown user": {"amqps://one.example?auth_mechanism=external", []func(*reprise.Config){names, trusting(ca.issue("eve"))}, "the broker refused the client certificate; check that one is set, that it names a user of the broker"},
		"URL without TLS":             {"amqp://ada:s3cret@one.example,two.example", []func(*reprise.Config){names, trusting()}, "one.example:5672: Config.TLS is set, but the URL does not use TLS: use amqps:// (default port 5671), or remove Config.TLS"},
		"broker without TLS":          {"amqps://ada:s3cret@one.example", []func(*reprise.Config){clear, trusting()}, "the server does not use TLS; use amqp://, or the TLS port (usually 5671)"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.want == "" {
				c := dial(t, tc.url, tc.options...)
				if err := c.Healthy(t.Context()); err != nil {
					t.Error(err)
				}
				return
			}
			config := &reprise.Config{}
			for _, o := range tc.options {
				o(config)
			}
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			_, err := reprise.Dial(ctx, tc.url, config)
			if _, ok := errors.AsType[*reprise.ConnectError](err); !ok || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// Dial reports that the server does not use AMQP, or that it uses TLS although the URL does not.
func TestDialReportsWrongProtocol(t *testing.T) {
	t.Parallel()
	for greeting, want := range map[string]string{
		"\x15\x03\x03\x00\x02\x02\x46":     "the server uses TLS; use amqps://, or the port without TLS",
		"HTTP/1.1 400 Bad Request\r\n\r\n": "the server does not use AMQP; check the port",
	} {
		_, err := reprise.Dial(t.Context(), "amqp://ada:s3cret@broker.example", &reprise.Config{
			Dial: func(context.Context, string, string) (net.Conn, error) {
				client, server := net.Pipe()
				go func() {
					defer server.Close()
					_, _ = server.Read(make([]byte, 8)) // reads the protocol header
					_, _ = server.Write([]byte(greeting))
				}()
				return client, nil
			},
		})
		if _, ok := errors.AsType[*reprise.ConnectError](err); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
