//go:build tools

// runc starts containers. It is a separate main package upstream; this file only keeps its dependencies in go.mod and
// go.sum.
package tools

import _ "github.com/opencontainers/runc"
