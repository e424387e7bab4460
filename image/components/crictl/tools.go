//go:build tools

// crictl queries the container runtime as the kubelet does. It is a separate main package upstream. This file keeps
// its dependencies in go.mod and go.sum.
package tools

import _ "sigs.k8s.io/cri-tools/cmd/crictl"
