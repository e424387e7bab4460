package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"

	"vcenter/bodies"
)

// The test program is also the program itself, and a command that carries bodies, as its first argument says.
func TestMain(m *testing.M) {
	switch first := append(os.Args, "")[1]; first {
	case "-directory":
		main()
	case "carry":
		carry()
	default:
		os.Exit(m.Run())
	}
}

// carry starts everything, and says that Tools run.
func carry() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var asked bodies.Request
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			os.Exit(3)
		}
		reply, _ := json.Marshal(bodies.Reply{ID: asked.ID})
		fmt.Println(string(reply))
		if asked.Verb == "start" {
			event, _ := json.Marshal(bodies.Event{Event: bodies.Tools, VM: asked.VM, Run: asked.Run, Running: true, Hostname: "carried"})
			fmt.Println(string(event))
		}
	}
}

func program(t *testing.T, arguments ...string) (*exec.Cmd, io.WriteCloser, map[string]string) {
	t.Helper()
	process := exec.Command(os.Args[0], append([]string{"-directory", t.TempDir()}, arguments...)...)
	process.Stderr = os.Stderr
	input, err := process.StdinPipe()
	must(t, err)
	output, err := process.StdoutPipe()
	must(t, err)
	must(t, process.Start())
	var ready map[string]string
	must(t, json.NewDecoder(output).Decode(&ready))
	return process, input, ready
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestItServesUntilItsInputEnds(t *testing.T) {
	ctx := context.Background()
	users := filepath.Join(t.TempDir(), "users.json")
	must(t, os.WriteFile(users, []byte(`[{"name": "anna", "password": "p"}]`), 0o600))
	process, input, ready := program(t, "-users", users, "-others", "1", "-bodies", os.Args[0]+" carry")
	at, err := url.Parse(ready["url"])
	must(t, err)
	// By its certificate, not without.
	client := soap.NewClient(at, false)
	certificate := filepath.Join(t.TempDir(), "ca.pem")
	must(t, os.WriteFile(certificate, []byte(ready["certificate"]), 0o600))
	must(t, client.SetRootCAs(certificate))
	api, err := vim25.NewClient(ctx, client)
	must(t, err)
	other := soap.NewClient(at, false)
	other.SetThumbprint(at.Host, ready["thumbprint"])
	if _, err := vim25.NewClient(ctx, other); err != nil {
		t.Errorf("by its thumbprint: %v", err)
	}
	block, _ := pem.Decode([]byte(ready["certificate"]))
	if sum := sha256.Sum256(block.Bytes); strings.ReplaceAll(ready["thumbprint_sha256"], ":", "") != fmt.Sprintf("%X", sum) {
		t.Errorf("another certificate's: %v", ready)
	}
	at.User = url.UserPassword("anna", "p")
	session, err := govmomi.NewClient(ctx, at, true)
	must(t, err)
	vm, err := find.NewFinder(session.Client).VirtualMachine(ctx, "/DC0/vm/other-0000")
	must(t, err)
	task, err := vm.PowerOn(ctx)
	if err == nil {
		err = task.Wait(ctx)
	}
	if err != nil || api.ServiceContent.About.ApiType != "VirtualCenter" {
		t.Error(err)
	}
	response, err := http.Get(ready["control"] + "/machines")
	must(t, err)
	defer response.Body.Close()
	if said, err := io.ReadAll(response.Body); err != nil || !strings.Contains(string(said), `"power":"poweredOn"`) {
		t.Errorf("%s %v", said, err)
	}
	_ = input.Close()
	if err := process.Wait(); err != nil {
		t.Error(err)
	}
}

func TestWrongFlagsAreRefused(t *testing.T) {
	for says, arguments := range map[string][]string{
		"give -directory":              {"-directory", ""},
		"no address of the loopback":   {"-directory", t.TempDir(), "-control", "0.0.0.0:0"},
		"-users: ":                     {"-directory", t.TempDir(), "-users", "/no/such/file"},
		"the command that carries the": {"-directory", t.TempDir(), "-bodies", "/no/such/program"},
		"/no/such program":             {"-directory", t.TempDir(), "-bodies", `["/no/such program", "x"]`},
		"-bodies: ":                    {"-directory", t.TempDir(), "-bodies", `["x"`},
	} {
		said, err := exec.Command(os.Args[0], arguments...).CombinedOutput()
		if err == nil || !strings.Contains(string(said), says) {
			t.Errorf("%v: %s", arguments, said)
		}
	}
}
