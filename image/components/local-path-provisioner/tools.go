//go:build tools

// local-path-provisioner is a separate main package upstream. This file keeps its dependencies in go.mod and go.sum,
// at the versions of Kubernetes 1.36: common dependencies are compiled once.
package tools

import _ "github.com/rancher/local-path-provisioner"
