// Package bodies is the contract with the carrier of the machines that a vCenter powers on: the requests to a body, and its
// reports. It knows nothing of the vSphere API.
package bodies

import "time"

// Machine is all that a body gets at power-on.
type Machine struct {
	// VM is the machine's BIOS UUID: it stays the same over power cycles.
	VM string `json:"vm"`
	// Run names this power-on: what is said of another is out of date.
	Run  string `json:"run"`
	Name string `json:"name"`
	// Object is the machine's managed object reference.
	Object   string `json:"object"`
	CPUs     int32  `json:"cpus"`
	MemoryMB int32  `json:"memory_mb"`
	Firmware string `json:"firmware"`
	Disks    []Disk `json:"disks"`
	NICs     []NIC  `json:"nics"`
	// Images of connected CD-ROMs.
	CDROMs []string `json:"cdroms"`
	// Guestinfo has what the guest reads as guestinfo.KEY; the OVF environment is ovfEnv.
	Guestinfo map[string]string `json:"guestinfo"`
	// InOrderUUID has the guest read the BIOS UUID in product_uuid as vCenter shows it. VMware's hardware 13 and later swap the
	// bytes of its first three groups (kubernetes/kubernetes#58927).
	InOrderUUID bool `json:"in_order_uuid"`
}

// Disk is a virtual disk. The first file is the one to write to; those behind it are the parents of a linked clone, to read only.
// A file that has parents is empty: its format is the carrier's choice.
type Disk struct {
	Key      int32    `json:"key"`
	UUID     string   `json:"uuid"`
	Capacity int64    `json:"capacity"`
	Files    []string `json:"files"`
	// Controller is the type of the controller, as ParaVirtualSCSIController.
	Controller string `json:"controller"`
	Bus        int32  `json:"bus"`
	Unit       int32  `json:"unit"`
	// Persistent says that the disk is no part of snapshots.
	Persistent bool `json:"independent_persistent"`
}

// NIC is a network adapter.
type NIC struct {
	Key       int32  `json:"key"`
	MAC       string `json:"mac"`
	Network   string `json:"network"`
	Connected bool   `json:"connected"`
}

// The reports of a body.
const (
	// Ended says that the body is off: by itself, or after a request to shut down. A body that was cut sends no report.
	Ended = "ended"
	// Tools says whether VMware Tools run, and the guest's name and addresses.
	Tools = "tools"
	// Guestinfo says that the guest has set a key of guestinfo; an empty value removes it.
	Guestinfo = "guestinfo"
)

// Event is what a body says.
type Event struct {
	Event     string   `json:"event"`
	VM        string   `json:"vm"`
	Run       string   `json:"run"`
	Running   bool     `json:"running,omitempty"`
	Hostname  string   `json:"hostname,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
	Key       string   `json:"key,omitempty"`
	Value     string   `json:"value,omitempty"`
}

// Carrier gives machines their bodies. A call returns when what it asks for has happened, but Shutdown at once: the body says
// when it has ended.
type Carrier interface {
	// Start makes the body run. After an error no body exists.
	Start(Machine) error
	// Shutdown asks the guest to shut down.
	Shutdown(vm, run string) error
	// Cut takes the power away. For a missing body it succeeds.
	Cut(vm, run string) error
	// NIC connects or disconnects an adapter of a running machine.
	NIC(vm, run string, key int32, connected bool) error
	// Events says what bodies say, until Close.
	Events() <-chan Event
	// Close lets go of the bodies: they are the carrier's to keep or to end.
	Close() error
}

// none is machines without bodies: their Tools run at once, and a shutdown takes the configured time.
type none struct {
	events   chan Event
	shutdown time.Duration
}

// None carries no bodies, for speed.
func None(shutdown time.Duration) Carrier {
	return &none{events: make(chan Event, 1024), shutdown: shutdown}
}

func (n *none) Start(machine Machine) error {
	n.events <- Event{Event: Tools, VM: machine.VM, Run: machine.Run, Running: true, Hostname: machine.Name}
	return nil
}

func (n *none) Shutdown(vm, run string) error {
	time.AfterFunc(n.shutdown, func() { n.events <- Event{Event: Ended, VM: vm, Run: run} })
	return nil
}

func (n *none) Cut(string, string) error              { return nil }
func (n *none) NIC(string, string, int32, bool) error { return nil }
func (n *none) Events() <-chan Event                  { return n.events }
func (n *none) Close() error                          { return nil }
