package bed

import (
	"encoding/xml"
	"strings"
	"sync"
	"testing"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"vcenter/bodies"
)

func TestTheEnvironmentIsPutIntoGuestinfoAtEachPowerOn(t *testing.T) {
	s := opened(t)
	vm := s.imported("node-1")
	if given := s.machine("node-1").Guestinfo; len(given) != 0 {
		t.Errorf("before power-on: %v", given)
	}
	s.done(vm.PowerOn(background))
	text := s.machine("node-1").Guestinfo["ovfEnv"]
	var found struct {
		Properties []struct {
			Key   string `xml:"key,attr"`
			Value string `xml:"value,attr"`
		} `xml:"PropertySection>Property"`
		Adapters []struct {
			MAC     string `xml:"mac,attr"`
			Network string `xml:"network,attr"`
		} `xml:"EthernetAdapterSection>Adapter"`
	}
	s.must(xml.Unmarshal([]byte(text), &found))
	values := map[string]string{}
	for _, property := range found.Properties {
		values[property.Key] = property.Value
	}
	if values["node.address"] != "192.0.2.1" || values["node.secret"] != `a&b<"c` || values["node.build"] != "b1" {
		t.Errorf("%v", values)
	}
	if len(found.Adapters) != 1 || found.Adapters[0].Network != "VM Network" || !strings.HasPrefix(found.Adapters[0].MAC, "00:50:56") {
		t.Errorf("%+v", found.Adapters)
	}
}

func TestAMachineWithoutAValueThatMustBeIsNotPoweredOn(t *testing.T) {
	s := opened(t)
	lease, info, stream := s.prepare("node-1")
	s.upload(info, stream)
	s.must(lease.Complete(background))
	vm := object.NewVirtualMachine(s.client.Client, info.Entity)
	task, err := vm.PowerOn(background)
	refused[*types.InvalidPropertyValue](s, "without a value", task, err)
	s.is(vm, off)
}

func TestPropertiesAreEditedWhileOffOrBySwitch(t *testing.T) {
	s := opened(t)
	vm := s.imported("node-1")
	properties := s.read(vm).Config.VAppConfig.GetVmConfigInfo().Property
	edited := func(value string) types.VirtualMachineConfigSpec {
		info := properties[0]
		info.Value = value
		return types.VirtualMachineConfigSpec{VAppConfig: &types.VmConfigSpec{Property: []types.VAppPropertySpec{{
			ArrayUpdateSpec: types.ArrayUpdateSpec{Operation: types.ArrayUpdateOperationEdit}, Info: &info,
		}}}}
	}
	now := func() types.VAppPropertyInfo { return s.read(vm).Config.VAppConfig.GetVmConfigInfo().Property[0] }
	s.done(s.reconfigure(vm, edited("192.0.2.9")))
	if now := now(); now.Value != "192.0.2.9" || now.Id != "address" || now.Type != properties[0].Type {
		t.Errorf("%+v", now)
	}
	short := edited("192.0.2.8")
	short.VAppConfig.GetVmConfigSpec().Property[0].Info.UserConfigurable = nil
	s.done(s.reconfigure(vm, short))
	if now := now(); now.UserConfigurable != nil && *now.UserConfigurable {
		t.Errorf("an edit replaces the whole property: %+v", now)
	}
	s.done(s.reconfigure(vm, edited("192.0.2.9")))
	s.done(vm.PowerOn(background))
	task, err := s.reconfigure(vm, edited("192.0.2.10"))
	refused[*types.InvalidPowerState](s, "while it runs", task, err)
	task, err = s.reconfigure(vm, types.VirtualMachineConfigSpec{NumCPUs: 4})
	refused[*types.CpuHotPlugNotSupported](s, "more CPUs while it runs", task, err)
	s.ask("PUT", "/switches", `{"edit_properties_while_on": true}`)
	s.done(s.reconfigure(vm, edited("192.0.2.10")))
}

func TestAShutdownIsTheGuests(t *testing.T) {
	s := opened(t)
	vm := s.imported("node-1")
	wanted(s, "while off", vm.ShutdownGuest(background), new(*types.InvalidPowerState))
	s.done(vm.PowerOn(background))
	s.until("Tools run", func() bool { return s.read(vm).Guest.ToolsRunningStatus == "guestToolsRunning" })
	s.must(vm.ShutdownGuest(background))
	s.untilOff(vm)
	if status := s.read(vm).Guest.ToolsRunningStatus; status != "guestToolsNotRunning" {
		t.Error(status)
	}
	task, err := vm.PowerOff(background)
	refused[*types.InvalidPowerState](s, "off already", task, err)
}

func TestOneTaskAtATimeAndReadsGoOn(t *testing.T) {
	s := opened(t)
	vm := s.imported("node-1")
	s.ask("POST", "/rules", `{"method": "PowerOnVM_Task", "do": "delay-task", "milliseconds": 600000}`)
	first, err := vm.PowerOn(background)
	s.must(err)
	second, err := vm.PowerOn(background)
	refused[*types.TaskInProgress](s, "a second task", second, err)
	s.is(vm, off)
	s.ask("DELETE", "/rules", "")
	s.done(first, nil)
	s.is(vm, on)
}

func TestTasksFailOnRequestWithAndWithoutEffect(t *testing.T) {
	s := opened(t)
	vm := s.imported("node-1")
	s.ask("POST", "/rules", `{"method": "PowerOnVM_Task", "do": "fail-task", "fault": "HostCommunication"}`)
	task, err := vm.PowerOn(background)
	refused[*types.HostCommunication](s, "without effect", task, err)
	s.is(vm, off)
	s.ask("POST", "/rules", `{"method": "PowerOnVM_Task", "do": "fail-task-late", "fault": "Timedout"}`)
	task, err = vm.PowerOn(background)
	refused[*types.Timedout](s, "with effect", task, err)
	s.is(vm, on)
}

// recorder carries bodies by noting what it is asked.
type recorder struct {
	mutex  sync.Mutex
	asked  []string
	last   bodies.Machine
	refuse error
	events chan bodies.Event
}

func (r *recorder) note(what string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.asked = append(r.asked, what)
}
func (r *recorder) Start(machine bodies.Machine) error {
	r.note("start " + machine.Name)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.last = machine
	return r.refuse
}
func (r *recorder) Shutdown(string, string) error { r.note("shutdown"); return nil }
func (r *recorder) Cut(string, string) error      { r.note("cut"); return nil }
func (r *recorder) NIC(_, _ string, _ int32, connected bool) error {
	r.note(map[bool]string{true: "connect", false: "disconnect"}[connected])
	return nil
}
func (r *recorder) Events() <-chan bodies.Event { return r.events }
func (r *recorder) Close() error                { return nil }
func (r *recorder) history() string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return strings.Join(r.asked, ", ")
}

func carried(t *testing.T) (*site, *recorder) {
	t.Helper()
	carrier := &recorder{events: make(chan bodies.Event, 10)}
	return opened(t, func(c *Config) { c.Carrier, c.Bodies = carrier, true }), carrier
}

func TestABodyIsToldWhatItIs(t *testing.T) {
	s, carrier := carried(t)
	vm := s.imported("node-1")
	s.done(vm.PowerOn(background))
	told := carrier.last
	if told.Name != "node-1" || told.CPUs != 2 || told.MemoryMB != 2048 || told.Firmware != "efi" || told.VM != s.read(vm).Config.Uuid {
		t.Errorf("%+v", told)
	}
	if len(told.Disks) != 2 || told.Disks[1].Unit != 1 || told.Disks[1].Controller == "" || len(told.Disks[1].Files) != 1 {
		t.Errorf("%+v", told.Disks)
	}
	if len(told.NICs) != 1 || !told.NICs[0].Connected || told.NICs[0].Network != "VM Network" {
		t.Errorf("%+v", told.NICs)
	}
	// A distributed port group has a name as well.
	s.network, _ = s.finder.Network(background, "DC0_DVPG0")
	if told.InOrderUUID {
		t.Error("its guest reads its UUID as before hardware 13")
	}
	s.ask("PUT", "/switches", `{"in_order_uuids": true}`)
	s.done(s.imported("node-2").PowerOn(background))
	if !carrier.last.InOrderUUID {
		t.Error("its guest reads its UUID as from hardware 13 on")
	}
	if told := carrier.last; told.NICs[0].Network != "DC0_DVPG0" || !strings.Contains(told.Guestinfo["ovfEnv"], `ve:network="DC0_DVPG0"`) {
		t.Errorf("%+v: %s", told.NICs, told.Guestinfo["ovfEnv"])
	}
	if !strings.Contains(told.Guestinfo["ovfEnv"], "192.0.2.1") {
		t.Errorf("%v", told.Guestinfo)
	}
}

func TestABodySpeaksAndIsSpokenTo(t *testing.T) {
	s, carrier := carried(t)
	vm := s.imported("node-1")
	s.done(vm.PowerOn(background))
	wanted(s, "without Tools", vm.ShutdownGuest(background), new(*types.ToolsUnavailable))
	said := bodies.Event{VM: carrier.last.VM, Run: carrier.last.Run}
	say := func(change func(*bodies.Event)) { event := said; change(&event); carrier.events <- event }
	say(func(e *bodies.Event) {
		e.Event, e.Running, e.Hostname, e.Addresses = bodies.Tools, true, "node-1", []string{"192.0.2.1"}
	})
	say(func(e *bodies.Event) { e.Event, e.Key, e.Value = bodies.Guestinfo, "kaas.status", "ready" })
	say(func(e *bodies.Event) { e.Event, e.Key = bodies.Guestinfo, "ovfEnv" })
	s.until("the environment is scrubbed", func() bool {
		given := s.machine("node-1").Guestinfo
		return len(given) == 1 && given["kaas.status"] == "ready"
	})
	if guest := s.read(vm).Guest; guest.HostName != "node-1" || guest.IpAddress != "192.0.2.1" {
		t.Errorf("%+v", guest)
	}
	card := object.VirtualDeviceList(s.read(vm).Config.Hardware.Device).SelectByType((*types.VirtualEthernetCard)(nil))[0]
	// A key and what is to change are enough.
	s.done(s.reconfigure(vm, change(edit, &types.VirtualVmxnet3{VirtualVmxnet: types.VirtualVmxnet{VirtualEthernetCard: types.VirtualEthernetCard{
		VirtualDevice: types.VirtualDevice{Key: card.GetVirtualDevice().Key, Connectable: &types.VirtualDeviceConnectInfo{Connected: false}},
	}}})))
	s.must(vm.ShutdownGuest(background))
	s.until("it is asked", func() bool { return strings.HasSuffix(carrier.history(), "shutdown") })
	s.is(vm, on)
	say(func(e *bodies.Event) { e.Event, e.Run = bodies.Ended, "another run" })
	say(func(e *bodies.Event) { e.Event = bodies.Ended })
	s.untilOff(vm)
	if given := s.machine("node-1").Guestinfo; len(given) != 0 {
		t.Errorf("what the guest has set outlives it: %v", given)
	}
	s.ask("PUT", "/switches", `{"keeps_guestinfo": true}`)
	s.done(vm.PowerOn(background))
	said.Run = carrier.last.Run
	say(func(e *bodies.Event) { e.Event, e.Key, e.Value = bodies.Guestinfo, "kaas.status", "ready" })
	s.until("the guest speaks again", func() bool { return s.machine("node-1").Guestinfo["kaas.status"] == "ready" })
	s.done(vm.PowerOff(background))
	if given := s.machine("node-1").Guestinfo; given["kaas.status"] != "ready" {
		t.Errorf("with the switch it outlives the power cycle: %v", given)
	}
	if history := carrier.history(); !strings.HasPrefix(history, "start node-1, disconnect, shutdown") {
		t.Error(history)
	}
	kept := object.VirtualDeviceList(s.read(vm).Config.Hardware.Device).SelectByType((*types.VirtualEthernetCard)(nil))[0].(types.BaseVirtualEthernetCard).GetVirtualEthernetCard()
	if kept.MacAddress != card.(types.BaseVirtualEthernetCard).GetVirtualEthernetCard().MacAddress || kept.Backing == nil {
		t.Errorf("%+v", kept)
	}
}

func TestABodyThatDoesNotStartLeavesTheMachineOff(t *testing.T) {
	s, carrier := carried(t)
	vm := s.imported("node-1")
	carrier.refuse = errNoKernel
	task, err := vm.PowerOn(background)
	refused[*types.GenericVmConfigFault](s, "no body", task, err)
	carrier.refuse = nil
	s.is(vm, off)
	s.done(vm.PowerOn(background))
	s.done(vm.Reset(background))
	s.done(vm.PowerOff(background))
	if history := carrier.history(); history != "start node-1, start node-1, cut, start node-1, cut" {
		t.Error(history)
	}
}

type plain string

func (p plain) Error() string { return string(p) }

const errNoKernel = plain("no kernel")

func TestAnEditOfAnOverrideOfHAKeepsWhatItLeavesOut(t *testing.T) {
	s := opened(t)
	vm := s.imported("node-1")
	cluster, err := s.finder.DefaultClusterComputeResource(background)
	s.must(err)
	set := func(operation types.ArrayUpdateOperation, settings types.ClusterDasVmSettings) {
		s.done(cluster.Reconfigure(background, &types.ClusterConfigSpecEx{DasVmConfigSpec: []types.ClusterDasVmConfigSpec{{
			ArrayUpdateSpec: types.ArrayUpdateSpec{Operation: operation},
			Info:            &types.ClusterDasVmConfigInfo{Key: vm.Reference(), DasSettings: &settings},
		}}}, true))
	}
	set(types.ArrayUpdateOperationAdd, types.ClusterDasVmSettings{RestartPriority: "low", IsolationResponse: "shutdown"})
	is := func(priority, isolation string) {
		t.Helper()
		config, err := cluster.Configuration(background)
		s.must(err)
		if now := config.DasVmConfig[0].DasSettings; now.RestartPriority != priority || now.IsolationResponse != isolation {
			t.Errorf("%+v", now)
		}
	}
	set(types.ArrayUpdateOperationEdit, types.ClusterDasVmSettings{RestartPriority: "high"})
	is("high", "shutdown")
	set(types.ArrayUpdateOperationEdit, types.ClusterDasVmSettings{IsolationResponse: "none"})
	is("high", "none")
	s.ask("PUT", "/switches", `{"edits_replace_overrides": true}`)
	set(types.ArrayUpdateOperationEdit, types.ClusterDasVmSettings{RestartPriority: "low"})
	is("low", "")
}

func TestARuleTakesMachinesOfItsClusterAlone(t *testing.T) {
	s := opened(t)
	one, two := s.imported("node-1"), s.imported("node-2")
	folders, err := s.datacenter.Folders(background)
	s.must(err)
	other, err := folders.HostFolder.CreateCluster(background, "DC0_C1", types.ClusterConfigSpecEx{})
	s.must(err)
	task, err := other.Reconfigure(background, &types.ClusterConfigSpecEx{RulesSpec: []types.ClusterRuleSpec{{
		ArrayUpdateSpec: types.ArrayUpdateSpec{Operation: types.ArrayUpdateOperationAdd},
		Info: &types.ClusterAntiAffinityRuleSpec{
			ClusterRuleInfo: types.ClusterRuleInfo{Name: "apart"}, Vm: []types.ManagedObjectReference{one.Reference(), two.Reference()},
		},
	}}}, true)
	refused[*types.InvalidArgument](s, "machines of another cluster", task, err)
}

func TestRulesKeepMachinesApart(t *testing.T) {
	s := opened(t)
	compute, err := s.finder.ClusterComputeResource(background, "DC0_C0")
	s.must(err)
	var machines []*object.VirtualMachine
	rule := &types.ClusterAntiAffinityRuleSpec{ClusterRuleInfo: types.ClusterRuleInfo{Name: "apart", Enabled: types.NewBool(true)}}
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		vm := s.imported(name)
		machines = append(machines, vm)
		rule.Vm = append(rule.Vm, vm.Reference())
	}
	s.done(compute.Reconfigure(background, &types.ClusterConfigSpecEx{RulesSpec: []types.ClusterRuleSpec{{
		ArrayUpdateSpec: types.ArrayUpdateSpec{Operation: types.ArrayUpdateOperationAdd}, Info: rule,
	}}}, true))
	s.done(machines[0].PowerOn(background))
	s.done(machines[1].PowerOn(background))
	if s.machine("node-1").Host == s.machine("node-2").Host {
		t.Error("they are on one host")
	}
	task, err := machines[2].PowerOn(background)
	refused[*types.RuleViolation](s, "a third on two hosts", task, err)
	// An edit is by its key, whatever its name.
	var found mo.ClusterComputeResource
	s.must(compute.Properties(background, compute.Reference(), []string{"configurationEx"}, &found))
	edited := *found.ConfigurationEx.(*types.ClusterConfigInfoEx).Rule[0].(*types.ClusterAntiAffinityRuleSpec)
	edited.Name, edited.Vm = "renamed", edited.Vm[:2]
	s.done(compute.Reconfigure(background, &types.ClusterConfigSpecEx{RulesSpec: []types.ClusterRuleSpec{{
		ArrayUpdateSpec: types.ArrayUpdateSpec{Operation: types.ArrayUpdateOperationEdit}, Info: &edited,
	}}}, true))
	s.done(machines[2].PowerOn(background))
}
