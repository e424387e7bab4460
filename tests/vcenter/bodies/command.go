package bodies

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
)

// Request is a line of JSON that a carrying command reads from its standard input.
type Request struct {
	ID int64 `json:"id"`
	// Verb is start, shutdown, cut or nic.
	Verb string `json:"verb"`
	// Machine comes with start.
	Machine *Machine `json:"machine,omitempty"`
	VM      string   `json:"vm,omitempty"`
	Run     string   `json:"run,omitempty"`
	// Key and Connected come with nic.
	Key       int32 `json:"key,omitempty"`
	Connected bool  `json:"connected,omitempty"`
}

// Reply is a line of JSON that a carrying command writes to its standard output for each request, in any order. A line
// without an id is an Event.
type Reply struct {
	ID    int64  `json:"id"`
	Error string `json:"error,omitempty"`
}

type line struct {
	Reply
	Event
}

// command carries bodies in another process. Lines go to its standard input, and come from its standard output; its standard
// error is ours. The end of its input tells it that the vCenter is gone.
type command struct {
	process *exec.Cmd
	input   io.WriteCloser
	events  chan Event
	mutex   sync.Mutex
	last    int64
	waiting map[int64]chan error
	gone    error
	over    chan struct{}
}

// Command starts a program that carries the bodies.
func Command(name string, arguments ...string) (Carrier, error) {
	return start(exec.Command(name, arguments...))
}

func start(process *exec.Cmd) (Carrier, error) {
	process.Stderr = os.Stderr
	input, err := process.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, fmt.Errorf("the command that carries the bodies: %w", err)
	}
	made := &command{
		process: process, input: input, events: make(chan Event, 1024), waiting: map[int64]chan error{}, over: make(chan struct{}),
	}
	go made.listen(output)
	return made, nil
}

func (c *command) listen(output io.Reader) {
	defer close(c.over)
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var said line
		if err := json.Unmarshal(lines.Bytes(), &said); err != nil {
			fmt.Fprintf(os.Stderr, "the command that carries the bodies said %q: %v\n", lines.Text(), err)
			continue
		}
		if said.ID == 0 {
			c.events <- said.Event
			continue
		}
		var failure error
		if said.Error != "" {
			failure = errors.New(said.Error)
		}
		c.mutex.Lock()
		if waiting := c.waiting[said.ID]; waiting != nil {
			waiting <- failure
			delete(c.waiting, said.ID)
		}
		c.mutex.Unlock()
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.gone = errors.New("the command that carries the bodies has ended")
	for _, waiting := range c.waiting {
		waiting <- c.gone
	}
	c.waiting = nil
}

func (c *command) ask(request Request) error {
	answer := make(chan error, 1)
	c.mutex.Lock()
	if c.gone != nil {
		c.mutex.Unlock()
		return c.gone
	}
	c.last++
	request.ID = c.last
	c.waiting[request.ID] = answer
	text, err := json.Marshal(request)
	if err == nil {
		_, err = c.input.Write(append(text, '\n'))
	}
	if err != nil {
		delete(c.waiting, request.ID)
	}
	c.mutex.Unlock()
	if err != nil {
		return fmt.Errorf("the command that carries the bodies: %w", err)
	}
	return <-answer
}

func (c *command) Start(machine Machine) error {
	return c.ask(Request{Verb: "start", Machine: &machine, VM: machine.VM, Run: machine.Run})
}

func (c *command) Shutdown(vm, run string) error {
	return c.ask(Request{Verb: "shutdown", VM: vm, Run: run})
}

func (c *command) Cut(vm, run string) error { return c.ask(Request{Verb: "cut", VM: vm, Run: run}) }

func (c *command) NIC(vm, run string, key int32, connected bool) error {
	return c.ask(Request{Verb: "nic", VM: vm, Run: run, Key: key, Connected: connected})
}

func (c *command) Events() <-chan Event { return c.events }

func (c *command) Close() error {
	_ = c.input.Close()
	<-c.over
	return c.process.Wait()
}
