//go:build unix

package cli

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/testkit"
)

// authority writes certificates to files.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.issue("authority")
	return a
}

func (a *authority) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

// issue writes the files NAME.pem and NAME-key.pem.
func (a *authority) issue(name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.must(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: a.cert == nil, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	a.must(err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	a.must(err)
	a.must(os.WriteFile(a.file(name), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	a.must(os.WriteFile(a.file(name+"-key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	cert, err := x509.ParseCertificate(der)
	a.must(err)
	return cert, key
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name+".pem") }

// client returns the configuration of a client with a certificate. An empty name means no certificate.
func (a *authority) client(name string) *tls.Config {
	a.t.Helper()
	c := &tls.Config{RootCAs: x509.NewCertPool()}
	c.RootCAs.AddCert(a.cert)
	if name != "" {
		certificate, err := tls.LoadX509KeyPair(a.file(name), a.file(name+"-key"))
		a.must(err)
		c.Certificates = []tls.Certificate{certificate}
	}
	return c
}

// secureBroker runs the command and returns the URLs of the broker and its management API.
func (a *authority) secureBroker(args ...string) (url, api string) {
	a.t.Helper()
	args = append([]string{
		"broker", "--memory", "--listen", "127.0.0.1:0", "--management", "127.0.0.1:0",
		"--certfile", a.file("server"), "--keyfile", a.file("server-key"), "--cacertfile", a.file("authority"),
	}, args...)
	cmd := exec.Command("reprise", args...)
	stdout, err := cmd.StdoutPipe()
	a.must(err)
	stderr, err := cmd.StderrPipe()
	a.must(err)
	a.must(cmd.Start())
	log := bufio.NewReader(stderr)
	a.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_, _ = io.Copy(io.Discard, log)
		if err := cmd.Wait(); err != nil {
			a.t.Errorf("broker exited with %v", err)
		}
	})
	found := regexp.MustCompile(`url=(\S+)/api/`)
	for api == "" {
		line, err := log.ReadString('\n')
		a.must(err)
		if m := found.FindStringSubmatch(line); m != nil {
			api = m[1]
		}
	}
	url, err = bufio.NewReader(stdout).ReadString('\n')
	a.must(err)
	return strings.TrimSpace(url), api
}

// With a certificate, the broker and its management API accept only TLS, and clients can log in with a certificate.
func TestBrokerOverTLS(t *testing.T) {
	a := newAuthority(t)
	a.issue("server")
	a.issue("guest")
	for name, required := range map[string]bool{"optional client certificates": false, "required client certificates": true} {
		t.Run(name, func(t *testing.T) {
			a := *a
			a.t = t
			var flags []string
			if required {
				flags = []string{"--fail-if-no-peer-cert"}
			}
			url, api := a.secureBroker(flags...)
			if !strings.HasPrefix(url, "amqps://guest:guest@127.0.0.1:") || !strings.HasPrefix(api, "https://127.0.0.1:") {
				t.Errorf("got URLs %s and %s", url, api)
			}
			dial := func(url string, config amqp091.Config) error {
				conn, err := amqp091.DialConfig(url, config)
				if err == nil {
					_, err = conn.Channel()
					_ = conn.Close()
				}
				return err
			}
			if err := dial(url, amqp091.Config{TLSClientConfig: a.client("")}); (err != nil) != required {
				t.Errorf("login with a password: got error %v", err)
			}
			external := amqp091.Config{TLSClientConfig: a.client("guest"), SASL: []amqp091.Authentication{&amqp091.ExternalAuth{}}}
			if err := dial(url, external); err != nil {
				t.Errorf("login with a certificate: got error %v", err)
			}
			if err := dial(url, amqp091.Config{TLSClientConfig: &tls.Config{RootCAs: x509.NewCertPool()}}); err == nil {
				t.Error("client accepted a certificate of an unknown authority")
			}
			if err := dial(strings.Replace(url, "amqps:", "amqp:", 1), amqp091.Config{}); err == nil {
				t.Error("client without TLS was accepted")
			}

			transport := &http.Transport{TLSClientConfig: a.client("")}
			defer transport.CloseIdleConnections()
			r, err := http.NewRequest("GET", api+"/api/whoami", nil)
			a.must(err)
			r.SetBasicAuth("guest", "guest")
			answer, err := (&http.Client{Transport: transport}).Do(r)
			a.must(err)
			defer answer.Body.Close()
			if body, err := io.ReadAll(answer.Body); err != nil || !strings.Contains(string(body), `"name":"guest"`) {
				t.Errorf("management API: got %s %s %v", answer.Status, body, err)
			}
		})
	}
}

func TestInvalidTLSFlags(t *testing.T) {
	a := newAuthority(t)
	a.issue("server")
	a.issue("other")
	a.must(os.WriteFile(a.file("text"), []byte("text"), 0o600))
	for _, test := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--certfile", a.file("server")}, "requires both --certfile and --keyfile"},
		{[]string{"--keyfile", a.file("server-key")}, "requires both --certfile and --keyfile"},
		{[]string{"--cacertfile", a.file("authority")}, "requires both --certfile and --keyfile"},
		{[]string{"--fail-if-no-peer-cert", "--certfile", a.file("server"), "--keyfile", a.file("server-key")}, "requires --cacertfile"},
		{[]string{"--certfile", a.file("nosuch"), "--keyfile", a.file("server-key")}, "no such file"},
		{[]string{"--certfile", a.file("server"), "--keyfile", a.file("other-key")}, "private key does not match"},
		{[]string{"--certfile", a.file("server"), "--keyfile", a.file("server-key"), "--cacertfile", a.file("text")}, "has no certificate"},
	} {
		out, err := exec.Command("reprise", append([]string{"broker", "--memory", "--listen", "127.0.0.1:0"}, test.flags...)...).CombinedOutput()
		if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 2 || !strings.Contains(string(out), test.want) {
			t.Errorf("flags %q: got %v\n%s\nwant %q", test.flags, err, out, test.want)
		}
	}
}

// In the file of reprise up, paths of TLS files are relative to the file.
func TestUpOverTLS(t *testing.T) {
	a := newAuthority(t)
	a.issue("server")
	a.issue("guest")
	url, _ := a.secureBroker("--fail-if-no-peer-cert")
	certificate, err := tls.LoadX509KeyPair(a.file("server"), a.file("server-key"))
	a.must(err)
	handled := make(chan string, 1)
	service := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		handled <- string(body)
	}))
	service.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.client("").RootCAs}
	service.StartTLS()
	defer service.Close()
	url = "amqps://" + url[strings.Index(url, "@")+1:] + "?auth_mechanism=external"
	a.must(os.WriteFile(filepath.Join(a.dir, "reprise.yaml"), []byte(
		"broker: "+url+"&cacertfile=authority.pem&certfile=guest.pem&keyfile=./guest-key.pem\n"+
			"workers: [{queue: orders, http: {url: "+service.URL+", cacertfile: authority.pem, certfile: guest.pem, keyfile: guest-key.pem}}]\n"), 0o600))

	up := exec.Command("reprise", "up", "-c", filepath.Join(a.dir, "reprise.yaml"))
	up.Dir, up.Stderr = t.TempDir(), t.Output()
	a.must(up.Start())
	defer func() {
		_ = up.Process.Signal(syscall.SIGTERM)
		if err := up.Wait(); err != nil {
			t.Errorf("reprise up exited with %v", err)
		}
	}()
	publish := exec.Command("reprise", "publish", "--url", url+"&cacertfile="+a.file("authority")+"&certfile="+a.file("guest")+"&keyfile="+a.file("guest-key"),
		"--to", "orders", "--declare", "paid")
	if out, err := publish.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	select {
	case got := <-handled:
		if got != "paid" {
			t.Errorf("service got %q", got)
		}
	case <-time.After(timeout):
		t.Fatal("service got no request")
	}
}

// A password comes from a file, which is not encoded, and the broker has a certificate of a private authority.
func TestUpOverTLSWithPasswordFile(t *testing.T) {
	a := newAuthority(t)
	a.issue("server")
	a.must(os.WriteFile(filepath.Join(a.dir, "password"), []byte("p@ss/word %41\n"), 0o600))
	url, _ := a.secureBroker("--user", "app", "--password-file", filepath.Join(a.dir, "password"))
	address := url[strings.Index(url, "@")+1:]
	a.must(os.WriteFile(filepath.Join(a.dir, "reprise.yaml"), []byte(
		`broker: "amqps://app:${file:password}@`+address+`?cacertfile=authority.pem"`+"\nworkers: [{queue: orders, exec: [tee, handled]}]\n"), 0o600))
	up := exec.Command("reprise", "up", "-c", filepath.Join(a.dir, "reprise.yaml"))
	up.Stderr = t.Output()
	a.must(up.Start())
	defer func() {
		_ = up.Process.Signal(syscall.SIGTERM)
		if err := up.Wait(); err != nil {
			t.Errorf("reprise up exited with %v", err)
		}
	}()
	out, err := exec.Command("reprise", "publish", "--url", "amqps://app:p%40ss%2Fword%20%2541@"+address+"?cacertfile="+a.file("authority"),
		"--to", "orders", "--declare", "paid").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	testkit.Eventually(t, timeout, func() bool {
		handled, _ := os.ReadFile(filepath.Join(a.dir, "handled")) // the handler creates it
		return string(handled) == "paid"
	})
}

// With users and TLS, other machines can use the embedded broker of reprise up. The well-known login does not exist then.
func TestUpServesUsersOverTLS(t *testing.T) {
	a := newAuthority(t)
	a.issue("server")
	a.issue("phone")
	a.must(os.WriteFile(filepath.Join(a.dir, "app"), []byte("p@ss/word\n"), 0o600))
	a.must(os.WriteFile(filepath.Join(a.dir, "reprise.yaml"), []byte(`
listen:
  address: 0.0.0.0:0
  users: {app: "${file:app}", phone: "${PHONE:-secret}"}
  certfile: server.pem
  keyfile: server-key.pem
  cacertfile: authority.pem
workers: [{queue: orders, exec: [cat]}]
`), 0o600))
	up := exec.Command("reprise", "up", "-c", filepath.Join(a.dir, "reprise.yaml"), "--log", "json")
	log, err := up.StderrPipe()
	a.must(err)
	a.must(up.Start())
	var port string
	handled := make(chan struct{}, 10)
	go func() {
		defer close(handled)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			t.Log(lines.Text())
			if strings.Contains(lines.Text(), `"text":"paid"`) {
				handled <- struct{}{}
			}
			if m := regexp.MustCompile(`amqps://localhost:(\d+)"`).FindStringSubmatch(lines.Text()); m != nil {
				port = m[1]
				handled <- struct{}{}
			}
		}
	}()
	defer func() {
		_ = up.Process.Signal(syscall.SIGTERM)
		for range handled { // until the process has exited
		}
		if err := up.Wait(); err != nil {
			t.Errorf("reprise up exited with %v", err)
		}
	}()
	wait := func(what string) {
		t.Helper()
		select {
		case _, ok := <-handled:
			if !ok {
				t.Fatal(what + ": reprise up has exited")
			}
		case <-time.After(timeout):
			t.Fatal(what + ": not in the log")
		}
	}
	wait("URL of the broker")
	for _, test := range []struct {
		login string // user:password
		query string
		want  string
	}{
		{"app:p%40ss%2Fword@", "", ""},
		{"phone:secret@", "", ""},
		{"", "&auth_mechanism=external&certfile=" + a.file("phone") + "&keyfile=" + a.file("phone-key"), ""},
		{"app:secret@", "", "refused user \"app\""},
		{"guest:guest@", "", "refused user \"guest\""},
	} {
		out, err := exec.Command("reprise", "publish", "--to", "orders", "paid", "--url",
			"amqps://"+test.login+"127.0.0.1:"+port+"?cacertfile="+a.file("authority")+test.query).CombinedOutput()
		if (err == nil) != (test.want == "") || !strings.Contains(string(out), test.want) {
			t.Errorf("%s: got %v, %s, want %q", test.login, err, out, test.want)
		}
		if test.want == "" {
			wait("message of " + test.login)
		}
	}
}

// reprise up --check opens the TLS files of a configuration.
func TestUpChecksTLSFiles(t *testing.T) {
	a := newAuthority(t)
	a.issue("other")
	a.must(os.WriteFile(a.file("text"), []byte("text"), 0o600))
	for _, test := range []struct{ broker, http, duplicates, management, webhook, want string }{
		{broker: "cacertfile=authority.pem&certfile=other.pem&keyfile=other-key.pem", http: "authority.pem", duplicates: "sslrootcert=authority.pem&sslcert=other.pem&sslkey=other-key.pem"},
		{broker: "cacertfile=nosuch.pem", want: ":1:9: cannot use the files of the URL: cannot read the authorities: open DIR/nosuch.pem: no such file"},
		{broker: "cacertfile=text.pem", want: ":1:9: cannot use the files of the URL: DIR/text.pem has no certificate in PEM"},
		{broker: "cacertfile=~/ca.pem", want: ":1:9: ~ is not expanded"},
		{broker: "certfile=nosuch.pem&keyfile=other-key.pem", want: "load client certificate: open DIR/nosuch.pem"},
		{broker: "certfile=other.pem&keyfile=authority-key.pem", want: "private key does not match public key"},
		{broker: "certfile=other.pem&keyfile=text.pem", want: "failed to find any PEM data in key input"},
		{http: "nosuch.pem", want: ":3:64: cannot read the authorities: open DIR/nosuch.pem: no such file"},
		{http: "other-key.pem", want: ":3:64: DIR/other-key.pem has no certificate in PEM"},
		{duplicates: "sslrootcert=nosuch.pem", want: "DIR/nosuch.pem: no such file"},
		{duplicates: "sslcert=other.pem&sslkey=nosuch.pem", want: "DIR/nosuch.pem: no such file"},
		{duplicates: "sslrootcert=system"},
		{management: "authority.pem", webhook: "authority.pem"},
		{management: "nosuch.pem", want: "management: cannot read the authorities: open DIR/nosuch.pem: no such file"},
		{management: "text.pem", want: "management: DIR/text.pem has no certificate in PEM"},
		{webhook: "nosuch.pem", want: "webhook 127.0.0.1: cannot read the authorities: open DIR/nosuch.pem: no such file"},
		{webhook: "text.pem", want: "webhook 127.0.0.1: DIR/text.pem has no certificate in PEM"},
	} {
		http := "https://127.0.0.1"
		if test.http != "" {
			http = "{url: " + http + ", cacertfile: " + test.http + "}"
		}
		optional := ""
		if test.management+test.webhook != "" {
			optional = "console: {management: 'https://127.0.0.1:15671" + strings.TrimSuffix("?cacertfile="+test.management, "?cacertfile=") + "', listen: 127.0.0.1:0}\n" +
				"notify: [{url: https://127.0.0.1/hook" + strings.TrimSuffix(", cacertfile: "+test.webhook, ", cacertfile: ") + "}]\narchive: sqlite:failed.db\n"
		}
		a.must(os.WriteFile(filepath.Join(a.dir, "reprise.yaml"), []byte(
			"broker: amqps://127.0.0.1?heartbeat=5"+strings.TrimSuffix("&"+test.broker, "&")+"\n"+
				"workers:\n  - {queue: orders, http: "+http+", duplicates: 'postgres://h/d?sslmode=verify-full"+strings.TrimSuffix("&"+test.duplicates, "&")+"'}\n"+optional), 0o600))
		check := exec.Command("reprise", "up", "--check", "-c", filepath.Join(a.dir, "reprise.yaml"))
		check.Dir = t.TempDir()
		out, err := check.CombinedOutput()
		got := strings.ReplaceAll(string(out), a.dir, "DIR")
		if (err == nil) != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%+v: got %v\n%s", test, err, got)
		}
	}
}

// A management API and a webhook whose certificates have an authority of the operator's require cacertfile.
func TestManagementAndWebhookOverTLS(t *testing.T) {
	a := newAuthority(t)
	a.issue("server")
	url, api := a.secureBroker()
	certificate, err := tls.LoadX509KeyPair(a.file("server"), a.file("server-key"))
	a.must(err)
	hook := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	hook.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	hook.StartTLS()
	defer hook.Close()
	declare := exec.Command("reprise", "publish", "--url", url+"?cacertfile="+a.file("authority"), "--to", "orders", "--declare", "paid")
	if out, err := declare.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, trusted := range []bool{true, false} {
		management, key := api, ""
		if trusted {
			management, key = api+"?cacertfile="+a.file("authority"), ", cacertfile: authority.pem"
		}
		file := filepath.Join(a.dir, "notify.yaml")
		a.must(os.WriteFile(file, []byte("notify: [{url: "+hook.URL+key+"}]\n"), 0o600))
		for _, args := range [][]string{
			{"redrive", "--from", "orders", "--to", "paid", "--by-queue-name", "--dry-run", "--url", url + "?cacertfile=" + a.file("authority"), "--management", management},
			{"notify", "test", "-c", file},
		} {
			out, err := exec.Command("reprise", args...).CombinedOutput()
			if refused := strings.Contains(string(out), "certificate signed by unknown authority"); refused == trusted || trusted && err != nil {
				t.Errorf("%q: got %v\n%s", args, err, out)
			}
		}
	}
}
