package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io/fs"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// source is the address of the repository.
const source = "https://github.com/reprisemq/reprise"

// nonroot is the user and group of the image.
const nonroot = 65532

// blob is the OCI descriptor of a part of an image.
type blob struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    map[string]string `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// image is the archive of an image: an OCI image layout, with the file manifest.json that older versions of Docker read.
type image struct {
	files     []file
	manifests []blob           // one for each architecture
	docker    []map[string]any // content of manifest.json
}

// add stores a blob under its digest.
func (i *image) add(mediaType string, content []byte) blob {
	sum := fmt.Sprintf("%x", sha256.Sum256(content))
	i.files = append(i.files, file{name: "blobs/sha256/" + sum, content: content})
	return blob{MediaType: mediaType, Digest: "sha256:" + sum, Size: len(content)}
}

// packImage adds the image of an architecture.
func (r *release) packImage(program []byte, arch string, docs documents) error {
	const dir = fs.ModeDir
	rootfs := []file{
		{name: "etc", mode: dir | 0o755},
		{name: "etc/passwd", content: fmt.Appendf(nil, "root:x:0:0:root:/:/sbin/nologin\nreprise:x:%d:%[1]d:reprise:/var/lib/reprise:/sbin/nologin\n", nonroot)},
		{name: "etc/group", content: fmt.Appendf(nil, "root:x:0:\nreprise:x:%d:\n", nonroot)},
		{name: "etc/reprise", mode: dir | 0o755},
		{name: "etc/ssl", mode: dir | 0o755},
		{name: "etc/ssl/certs", mode: dir | 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", content: rootCertificates()},
		{name: "tmp", mode: dir | fs.ModeSticky | 0o777},
		{name: "usr", mode: dir | 0o755},
		{name: "usr/bin", mode: dir | 0o755},
		{name: "usr/bin/reprise", mode: 0o755, content: program},
		{name: "usr/share", mode: dir | 0o755},
		{name: "usr/share/doc", mode: dir | 0o755},
		{name: "usr/share/doc/reprise", mode: dir | 0o755},
		{name: "usr/share/doc/reprise/LICENSE", content: docs.content("LICENSE")},
		{name: "usr/share/doc/reprise/THIRD_PARTY_LICENSES", content: docs.content("THIRD_PARTY_LICENSES")},
		{name: "var", mode: dir | 0o755},
		{name: "var/lib", mode: dir | 0o755},
		{name: "var/lib/reprise", mode: dir | 0o700, owner: nonroot},
	}
	layer, err := tarball(rootfs, r.time)
	if err != nil {
		return err
	}
	compressed, err := gzipped(layer)
	if err != nil {
		return err
	}
	config, err := json.Marshal(r.imageConfig(arch, fmt.Sprintf("sha256:%x", sha256.Sum256(layer))))
	if err != nil {
		return fmt.Errorf("cannot encode configuration of image: %w", err)
	}

	i := &r.image
	configBlob := i.add("application/vnd.oci.image.config.v1+json", config)
	layerBlob := i.add("application/vnd.oci.image.layer.v1.tar+gzip", compressed)
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": configBlob, "layers": []blob{layerBlob},
	})
	if err != nil {
		return fmt.Errorf("cannot encode manifest of image: %w", err)
	}
	manifestBlob := i.add("application/vnd.oci.image.manifest.v1+json", manifest)
	manifestBlob.Platform = map[string]string{"os": "linux", "architecture": arch}
	i.manifests = append(i.manifests, manifestBlob)
	i.docker = append(i.docker, map[string]any{
		"Config": blobName(configBlob), "Layers": []string{blobName(layerBlob)}, "RepoTags": []string{"reprise:" + r.number() + "-" + arch},
	})
	return nil
}

// writeImage writes the image of all architectures. Its index refers to an index of the architectures, as in a registry.
func (r *release) writeImage() error {
	const mediaType = "application/vnd.oci.image.index.v1+json"
	i := r.image
	index := func(manifests ...blob) any {
		return map[string]any{"schemaVersion": 2, "mediaType": mediaType, "manifests": manifests}
	}
	content, err := json.Marshal(index(i.manifests...))
	if err != nil {
		return fmt.Errorf("cannot encode index of image: %w", err)
	}
	architectures := i.add(mediaType, content)
	architectures.Annotations = map[string]string{
		"org.opencontainers.image.ref.name": r.number(), "io.containerd.image.name": "docker.io/library/reprise:" + r.number(),
	}
	for _, f := range []struct {
		name    string
		content any
	}{
		{"oci-layout", map[string]string{"imageLayoutVersion": "1.0.0"}},
		{"index.json", index(architectures)},
		{"manifest.json", i.docker},
	} {
		content, err := json.Marshal(f.content)
		if err != nil {
			return fmt.Errorf("cannot encode %s of image: %w", f.name, err)
		}
		i.files = append(i.files, file{name: f.name, content: content})
	}
	archive, err := tarball(i.files, r.time)
	if err != nil {
		return err
	}
	return r.write(fmt.Sprintf("reprise_%s.image.tar", r.number()), archive)
}

func blobName(b blob) string { return "blobs/sha256/" + b.Digest[len("sha256:"):] }

// imageConfig returns the image configuration of the OCI image specification.
func (r *release) imageConfig(arch, layer string) map[string]any {
	return map[string]any{
		"created": r.time, "os": "linux", "architecture": arch,
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{layer}},
		"history": []any{map[string]any{"created": r.time, "created_by": "internal/tools/release"}},
		"config": map[string]any{
			"User":       fmt.Sprintf("%d:%[1]d", nonroot),
			"Entrypoint": []string{"/usr/bin/reprise"},
			"Cmd":        []string{"up", "-c", "/etc/reprise/reprise.yaml"},
			"Env":        []string{"PATH=/usr/bin", "HOME=/var/lib/reprise"},
			"WorkingDir": "/var/lib/reprise",
			"Volumes":    map[string]any{"/var/lib/reprise": struct{}{}},
			"Labels": map[string]string{
				"org.opencontainers.image.title":       "reprise",
				"org.opencontainers.image.description": "Reliable message processing on RabbitMQ",
				"org.opencontainers.image.version":     r.number(),
				"org.opencontainers.image.revision":    r.commit,
				"org.opencontainers.image.created":     r.time.Format("2006-01-02T15:04:05Z"),
				"org.opencontainers.image.source":      source,
				"org.opencontainers.image.url":         source,
				"org.opencontainers.image.licenses":    "Apache-2.0",
			},
		},
	}
}

// rootCertificates returns Go's bundle of root certificates as PEM. It omits roots that are trusted only for older
// certificates, because a PEM file cannot express this condition.
func rootCertificates() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return b.Bytes()
}
