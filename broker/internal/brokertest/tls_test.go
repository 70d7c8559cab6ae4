package brokertest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/testhook"
)

// authority issues certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, pool: x509.NewCertPool()}
	issued := a.issue("authority", true)
	a.cert, a.key = issued.Leaf, issued.PrivateKey.(*ecdsa.PrivateKey)
	a.pool.AddCert(a.cert)
	return a
}

func (a *authority) issue(name string, ca bool) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(a.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: ca, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := a.cert, a.key
	if ca {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	must(a.t, err)
	leaf, err := x509.ParseCertificate(der)
	must(a.t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// Over TLS, a user can log in with a certificate instead of a password.
func TestTLS(t *testing.T) {
	ca := newAuthority(t)
	b, err := broker.New(broker.Config{Users: map[string]string{"ada": "s3cret"}})
	must(t, err)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{ca.issue("server", false)},
		ClientAuth:   tls.VerifyClientCertIfGiven, ClientCAs: ca.pool,
	})
	must(t, err)
	served := make(chan error, 1)
	go func() { served <- b.Serve(l) }()
	t.Cleanup(func() {
		_ = b.Shutdown(context.Background())
		<-served
	})

	for name, test := range map[string]struct {
		credentials  string
		certificates []tls.Certificate
		external, ok bool
	}{
		"password":                       {"ada:s3cret@", nil, false, true},
		"certificate":                    {"", []tls.Certificate{ca.issue("ada", false)}, true, true},
		"certificate of an unknown user": {"", []tls.Certificate{ca.issue("eve", false)}, true, false},
		"no certificate":                 {"", nil, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			config := amqp.Config{TLSClientConfig: &tls.Config{RootCAs: ca.pool, Certificates: test.certificates}}
			if test.external {
				config.SASL = []amqp.Authentication{&amqp.ExternalAuth{}}
			}
			conn, err := amqp.DialConfig("amqps://"+test.credentials+l.Addr().String(), config)
			if (err == nil) != test.ok {
				t.Errorf("unexpected result of the login: %v", err)
			}
			if err == nil {
				must(t, declare(channel(t, conn), "q", nil))
				must(t, conn.Close())
			}
		})
	}
}

// deaf is a client's connection that does not read.
type deaf struct {
	net.Conn
	closed <-chan struct{}
}

func (d deaf) Read([]byte) (int, error) {
	<-d.closed
	return 0, io.EOF
}

// If a client does not complete the TLS and AMQP handshakes in time, for example because it does not send or does not
// read, the broker closes the connection.
func TestHandshakeTimesOut(t *testing.T) {
	ca := newAuthority(t)
	server := &tls.Config{Certificates: []tls.Certificate{ca.issue("server", false)}, Time: time.Now}
	for name, begin := range map[string]func(conn net.Conn, closed <-chan struct{}){
		"client sends nothing": func(net.Conn, <-chan struct{}) {},
		"client reads nothing": func(conn net.Conn, closed <-chan struct{}) {
			_ = tls.Client(deaf{conn, closed}, &tls.Config{InsecureSkipVerify: true}).Handshake()
		},
		"no AMQP": func(conn net.Conn, _ <-chan struct{}) {
			_ = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).Handshake()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, err := broker.New(broker.Config{})
				must(t, err)
				defer func() { must(t, b.Shutdown(context.Background())) }()
				client, conn := net.Pipe()
				must(t, testhook.Of(b).Serve(tls.Server(conn, server)))
				closed := make(chan struct{})
				go begin(client, closed)
				synctest.Wait()
				if n := len(nodeOf(b).Sessions()); n != 1 {
					t.Fatalf("connections: got %d, want 1", n)
				}
				time.Sleep(20 * time.Second)
				synctest.Wait()
				if n := len(nodeOf(b).Sessions()); n != 0 {
					t.Errorf("connections after the timeout: got %d, want 0", n)
				}
				close(closed)
				_ = client.Close()
			})
		})
	}
}
