package bed

import (
	"fmt"
	"strings"

	vcsim "github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vcenter/faults"
)

// away is the fault of a call about files of a datastore that is away; nil of every other call.
func (w *world) away(method *vcsim.Method) fault {
	gone := w.bed.Switches().DatastoresAway
	if len(gone) == 0 {
		return nil
	}
	about := paths(method)
	switch asked := method.Body.(type) {
	case *types.ReconfigVM_Task:
		for _, change := range asked.Spec.DeviceChange {
			if disk, is := change.GetVirtualDeviceConfigSpec().Device.(*types.VirtualDisk); is {
				if backing, is := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo); is {
					about = append(about, backing.FileName)
				}
			}
		}
	case *types.PowerOnVM_Task:
		if machine, failed := w.machine(asked.This); failed == nil {
			about = append(about, files(machine)...)
		}
	}
	for _, path := range about {
		for name, kind := range gone {
			if strings.HasPrefix(path, "["+name+"]") {
				rule := faults.Rule{Fault: kind}
				if made, err := rule.Make(); err == nil {
					return made
				}
			}
		}
	}
	return nil
}

// renamed gives the object of an inventory path another name. Paths of files begin with a datastore's, and adapters on standard switches
// name their network.
func (w *world) renamed(path, to string) error {
	path = strings.Trim(path, "/")
	for _, kind := range []string{"Datacenter", "Folder", "Datastore", "Network", "VirtualMachine", "HostSystem"} {
		for _, found := range w.registry.All(kind) {
			if w.pathOf(found.Reference()) != path {
				continue
			}
			ctx := w.own()
			if datastore, is := found.(*vcsim.Datastore); is {
				if failed := w.renameDatastore(ctx, datastore, to); failed != nil {
					return fmt.Errorf("%s", message(failed))
				}
				return nil
			}
			from := name(found)
			changes := []types.PropertyChange{{Name: "name", Val: to}}
			switch found.(type) {
			case *mo.Network:
				changes = append(changes, types.PropertyChange{Name: "summary.name", Val: any(to)})
			case *vcsim.VirtualMachine:
				changes = append(changes, types.PropertyChange{Name: "config.name", Val: to}, types.PropertyChange{Name: "summary.config.name", Val: to})
			}
			if network, is := found.(*mo.Network); is {
				w.registry.WithLock(ctx, network, func() { network.Name = to; network.Entity().Name = to })
				w.renameBackings(ctx, from, to)
				return nil
			}
			w.registry.AtomicUpdate(ctx, found, changes)
			return nil
		}
	}
	return fmt.Errorf("no object at %q", path)
}

// renameBackings writes the new name of their network to adapters.
func (w *world) renameBackings(ctx *vcsim.Context, from, to string) {
	for _, entity := range w.registry.All("VirtualMachine") {
		machine := entity.(*vcsim.VirtualMachine)
		w.registry.WithLock(ctx, machine, func() {
			for _, device := range devices(machine).SelectByType((*types.VirtualEthernetCard)(nil)) {
				backing, is := device.GetVirtualDevice().Backing.(*types.VirtualEthernetCardNetworkBackingInfo)
				if is && backing.DeviceName == from {
					backing.DeviceName = to
				}
			}
			w.changed(ctx, machine)
		})
	}
}

// removeHost takes a host out of the inventory with all that vCenter has of its machines: "the hosts and virtual machines remain as they are",
// and run on ("Remove a Host", vCenter Server and Host Management).
func (w *world) removeHost(named string) error {
	for _, entity := range w.registry.All("HostSystem") {
		host := entity.(*vcsim.HostSystem)
		if host.Name != named {
			continue
		}
		ctx := w.own()
		for _, entity := range w.registry.All("VirtualMachine") {
			machine := entity.(*vcsim.VirtualMachine)
			if at := machine.Runtime.Host; at == nil || *at != host.Self {
				continue
			}
			w.registry.WithLock(ctx, machine, func() {
				// vcsim forgets none that is on. The locks of its disks and its guest stay.
				machine.Runtime.PowerState = off
				machine.UnregisterVM(ctx, &types.UnregisterVM{This: machine.Self})
			})
		}
		// It lists machines as well that were placed elsewhere since.
		w.registry.WithLock(ctx, host, func() { host.Vm = nil })
		if in, is := w.registry.Get(*host.Parent).(*vcsim.ClusterComputeResource); is {
			w.registry.WithLock(ctx, in, func() { vcsim.RemoveReference(&in.Host, host.Self) })
		}
		_, failed := w.inner(ctx, host, func() soap.HasFault { return host.DestroyTask(ctx, &types.Destroy_Task{This: host.Self}) })
		if failed != nil {
			return fmt.Errorf("%s", message(failed))
		}
		return nil
	}
	return fmt.Errorf("no host %q", named)
}
