// Package kubernetestest renders the manifests in deploy/kubernetes with kustomize, and validates the objects with the
// types of Kubernetes.
package kubernetestest
