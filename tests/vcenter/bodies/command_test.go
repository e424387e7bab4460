package bodies

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// The test program is also the command that carries bodies, if its environment says so.
func TestMain(m *testing.M) {
	if os.Getenv("CARRY_BODIES") != "" {
		carry()
		return
	}
	os.Exit(m.Run())
}

// carry starts every machine but "broken", ends those that are shut down, and dies when asked for the adapter 666.
func carry() {
	running := map[string]string{}
	say := func(value any) { text, _ := json.Marshal(value); fmt.Println(string(text)) }
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var asked Request
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			os.Exit(3)
		}
		reply := Reply{ID: asked.ID}
		switch {
		case asked.Verb == "start" && asked.Machine.Name == "broken":
			reply.Error = "no kernel on the system disk"
		case asked.Verb == "start":
			running[asked.VM] = asked.Run
		case running[asked.VM] != asked.Run:
			reply.Error = "not running"
		case asked.Key == 666:
			os.Exit(0)
		}
		say(reply)
		switch asked.Verb {
		case "start":
			say(Event{Event: Tools, VM: asked.VM, Run: asked.Run, Running: true, Addresses: []string{"192.0.2.1"}})
		case "shutdown":
			delete(running, asked.VM)
			say(Event{Event: Ended, VM: asked.VM, Run: asked.Run})
		}
	}
}

func carrier(t *testing.T) Carrier {
	t.Helper()
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), "CARRY_BODIES=yes")
	made, err := start(process)
	must(t, err)
	t.Cleanup(func() { _ = made.Close() })
	return made
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func refused(t *testing.T, err error, words string) {
	t.Helper()
	if err == nil || err.Error() != words {
		t.Error(err)
	}
}

func heard(t *testing.T, from Carrier) Event {
	t.Helper()
	select {
	case event := <-from.Events():
		return event
	case <-time.After(time.Minute):
		t.Fatal("nothing was said")
		return Event{}
	}
}

func TestACommandCarriesBodies(t *testing.T) {
	c := carrier(t)
	must(t, c.Start(Machine{VM: "one", Run: "1", Name: "node", Guestinfo: map[string]string{"ovfEnv": "<a/>\n"}}))
	if said := heard(t, c); said.Event != Tools || said.Run != "1" || !said.Running || said.Addresses[0] != "192.0.2.1" {
		t.Errorf("%+v", said)
	}
	must(t, c.NIC("one", "1", 4000, false))
	refused(t, c.Start(Machine{VM: "two", Run: "2", Name: "broken"}), "no kernel on the system disk")
	_ = heard(t, c)
	must(t, c.Shutdown("one", "1"))
	if said := heard(t, c); said.Event != Ended || said.VM != "one" {
		t.Errorf("%+v", said)
	}
	refused(t, c.Cut("one", "1"), "not running")
}

func TestACommandThatDiesAnswersNobodyAnyMore(t *testing.T) {
	c := carrier(t)
	must(t, c.Start(Machine{VM: "one", Run: "1"}))
	for range 2 {
		if err := c.NIC("one", "1", 666, true); err == nil || !strings.Contains(err.Error(), "ended") {
			t.Error(err)
		}
	}
	if _, err := Command("/no/such/program"); err == nil {
		t.Error("started")
	}
}

func TestMachinesWithoutBodiesEndAfterTheirShutdown(t *testing.T) {
	c := None(time.Millisecond)
	must(t, c.Start(Machine{VM: "one", Run: "1"}))
	if said := heard(t, c); said.Event != Tools || !said.Running {
		t.Errorf("%+v", said)
	}
	must(t, c.Shutdown("one", "1"))
	if said := heard(t, c); said.Event != Ended || said.Run != "1" {
		t.Errorf("%+v", said)
	}
}
