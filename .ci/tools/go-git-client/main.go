// Reads and writes a repository over HTTPS by go-git, for the tests of the host.
//
//	go-git-client list|clone|push URL DIR [REFSPEC]
//	go-git-client poll URL COUNT SECONDS
//
// CA_FILE names the authority in PEM; USER_NAME and USER_SECRET are shown with every request. `list` prints a line for
// each ref; `clone` makes a bare repository in DIR; `push` pushes one refspec from the repository in DIR. `poll` lists so
// often with so long a pause between, for the bench, and prints nothing.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	git "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/transport/client"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/go-git/go-git/v5/storage/memory"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 3 {
		return errors.New("usage: go-git-client list|clone|push URL DIR [REFSPEC]")
	}
	url, dir := args[1], args[2]
	ca, err := os.ReadFile(os.Getenv("CA_FILE"))
	if err != nil {
		return err
	}
	auth := &githttp.BasicAuth{Username: os.Getenv("USER_NAME"), Password: os.Getenv("USER_SECRET")}
	switch args[0] {
	case "list":
		remote := git.NewRemote(memory.NewStorage(), &config.RemoteConfig{Name: "origin", URLs: []string{url}})
		refs, err := remote.List(&git.ListOptions{Auth: auth, CABundle: ca})
		for _, ref := range refs {
			if ref.Type() == plumbing.HashReference {
				fmt.Printf("%s\t%s\n", ref.Hash(), ref.Name())
			}
		}
		return err
	case "poll":
		if len(args) < 4 {
			return errors.New("poll needs a count and seconds")
		}
		return poll(url, auth, ca, args[2], args[3])
	case "clone":
		_, err := git.PlainClone(dir, true, &git.CloneOptions{URL: url, Auth: auth, CABundle: ca})
		return err
	case "push":
		if len(args) < 4 {
			return errors.New("push needs a refspec")
		}
		repository, err := git.PlainOpen(dir)
		if err != nil {
			return err
		}
		return repository.Push(&git.PushOptions{
			RemoteURL: url, Auth: auth, CABundle: ca, RefSpecs: []config.RefSpec{config.RefSpec(args[3])},
		})
	}
	return fmt.Errorf("no command is called %q", args[0])
}

// One client for all polls: with CABundle each of them would leave a connection behind.
func poll(url string, auth *githttp.BasicAuth, ca []byte, times, seconds string) error {
	count, err := strconv.Atoi(times)
	if err != nil {
		return err
	}
	pause, err := strconv.Atoi(seconds)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	client.InstallProtocol("https", githttp.NewClient(&http.Client{Transport: transport}))
	remote := git.NewRemote(memory.NewStorage(), &config.RemoteConfig{Name: "origin", URLs: []string{url}})
	for range count {
		if _, err := remote.List(&git.ListOptions{Auth: auth}); err != nil {
			return err
		}
		time.Sleep(time.Duration(pause) * time.Second)
	}
	return nil
}
