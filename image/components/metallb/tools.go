//go:build tools

// MetalLB's two programs are main packages upstream. This file keeps their dependencies in go.mod and go.sum, with
// the libraries of Kubernetes 1.35: those of 1.36 need a newer controller-runtime than MetalLB's.
package tools

import (
	_ "go.universe.tf/metallb/controller"
	_ "go.universe.tf/metallb/speaker"
)
