package config

import (
	"bytes"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

// manifest contains the fields of Kubernetes objects that docs/how-to/run-in-kubernetes.md uses.
type manifest struct {
	APIVersion string            `yaml:"apiVersion"`
	Kind       string            `yaml:"kind"`
	Metadata   metadata          `yaml:"metadata"`
	StringData map[string]string `yaml:"stringData"` // of a Secret
	Data       map[string]string `yaml:"data"`       // of a ConfigMap
	Spec       struct {
		Replicas int `yaml:"replicas"`
		Selector struct {
			MatchLabels map[string]string `yaml:"matchLabels"`
		} `yaml:"selector"`
		Template struct {
			Metadata metadata `yaml:"metadata"`
			Spec     struct {
				TerminationGracePeriodSeconds int         `yaml:"terminationGracePeriodSeconds"`
				InitContainers                []container `yaml:"initContainers"`
				Containers                    []container `yaml:"containers"`
				Volumes                       []struct {
					Name      string   `yaml:"name"`
					ConfigMap metadata `yaml:"configMap"`
				} `yaml:"volumes"`
			} `yaml:"spec"`
		} `yaml:"template"`
	} `yaml:"spec"`
}

type metadata struct {
	Name   string            `yaml:"name"`
	Labels map[string]string `yaml:"labels"`
}

type container struct {
	Name          string   `yaml:"name"`
	Image         string   `yaml:"image"`
	RestartPolicy string   `yaml:"restartPolicy"`
	Args          []string `yaml:"args"`
	EnvFrom       []struct {
		SecretRef metadata `yaml:"secretRef"`
	} `yaml:"envFrom"`
	Ports []struct {
		Name          string `yaml:"name"`
		ContainerPort int    `yaml:"containerPort"`
	} `yaml:"ports"`
	StartupProbe   probe `yaml:"startupProbe"`
	LivenessProbe  probe `yaml:"livenessProbe"`
	ReadinessProbe probe `yaml:"readinessProbe"`
	VolumeMounts   []struct {
		Name      string `yaml:"name"`
		MountPath string `yaml:"mountPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
	SecurityContext map[string]bool `yaml:"securityContext"`
}

type probe struct {
	HTTPGet struct {
		Path string `yaml:"path"`
		Port int    `yaml:"port"`
	} `yaml:"httpGet"`
	TCPSocket struct {
		Port int `yaml:"port"`
	} `yaml:"tcpSocket"`
	PeriodSeconds    int `yaml:"periodSeconds"`
	FailureThreshold int `yaml:"failureThreshold"`
	TimeoutSeconds   int `yaml:"timeoutSeconds"`
}

// The manifests of the guide decode without unknown fields, refer to each other, and agree with the file of reprise up.
func TestKubernetesManifests(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "how-to", "run-in-kubernetes.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := bytes.Cut(page, []byte("```yaml\n"))
	text, _, _ = bytes.Cut(text, []byte("```\n"))
	kinds := map[string]manifest{}
	for d := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()); ; {
		var m manifest
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		kinds[m.APIVersion+" "+m.Kind] = m
	}
	secret, files, deployment := kinds["v1 Secret"], kinds["v1 ConfigMap"], kinds["apps/v1 Deployment"]
	pod := deployment.Spec.Template.Spec
	if len(kinds) != 3 || len(pod.InitContainers) != 1 || len(pod.Containers) != 1 || len(pod.Volumes) != 1 {
		t.Fatalf("got %d kinds, %d init containers, %d containers and %d volumes, want 3, 1, 1 and 1", len(kinds), len(pod.InitContainers), len(pod.Containers), len(pod.Volumes))
	}
	equal := func(what string, got, want any) {
		t.Helper()
		if got != want || got == "" || got == 0 {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	worker, handler := pod.Containers[0], pod.InitContainers[0]
	equal("restart policy of the sidecar", handler.RestartPolicy, "Always")
	equal("label", deployment.Spec.Template.Metadata.Labels["app"], deployment.Spec.Selector.MatchLabels["app"])
	equal("secret", worker.EnvFrom[0].SecretRef.Name, secret.Metadata.Name)
	equal("config map", pod.Volumes[0].ConfigMap.Name, files.Metadata.Name)
	equal("volume", worker.VolumeMounts[0].Name, pod.Volumes[0].Name)
	if !strings.HasPrefix(worker.Image, "registry.") || !strings.HasPrefix(handler.Image, "registry.") {
		t.Errorf("got images %q and %q", worker.Image, handler.Image)
	}

	path := worker.Args[2]
	equal("command", strings.Join(worker.Args[:2], " "), "up -c")
	equal("directory of the file", filepath.Dir(path), worker.VolumeMounts[0].MountPath)
	cfg, err := Parse(path, []byte(files.Data[filepath.Base(path)]), func(name string) (string, bool) {
		value, ok := secret.StringData[name]
		return value, ok
	})
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(worker.Ports[0].ContainerPort)
	equal("port of the metrics", cfg.Metrics, "0.0.0.0:"+port)
	equal("port of the liveness probe", worker.LivenessProbe.HTTPGet.Port, worker.Ports[0].ContainerPort)
	equal("port of the readiness probe", worker.ReadinessProbe.HTTPGet.Port, worker.Ports[0].ContainerPort)
	equal("path of the liveness probe", worker.LivenessProbe.HTTPGet.Path, "/healthz")
	equal("path of the readiness probe", worker.ReadinessProbe.HTTPGet.Path, "/readyz")
	equal("port of the startup probe", handler.StartupProbe.TCPSocket.Port, handler.Ports[0].ContainerPort)
	for _, w := range cfg.Workers {
		u, err := url.Parse(w.HTTP.URL)
		if err != nil {
			t.Fatal(err)
		}
		equal("address of the handler", u.Host, "127.0.0.1:"+strconv.Itoa(handler.Ports[0].ContainerPort))
		grace := time.Duration(pod.TerminationGracePeriodSeconds) * time.Second
		if w.HTTP.Timeout > w.DrainTimeout || w.DrainTimeout+15*time.Second > grace {
			t.Errorf("timeout %s, drain %s and grace period %s do not fit", w.HTTP.Timeout, w.DrainTimeout, grace)
		}
	}
}
