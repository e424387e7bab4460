//go:build tools

// runc starts containers. It is a main package of its own upstream; this file only keeps its dependencies in go.mod and
// go.sum.
package tools

import _ "github.com/opencontainers/runc"
