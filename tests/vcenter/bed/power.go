package bed

import (
	"log"
	"os"
	"slices"
	"strings"

	"github.com/google/uuid"
	vcsim "github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vcenter/bodies"
)

// machine answers for machines. It passes the calls that it does not refuse or handle to vcsim.
type machine struct {
	*vcsim.VirtualMachine
	world *world
}

// run is a machine that is powered on.
type run struct {
	id string
	at ref
	// inbox has what its body says, in that order.
	inbox chan bodies.Event
	// set has the keys of guestinfo that its guest has set.
	set map[string]bool
}

const (
	on  = types.VirtualMachinePowerStatePoweredOn
	off = types.VirtualMachinePowerStatePoweredOff
)

func wrongState(machine *vcsim.VirtualMachine, wanted types.VirtualMachinePowerState) fault {
	return &types.InvalidPowerState{RequestedState: wanted, ExistingState: machine.Runtime.PowerState}
}

// holder is the name under which a machine locks its disks.
func holder(machine *vcsim.VirtualMachine) string { return machine.Self.Value }

// PowerOnVMTask powers a machine on.
func (m *machine) PowerOnVMTask(ctx *vcsim.Context, _ *types.PowerOnVM_Task) soap.HasFault {
	task := m.world.task(ctx, "PowerOnVM_Task", m.VirtualMachine, func(ctx *vcsim.Context) (types.AnyType, fault) {
		return nil, m.world.powerOn(ctx, m.VirtualMachine)
	})
	return &methods.PowerOnVM_TaskBody{Res: &types.PowerOnVM_TaskResponse{Returnval: task}}
}

// PowerOffVMTask takes the power away.
func (m *machine) PowerOffVMTask(ctx *vcsim.Context, _ *types.PowerOffVM_Task) soap.HasFault {
	task := m.world.task(ctx, "PowerOffVM_Task", m.VirtualMachine, func(ctx *vcsim.Context) (types.AnyType, fault) {
		return nil, m.world.powerOff(ctx, m.VirtualMachine, true)
	})
	return &methods.PowerOffVM_TaskBody{Res: &types.PowerOffVM_TaskResponse{Returnval: task}}
}

// ResetVMTask takes the power away and gives it back; the machine is on all the time.
func (m *machine) ResetVMTask(ctx *vcsim.Context, _ *types.ResetVM_Task) soap.HasFault {
	task := m.world.task(ctx, "ResetVM_Task", m.VirtualMachine, func(ctx *vcsim.Context) (types.AnyType, fault) {
		if m.Runtime.PowerState != on {
			return nil, wrongState(m.VirtualMachine, on)
		}
		if failed := m.world.powerOff(ctx, m.VirtualMachine, true); failed != nil {
			return nil, failed
		}
		return nil, m.world.powerOn(ctx, m.VirtualMachine)
	})
	return &methods.ResetVM_TaskBody{Res: &types.ResetVM_TaskResponse{Returnval: task}}
}

// SuspendVMTask is refused: no body can be suspended.
func (m *machine) SuspendVMTask(*vcsim.Context, *types.SuspendVM_Task) soap.HasFault {
	return &methods.SuspendVM_TaskBody{Fault_: vcsim.Fault("", &types.NotSupported{})}
}

// StandbyGuest is refused as well.
func (m *machine) StandbyGuest(*vcsim.Context, *types.StandbyGuest) soap.HasFault {
	return &methods.StandbyGuestBody{Fault_: vcsim.Fault("", &types.NotSupported{})}
}

// RebootGuest is refused: no body says that it has rebooted.
func (m *machine) RebootGuest(*vcsim.Context, *types.RebootGuest) soap.HasFault {
	return &methods.RebootGuestBody{Fault_: vcsim.Fault("", &types.NotSupported{})}
}

// ShutdownGuest asks the guest, and returns at once: "Returns immediately and does not wait for the guest operating system to
// complete the operation"; without VMware Tools it is refused with ToolsUnavailable (reference of VirtualMachine).
func (m *machine) ShutdownGuest(_ *vcsim.Context, _ *types.ShutdownGuest) soap.HasFault {
	body := new(methods.ShutdownGuestBody)
	w := m.world
	running := w.running(m.VirtualMachine)
	switch {
	case m.Runtime.PowerState != on || running == nil:
		body.Fault_ = vcsim.Fault("", wrongState(m.VirtualMachine, on))
	case m.Guest.ToolsRunningStatus != string(types.VirtualMachineToolsRunningStatusGuestToolsRunning):
		body.Fault_ = vcsim.Fault("", &types.ToolsUnavailable{})
	default:
		vm := m.Config.Uuid
		go func() {
			if err := w.bed.config.Carrier.Shutdown(vm, running.id); err != nil {
				log.Printf("shutting down %s: %v", vm, err)
			}
		}()
		body.Res = new(types.ShutdownGuestResponse)
	}
	return body
}

// powerOn does what a power-on does, in this order: check, lock, place, put the environment into guestinfo, start.
func (w *world) powerOn(ctx *vcsim.Context, machine *vcsim.VirtualMachine) fault {
	switch {
	case machine.Config.Template:
		return &types.InvalidState{}
	case machine.Runtime.PowerState == on:
		return wrongState(machine, on)
	}
	if failed := missing(machine); failed != nil {
		return failed
	}
	if failed := w.lock(machine); failed != nil {
		w.disks.Unlock(holder(machine))
		return failed
	}
	run, failed := w.begin(ctx, machine)
	if failed != nil {
		w.disks.Unlock(holder(machine))
		return failed
	}
	w.setExtra(ctx, machine, environment, w.render(machine))
	body, failed := w.body(machine, run)
	if failed == nil {
		failed = w.startBody(ctx, machine, body)
	}
	if failed != nil {
		w.stopped(machine)
		return failed
	}
	if lock, failed := w.settingsLock(machine); failed == nil && !w.bed.Switches().NoSettingsLocks {
		if err := os.WriteFile(lock, nil, 0o600); err != nil {
			log.Printf("locking the settings of %s: %v", machine.Name, err)
		}
	}
	if key, value, says := strings.Cut(w.bed.Switches().GuestsSay, "="); says {
		w.setExtra(ctx, machine, "guestinfo."+key, value)
		run.set[key] = true
	}
	return nil
}

// begin finds the machine a host, and notes that it runs there, before another is placed.
func (w *world) begin(ctx *vcsim.Context, machine *vcsim.VirtualMachine) (*run, fault) {
	w.placing.Lock()
	defer w.placing.Unlock()
	if failed := w.place(ctx, machine); failed != nil {
		return nil, failed
	}
	made := &run{id: uuid.NewString(), at: machine.Self, inbox: make(chan bodies.Event, 256), set: map[string]bool{}}
	w.mutex.Lock()
	w.runs[machine.Config.Uuid] = made
	w.mutex.Unlock()
	go func() {
		for event := range made.inbox {
			w.heard(made, event)
		}
	}()
	return made, nil
}

func (w *world) startBody(ctx *vcsim.Context, machine *vcsim.VirtualMachine, body bodies.Machine) fault {
	if err := w.bed.config.Carrier.Start(body); err != nil {
		return &types.GenericVmConfigFault{Reason: err.Error()}
	}
	_, failed := w.inner(ctx, machine, func() soap.HasFault {
		return machine.PowerOnVMTask(ctx, &types.PowerOnVM_Task{This: machine.Self})
	})
	if failed != nil {
		_ = w.bed.config.Carrier.Cut(body.VM, body.Run)
	}
	return failed
}

// settingsLock is the file by which a host locks a machine's settings.
func (w *world) settingsLock(machine *vcsim.VirtualMachine) (string, fault) {
	return w.disks.File(machine.Config.Files.VmPathName + ".lck")
}

// stopped forgets a run.
func (w *world) stopped(machine *vcsim.VirtualMachine) {
	if lock, failed := w.settingsLock(machine); failed == nil && !w.bed.Switches().KeepsSettingsLocks {
		_ = os.Remove(lock)
	}
	w.mutex.Lock()
	if run := w.runs[machine.Config.Uuid]; run != nil {
		delete(w.runs, machine.Config.Uuid)
		close(run.inbox)
	}
	stays := w.bed.Switches().StaleLocks
	if stays {
		w.stale = append(w.stale, holder(machine))
	}
	w.mutex.Unlock()
	if !stays {
		w.disks.Unlock(holder(machine))
	}
}

// unlock ends the locks of machines that are off, unless they are to stay.
func (w *world) unlock() {
	if w.bed.Switches().StaleLocks {
		return
	}
	w.mutex.Lock()
	stale := w.stale
	w.stale = nil
	w.mutex.Unlock()
	for _, holder := range stale {
		w.disks.Unlock(holder)
	}
}

// powerOff makes a machine powered off, whose body is to be cut or has ended.
func (w *world) powerOff(ctx *vcsim.Context, machine *vcsim.VirtualMachine, cut bool) fault {
	if machine.Runtime.PowerState != on {
		return wrongState(machine, off)
	}
	running := w.running(machine)
	if cut && running != nil {
		if err := w.bed.config.Carrier.Cut(machine.Config.Uuid, running.id); err != nil {
			return &types.GenericVmConfigFault{Reason: err.Error()}
		}
	}
	if running != nil && !w.bed.Switches().KeepsGuestinfo {
		// Variables that a guest sets exist as long as the machine's process: they are in no file of the machine, unlike those
		// that are set from outside (VMware's Guest SDK, "guestinfo variables").
		for key, is := range running.set {
			if is {
				w.setExtra(ctx, machine, "guestinfo."+key, "")
			}
		}
	}
	_, failed := w.inner(ctx, machine, func() soap.HasFault {
		return machine.PowerOffVMTask(ctx, &types.PowerOffVM_Task{This: machine.Self})
	})
	if failed == nil {
		w.tools(ctx, machine, bodies.Event{})
		w.stopped(machine)
	}
	if failed == nil && w.bed.Switches().DropsEmptyControllers {
		empty := emptyControllers(devices(machine))
		kept := slices.DeleteFunc(devices(machine), func(device types.BaseVirtualDevice) bool { return empty[device.GetVirtualDevice().Key] })
		w.registry.AtomicUpdate(ctx, machine, []types.PropertyChange{{Name: "config.hardware.device", Val: []types.BaseVirtualDevice(kept)}})
	}
	return failed
}

// lock takes the machine's disks.
func (w *world) lock(machine *vcsim.VirtualMachine) fault {
	for _, disk := range files(machine) {
		if failed := w.disks.Lock(holder(machine), disk); failed != nil {
			return failed
		}
	}
	return nil
}

// files are the paths of a machine's disks.
func files(machine *vcsim.VirtualMachine) []string {
	var found []string
	for _, device := range devices(machine).SelectByType((*types.VirtualDisk)(nil)) {
		if backing, is := device.GetVirtualDevice().Backing.(types.BaseVirtualDeviceFileBackingInfo); is {
			found = append(found, backing.GetVirtualDeviceFileBackingInfo().FileName)
		}
	}
	return found
}
