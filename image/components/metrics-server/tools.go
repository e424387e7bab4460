//go:build tools

// metrics-server is a separate main package upstream; this file only keeps its dependencies in go.mod and go.sum.
package tools

import _ "sigs.k8s.io/metrics-server/cmd/metrics-server"
