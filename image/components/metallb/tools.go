//go:build tools

// MetalLB's two programs are main packages upstream; this file only keeps their dependencies in go.mod and go.sum, at the
// versions that Kubernetes 1.35 takes: what both have in common is built once. Kubernetes 1.36's libraries need a newer
// controller-runtime than MetalLB is written for.
package tools

import (
	_ "go.universe.tf/metallb/controller"
	_ "go.universe.tf/metallb/speaker"
)
