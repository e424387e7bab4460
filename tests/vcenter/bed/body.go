package bed

import (
	"log"
	"reflect"

	"github.com/vmware/govmomi/object"
	vcsim "github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"vcenter/bodies"
)

// body describes a machine to who carries it.
func (w *world) body(machine *vcsim.VirtualMachine, run *run) (bodies.Machine, fault) {
	made := bodies.Machine{
		VM: machine.Config.Uuid, Run: run.id, Name: machine.Name, Object: machine.Self.Value,
		CPUs: machine.Config.Hardware.NumCPU, MemoryMB: machine.Config.Hardware.MemoryMB, Firmware: machine.Config.Firmware,
		Disks: []bodies.Disk{}, NICs: []bodies.NIC{}, CDROMs: []string{}, Guestinfo: guestinfo(machine),
		InOrderUUID: w.bed.Switches().InOrderUUIDs,
	}
	all := devices(machine)
	for _, device := range all {
		common := device.GetVirtualDevice()
		starts := common.Connectable != nil && common.Connectable.StartConnected
		switch device := device.(type) {
		case *types.VirtualDisk:
			disk, failed := w.carried(all, device)
			if failed != nil {
				return made, failed
			}
			made.Disks = append(made.Disks, disk)
		case types.BaseVirtualEthernetCard:
			card := device.GetVirtualEthernetCard()
			made.NICs = append(made.NICs, bodies.NIC{Key: card.Key, MAC: card.MacAddress, Network: w.networkOf(card), Connected: starts})
		case *types.VirtualCdrom:
			if backing, is := device.Backing.(*types.VirtualCdromIsoBackingInfo); is && starts {
				file, failed := w.disks.File(backing.FileName)
				if failed != nil {
					return made, failed
				}
				made.CDROMs = append(made.CDROMs, file)
			}
		}
	}
	return made, nil
}

func (w *world) carried(all object.VirtualDeviceList, disk *types.VirtualDisk) (bodies.Disk, fault) {
	backing := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
	found, failed := w.disks.Read(backing.FileName)
	if failed != nil {
		return bodies.Disk{}, failed
	}
	made := bodies.Disk{
		Key: disk.Key, UUID: found.UUID, Capacity: found.Capacity, Files: found.Chain, Unit: *disk.UnitNumber,
		Persistent: backing.DiskMode == string(types.VirtualDiskModeIndependent_persistent),
	}
	if controller, is := all.FindByKey(disk.ControllerKey).(types.BaseVirtualController); is {
		made.Controller = reflect.TypeOf(controller).Elem().Name()
		made.Bus = controller.GetVirtualController().BusNumber
	}
	return made, nil
}

func (w *world) networkOf(card *types.VirtualEthernetCard) string {
	switch backing := card.Backing.(type) {
	case *types.VirtualEthernetCardNetworkBackingInfo:
		return backing.DeviceName
	case *types.VirtualEthernetCardDistributedVirtualPortBackingInfo:
		at := ref{Type: "DistributedVirtualPortgroup", Value: backing.Port.PortgroupKey}
		if group, is := w.registry.Get(at).(mo.Entity); is {
			return name(group)
		}
	}
	return ""
}

// tools tells the inventory what a body says of its VMware Tools.
func (w *world) tools(ctx *vcsim.Context, machine *vcsim.VirtualMachine, said bodies.Event) {
	running, status := types.VirtualMachineToolsRunningStatusGuestToolsNotRunning, types.VirtualMachineToolsStatusToolsNotRunning
	if said.Running {
		running, status = types.VirtualMachineToolsRunningStatusGuestToolsRunning, types.VirtualMachineToolsStatusToolsOk
	}
	address := ""
	if len(said.Addresses) > 0 {
		address = said.Addresses[0]
	}
	w.registry.AtomicUpdate(ctx, machine, []types.PropertyChange{
		{Name: "guest.toolsRunningStatus", Val: string(running)}, {Name: "guest.toolsStatus", Val: status},
		{Name: "summary.guest.toolsRunningStatus", Val: string(running)}, {Name: "summary.guest.toolsStatus", Val: status},
		{Name: "guest.hostName", Val: said.Hostname}, {Name: "summary.guest.hostName", Val: said.Hostname},
		{Name: "guest.ipAddress", Val: address}, {Name: "summary.guest.ipAddress", Val: address},
	})
}

// said takes a body's word to its machine. It ignores reports about a run that has ended.
func (w *world) said(event bodies.Event) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if running := w.runs[event.VM]; running != nil && running.id == event.Run {
		select {
		case running.inbox <- event:
		default:
			log.Printf("%s says more than can be heard: %+v is lost", event.VM, event)
		}
	}
}

// heard does what a body's word means for the inventory.
func (w *world) heard(running *run, event bodies.Event) {
	found, failed := w.machine(running.at)
	if failed != nil {
		return
	}
	w.alone(running.at, func() {
		w.mutex.Lock()
		same := w.runs[event.VM] == running
		w.mutex.Unlock()
		if !same {
			return
		}
		ctx := w.own()
		switch event.Event {
		case bodies.Ended:
			if failed := w.powerOff(ctx, found, false); failed != nil {
				log.Printf("%s has ended: %T", found.Name, failed)
			}
		case bodies.Tools:
			w.tools(ctx, found, event)
		case bodies.Guestinfo:
			w.setExtra(ctx, found, "guestinfo."+event.Key, event.Value)
			running.set[event.Key] = event.Value != ""
		default:
			log.Printf("%s says %q, which is unknown", found.Name, event.Event)
		}
	})
}
