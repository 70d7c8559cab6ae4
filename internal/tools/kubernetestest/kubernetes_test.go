package kubernetestest

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// workload is a Deployment or a StatefulSet.
type workload struct {
	labels   map[string]string // of the selector
	template corev1.PodTemplateSpec
	claims   []corev1.PersistentVolumeClaim
}

// objects contains the rendered objects. The keys are names.
type objects struct {
	workloads map[string]workload
	services  map[string]corev1.Service
	secrets   map[string]corev1.Secret
	configs   map[string]corev1.ConfigMap
	others    map[string]string // YAML; the keys are kinds
}

// render builds a kustomization, and decodes the objects of Kubernetes without unknown fields.
func render(t *testing.T, files filesys.FileSystem, dir string) objects {
	t.Helper()
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, dir)
	if err != nil {
		t.Fatal(err)
	}
	o := objects{map[string]workload{}, map[string]corev1.Service{}, map[string]corev1.Secret{}, map[string]corev1.ConfigMap{}, map[string]string{}}
	for _, r := range rendered.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		decode := func(to any) {
			t.Helper()
			if err := yaml.UnmarshalStrict(text, to); err != nil {
				t.Errorf("%s: %v", r.CurId(), err)
			}
		}
		switch r.GetApiVersion() + " " + r.GetKind() {
		case "apps/v1 Deployment":
			var d appsv1.Deployment
			decode(&d)
			o.workloads[d.Name] = workload{d.Spec.Selector.MatchLabels, d.Spec.Template, nil}
		case "apps/v1 StatefulSet":
			var s appsv1.StatefulSet
			decode(&s)
			o.workloads[s.Name] = workload{s.Spec.Selector.MatchLabels, s.Spec.Template, s.Spec.VolumeClaimTemplates}
		case "v1 Service":
			var s corev1.Service
			decode(&s)
			o.services[s.Name] = s
		case "v1 Secret":
			var s corev1.Secret
			decode(&s)
			o.secrets[s.Name] = s
		case "v1 ConfigMap":
			var c corev1.ConfigMap
			decode(&c)
			o.configs[c.Name] = c
		default:
			o.others[r.GetKind()] = string(text)
		}
	}
	return o
}

func TestManifestsRefer(t *testing.T) {
	o := render(t, filesys.MakeFsOnDisk(), "../../../deploy/kubernetes")
	if len(o.workloads) != 3 || len(o.services) != 2 || len(o.secrets) != 1 || len(o.configs) != 1 || len(o.others) != 0 {
		t.Fatalf("got %d workloads, %d services, %d secrets, %d config maps and %d others", len(o.workloads), len(o.services), len(o.secrets), len(o.configs), len(o.others))
	}
	for name, w := range o.workloads {
		checkPod(t, o, name, w)
	}
	for name, s := range o.services {
		w, ok := o.workloads[name]
		if !ok || fmt.Sprint(s.Spec.Selector) != fmt.Sprint(w.template.Labels) {
			t.Errorf("service %s selects %v, and no pod", name, s.Spec.Selector)
		}
		for _, p := range s.Spec.Ports {
			if !hasPort(w.template.Spec.Containers[0], p.TargetPort.StrVal) {
				t.Errorf("service %s: the pod has no port %q", name, p.TargetPort.StrVal)
			}
		}
	}
}

// checkPod checks that a pod refers only to existing objects, is probed, and runs without privileges.
func checkPod(t *testing.T, o objects, name string, w workload) {
	t.Helper()
	pod := w.template.Spec
	if fmt.Sprint(w.labels) != fmt.Sprint(w.template.Labels) {
		t.Errorf("%s: selector %v does not match the labels %v", name, w.labels, w.template.Labels)
	}
	var volumes []string
	for _, v := range pod.Volumes {
		volumes = append(volumes, v.Name)
		if v.ConfigMap != nil {
			if _, ok := o.configs[v.ConfigMap.Name]; !ok {
				t.Errorf("%s: config map %s not found", name, v.ConfigMap.Name)
			}
		}
	}
	for _, c := range w.claims {
		volumes = append(volumes, c.Name)
	}
	for _, c := range pod.Containers {
		for _, m := range c.VolumeMounts {
			if !slices.Contains(volumes, m.Name) {
				t.Errorf("%s: volume %s not found", name, m.Name)
			}
		}
		for _, e := range c.Env {
			if e.ValueFrom != nil {
				ref := e.ValueFrom.SecretKeyRef
				if _, ok := o.secrets[ref.Name].Data[ref.Key]; !ok {
					t.Errorf("%s: key %s of secret %s not found", name, ref.Key, ref.Name)
				}
			}
		}
		for _, e := range c.EnvFrom {
			if _, ok := o.secrets[e.SecretRef.Name]; !ok {
				t.Errorf("%s: secret %s not found", name, e.SecretRef.Name)
			}
		}
		for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
			if p != nil && p.HTTPGet != nil && !hasPort(c, p.HTTPGet.Port.StrVal) || p != nil && p.TCPSocket != nil && !hasPort(c, p.TCPSocket.Port.StrVal) {
				t.Errorf("%s: the container has no port of the probe %+v", name, p)
			}
		}
		if s := c.SecurityContext; c.LivenessProbe == nil || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || !*pod.SecurityContext.RunAsNonRoot {
			t.Errorf("%s: the container must have a liveness probe and no privileges", name)
		}
	}
	for _, c := range pod.InitContainers {
		if c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways {
			t.Errorf("%s: init container %s is not a sidecar", name, c.Name)
		}
	}
}

func hasPort(c corev1.Container, name string) bool {
	return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == name })
}

// The component changes the workers, and refers to the generated secret.
func TestKEDARefersToSecret(t *testing.T) {
	root, err := filepath.Abs("../../../deploy/kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if root, err = filepath.Rel(dir, root); err != nil {
		t.Fatal(err)
	}
	files := filesys.MakeFsOnDisk()
	if err := files.WriteFile(dir+"/kustomization.yaml", fmt.Appendf(nil, "resources: [%s]\ncomponents: [%[1]s/keda]\n", root)); err != nil {
		t.Fatal(err)
	}
	o := render(t, files, dir)
	if !strings.Contains(o.others["ScaledObject"], "maxReplicaCount: 10") {
		t.Errorf("got %q", o.others["ScaledObject"])
	}
	for name := range o.secrets {
		if !strings.Contains(o.others["TriggerAuthentication"], "name: "+name+"\n") {
			t.Errorf("secret %s not found in %s", name, o.others["TriggerAuthentication"])
		}
	}
}
