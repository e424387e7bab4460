// Command kubernetes is every Kubernetes program that a node runs, in one file.
//
// The programs share most of their code, so linking them together stores it once. Which of them runs is decided by
// the name the file is called by (a symlink), or by the first argument when it is called by any other name:
// `kubernetes kubelet --version`. Each entry does what the upstream main package of that program does.
//
// The source serves two minor versions: 1.37.mod and 1.36.mod next to it pin one each (`go build -modfile=1.37.mod`).
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app"
	kubeadmerrors "k8s.io/kubernetes/cmd/kubeadm/app/util/errors"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	_ "time/tzdata" // time zones of CronJobs

	_ "k8s.io/client-go/plugin/pkg/client/auth"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

var programs = map[string]func(){
	"kube-apiserver":          func() { run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() { run(controllermanager.NewControllerManagerCommand()) },
	"kube-proxy":              func() { run(proxy.NewProxyCommand()) },
	"kube-scheduler":          func() { run(scheduler.NewSchedulerCommand()) },
	"kubeadm":                 runKubeadm,
	"kubectl":                 runKubectl,
	"kubelet":                 func() { run(kubelet.NewKubeletCommand(context.Background())) },
}

func main() {
	program, found := programs[filepath.Base(os.Args[0])]
	if !found && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		program, found = programs[filepath.Base(os.Args[0])]
	}
	if !found {
		fmt.Fprintf(os.Stderr, "usage: %s PROGRAM [ARGUMENT…], with PROGRAM one of: %s\n",
			filepath.Base(os.Args[0]), strings.Join(names(), " "))
		os.Exit(2)
	}
	program()
}

func names() []string {
	var names []string
	for name := range programs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func run(command *cobra.Command) {
	os.Exit(cli.Run(command))
}

func runKubeadm() {
	forgetGlobalFlags()
	kubeadmerrors.HandleError(kubeadm.Run())
}

func runKubectl() {
	forgetGlobalFlags()
	logs.GlogSetter(kubectl.GetLogVerbosity(os.Args)) //nolint:errcheck // as upstream: the flag is parsed again later
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
}

// forgetGlobalFlags drops the flags that the other programs' libraries have added to the process-wide sets: kubeadm and
// kubectl offer all of those to their user.
func forgetGlobalFlags() {
	flag.CommandLine = flag.NewFlagSet(os.Args[0], flag.ExitOnError)
	pflag.CommandLine = pflag.NewFlagSet(os.Args[0], pflag.ExitOnError)
}
