// Command vcenter is a vCenter to test against; see package bed. It serves the API and, on the loopback interface, a control
// endpoint (bed.Bed.Control) until its standard input ends or a signal stops it. When it is ready it writes one line of JSON:
//
//	{"url": "https://127.0.0.1:8989/sdk", "control": "http://127.0.0.1:8990", "certificate": "…PEM…", "thumbprint": "AB:CD:…",
//	 "thumbprint_sha256": "12:34:…"}
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"vcenter/bed"
	"vcenter/bodies"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "vcenter:", err)
		os.Exit(1)
	}
}

func run() error {
	config := bed.Config{Users: []bed.User{{Name: "administrator@vsphere.local", Password: "secret"}}}
	flag.StringVar(&config.Listen, "listen", "127.0.0.1:0", "host and port of the API")
	flag.StringVar(&config.Directory, "directory", "", "where the datastores are; what is in theirs goes")
	flag.IntVar(&config.Hosts, "hosts", 3, "hosts of the cluster")
	flag.IntVar(&config.Datastores, "datastores", 2, "datastores")
	flag.IntVar(&config.Others, "others", 0, "machines that are nobody's concern")
	flag.StringVar(&config.API, "api", "", "the version of the API, such as 9.0.0.0; 8.0.3.0 without it")
	flag.BoolVar(&config.ESX, "esx", false, "a bare host instead of a vCenter")
	flag.DurationVar(&config.LeaseTimeout, "lease-timeout", 5*time.Minute, "how long an upload's lease lives without progress")
	control := flag.String("control", "127.0.0.1:0", "loopback address and port of the control endpoint")
	users := flag.String("users", "", "a file with users as JSON: [{\"name\": …, \"password\": …, \"privileges\": […], \"on\": {path: […]}}]")
	carrier := flag.String("bodies", "", "a command and its arguments that carry the machines (package bodies), "+
		"with spaces between them or as a list in JSON; none without it")
	shutdown := flag.Duration("shutdown", 100*time.Millisecond, "how long a machine without a body takes to shut down")
	flag.Parse()
	if config.Directory == "" || flag.NArg() > 0 {
		return errors.New("give -directory, and nothing but flags")
	}
	if host, _, err := net.SplitHostPort(*control); err != nil || net.ParseIP(host) == nil || !net.ParseIP(host).IsLoopback() {
		return fmt.Errorf("-control %s is no address of the loopback interface", *control)
	}
	if *users != "" {
		text, err := os.ReadFile(*users)
		if err == nil {
			err = json.Unmarshal(text, &config.Users)
		}
		if err != nil {
			return fmt.Errorf("-users: %w", err)
		}
	}
	config.Carrier = bodies.None(*shutdown)
	words := strings.Fields(*carrier)
	if strings.HasPrefix(*carrier, "[") {
		if err := json.Unmarshal([]byte(*carrier), &words); err != nil {
			return fmt.Errorf("-bodies: %w", err)
		}
	}
	if len(words) > 0 {
		carried, err := bodies.Command(words[0], words[1:]...)
		if err != nil {
			return err
		}
		config.Carrier, config.Bodies = carried, true
	}
	return serve(config, *control)
}

func serve(config bed.Config, control string) error {
	started, err := bed.Start(config)
	if err != nil {
		return err
	}
	defer started.Close()
	listener, err := net.Listen("tcp", control)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: started.Control(), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	ready := map[string]string{
		"url": started.URL().String(), "control": "http://" + listener.Addr().String(),
		"certificate": string(started.Certificate), "thumbprint": started.Thumbprint,
		"thumbprint_sha256": started.ThumbprintSHA256,
	}
	if err := json.NewEncoder(os.Stdout).Encode(ready); err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	select {
	case <-stop:
	case <-ended:
	}
	return nil
}
