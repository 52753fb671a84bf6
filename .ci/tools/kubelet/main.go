// One program that is the kubelet and kube-proxy, by its first argument.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	commands := map[string]func() *cobra.Command{
		"kubelet":    func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
		"kube-proxy": proxy.NewProxyCommand,
	}
	if len(os.Args) > 1 {
		name := os.Args[1]
		os.Args = append([]string{name}, os.Args[2:]...)
		if command, ok := commands[name]; ok {
			os.Exit(cli.Run(command()))
		}
	}
	fmt.Fprintln(os.Stderr, "usage: kubelet kubelet|kube-proxy [OPTION…]")
	os.Exit(2)
}
