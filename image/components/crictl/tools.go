//go:build tools

// crictl asks the container runtime as the kubelet does. It is a separate main package upstream; this file only keeps
// its dependencies in go.mod and go.sum.
package tools

import _ "sigs.k8s.io/cri-tools/cmd/crictl"
