// Command containerd-shim-runc-v2 is the process between containerd and the containers of one pod.
package main

import (
	"context"

	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/manager"
	"github.com/containerd/containerd/v2/pkg/shim"

	_ "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/task/plugin"
)

func main() {
	shim.RunShim(context.Background(), manager.NewShimManager("io.containerd.runc.v2"))
}
