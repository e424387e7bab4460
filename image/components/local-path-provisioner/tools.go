//go:build tools

// local-path-provisioner is a separate main package upstream; this file only keeps its dependencies in go.mod and go.sum,
// at the versions that Kubernetes 1.36 takes: what both have in common is built once.
package tools

import _ "github.com/rancher/local-path-provisioner"
