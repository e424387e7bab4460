//go:build tools

// metrics-server is a separate main package upstream. This file keeps its dependencies in go.mod and go.sum.
package tools

import _ "sigs.k8s.io/metrics-server/cmd/metrics-server"
