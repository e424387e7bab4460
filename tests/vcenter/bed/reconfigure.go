package bed

import (
	"reflect"
	"strings"

	"github.com/vmware/govmomi/object"
	vcsim "github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// ReconfigVMTask changes a machine.
func (m *machine) ReconfigVMTask(ctx *vcsim.Context, asked *types.ReconfigVM_Task) soap.HasFault {
	task := m.world.task(ctx, "ReconfigVM_Task", m.VirtualMachine, func(ctx *vcsim.Context) (types.AnyType, fault) {
		dropped(&asked.Spec, m.world.bed.Switches().ReconfigureDrops)
		return nil, m.world.reconfigure(ctx, m.VirtualMachine, asked)
	})
	return &methods.ReconfigVM_TaskBody{Res: &types.ReconfigVM_TaskResponse{Returnval: task}}
}

// reconfigure checks all changes, makes files, lets vcsim change the inventory, and then does what the changes mean for files
// and bodies. Left behind when it fails: nothing, but what vcsim has changed before its own fault.
func (w *world) reconfigure(ctx *vcsim.Context, machine *vcsim.VirtualMachine, asked *types.ReconfigVM_Task) fault {
	spec := &asked.Spec
	// "ConcurrentAccess if the changeVersion does not match the server's changeVersion for the configuration" (reference of ReconfigVM_Task).
	// vcsim changes the machine all the same.
	stale := spec.ChangeVersion != "" && spec.ChangeVersion != machine.Config.ChangeVersion
	if stale && !w.bed.Switches().IgnoresChangeVersion {
		return &types.ConcurrentAccess{}
	}
	if failed := w.whileOn(machine, spec); failed != nil {
		return failed
	}
	if failed := w.knowsPolicy(spec.VmProfile); failed != nil {
		return failed
	}
	if w.bed.Switches().ShortensEntries {
		for _, entry := range spec.ExtraConfig {
			if value, is := entry.GetOptionValue().Value.(string); is {
				entry.GetOptionValue().Value = value[:min(len(value), 64<<10)]
			}
		}
	}
	if machine.Config.Template {
		_, failed := w.inner(ctx, machine, func() soap.HasFault { return machine.ReconfigVMTask(ctx, asked) })
		return failed
	}
	var made, gone []string
	undo := func() {
		for _, disk := range made {
			_ = w.disks.Delete(disk)
		}
	}
	directory := directoryOf(machine)
	for index, change := range spec.DeviceChange {
		change := change.GetVirtualDeviceConfigSpec()
		var failed fault
		var disk string
		if change.Operation == types.VirtualDeviceConfigSpecOperationAdd {
			disk, failed = w.newDevice(change, index, directory, machine.Name, holder(machine))
			if disk != "" {
				made = append(made, disk)
			}
		} else {
			disk, failed = w.oldDevice(machine, change, index)
			if disk != "" {
				gone = append(gone, disk)
			}
		}
		if failed != nil {
			undo()
			return failed
		}
	}
	_, failed := w.inner(ctx, machine, func() soap.HasFault { return machine.ReconfigVMTask(ctx, asked) })
	if failed != nil {
		undo()
		return failed
	}
	w.registry.WithLock(ctx, machine, func() { patchVApp(machine, spec.VAppConfig) })
	w.policies.ofHome(machine.Self, spec.VmProfile)
	if machine.Runtime.PowerState == on {
		w.disks.Unlock(holder(machine))
		if failed := w.lock(machine); failed != nil {
			return failed
		}
		if failed := w.connect(machine, spec); failed != nil {
			return failed
		}
	}
	for _, disk := range gone {
		if failed := w.disks.Delete(disk); failed != nil {
			return failed
		}
	}
	return nil
}

// whileOn refuses what cannot be changed while a machine runs. CPUs and memory without hot add: the faults that ReconfigVM_Task is
// documented with. Properties: it is not certain that vCenter refuses them (govmomi 2201 saw one edit succeed), so that is a
// switch. Disks: no body can take or lose one.
func (w *world) whileOn(machine *vcsim.VirtualMachine, spec *types.VirtualMachineConfigSpec) fault {
	if machine.Runtime.PowerState != on {
		return nil
	}
	hot := func(enabled *bool) bool { return enabled != nil && *enabled }
	hardware := machine.Config.Hardware
	switch {
	case spec.NumCPUs != 0 && spec.NumCPUs != hardware.NumCPU && !hot(machine.Config.CpuHotAddEnabled):
		return &types.CpuHotPlugNotSupported{}
	case spec.MemoryMB != 0 && int32(spec.MemoryMB) != hardware.MemoryMB && !hot(machine.Config.MemoryHotAddEnabled):
		return &types.MemoryHotPlugNotSupported{}
	case spec.VAppConfig != nil && !w.bed.Switches().EditPropertiesWhileOn:
		return wrongState(machine, off)
	}
	for _, change := range spec.DeviceChange {
		if _, disk := change.GetVirtualDeviceConfigSpec().Device.(*types.VirtualDisk); disk && w.bed.config.Bodies {
			return &types.NotSupported{}
		}
	}
	return nil
}

// oldDevice checks the edit or the removal of a device, and completes it: a caller may give no more than the key, and what is to
// change. It gives the path of a disk whose files are to go.
func (w *world) oldDevice(machine *vcsim.VirtualMachine, change *types.VirtualDeviceConfigSpec, index int) (string, fault) {
	bad := &types.InvalidDeviceSpec{DeviceIndex: int32(index)}
	if change.Device == nil {
		return "", bad
	}
	old := devices(machine).FindByKey(change.Device.GetVirtualDevice().Key)
	if old == nil || reflect.TypeOf(old) != reflect.TypeOf(change.Device) {
		return "", bad
	}
	if change.Operation == types.VirtualDeviceConfigSpecOperationEdit {
		return "", w.edit(old, change.Device, bad)
	}
	change.Device = old
	disk, is := old.(*types.VirtualDisk)
	if !is {
		return "", nil
	}
	destroy := change.FileOperation == types.VirtualDeviceConfigSpecFileOperationDestroy
	change.FileOperation = ""
	path := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo).FileName
	if destroy {
		if w.disks.IsParent(path) {
			return "", &types.FileLocked{FileFault: types.FileFault{File: path}}
		}
		return path, w.disks.Locked(holder(machine), path)
	}
	// A disk that a snapshot holds cannot be detached, but deleted; one that was added later can (vsphere-storage-for-docker
	// 399: "InvalidDeviceSpec"). Independent disks are outside snapshots.
	if w.inSnapshot(machine, disk) {
		return "", bad
	}
	return "", nil
}

func (w *world) edit(old, device types.BaseVirtualDevice, bad fault) fault {
	from, to := old.GetVirtualDevice(), device.GetVirtualDevice()
	if to.ControllerKey == 0 {
		to.ControllerKey = from.ControllerKey
	}
	if to.UnitNumber == nil {
		to.UnitNumber = from.UnitNumber
	}
	if to.Backing == nil {
		to.Backing = from.Backing
	}
	if to.Connectable == nil {
		to.Connectable = from.Connectable
	}
	if card, is := device.(types.BaseVirtualEthernetCard); is {
		card, was := card.GetVirtualEthernetCard(), old.(types.BaseVirtualEthernetCard).GetVirtualEthernetCard()
		if card.MacAddress == "" {
			card.MacAddress, card.AddressType = was.MacAddress, was.AddressType
		}
		if backing, is := card.Backing.(*types.VirtualEthernetCardNetworkBackingInfo); is && w.network(backing.DeviceName) == nil {
			return bad
		}
	}
	if disk, is := device.(*types.VirtualDisk); is {
		was := old.(*types.VirtualDisk)
		backing, is := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
		if !is || backing.FileName != was.Backing.(*types.VirtualDiskFlatVer2BackingInfo).FileName {
			return bad
		}
		if disk.CapacityInBytes == 0 && disk.CapacityInKB == 0 {
			disk.CapacityInBytes, disk.CapacityInKB = was.CapacityInBytes, was.CapacityInKB
		}
		if disk.CapacityInBytes != was.CapacityInBytes && disk.CapacityInKB != was.CapacityInKB {
			// Growing a disk is nothing that this bed does.
			return &types.NotSupported{}
		}
		backing.Uuid = was.Backing.(*types.VirtualDiskFlatVer2BackingInfo).Uuid
	}
	return nil
}

// connect tells a body which of its adapters have been connected or disconnected.
func (w *world) connect(machine *vcsim.VirtualMachine, spec *types.VirtualMachineConfigSpec) fault {
	running := w.running(machine)
	if running == nil {
		return nil
	}
	for _, change := range spec.DeviceChange {
		card, is := change.GetVirtualDeviceConfigSpec().Device.(types.BaseVirtualEthernetCard)
		if !is {
			continue
		}
		adapter := card.GetVirtualEthernetCard()
		gone := change.GetVirtualDeviceConfigSpec().Operation == types.VirtualDeviceConfigSpecOperationRemove
		connected := !gone && adapter.Connectable != nil && adapter.Connectable.Connected
		if err := w.bed.config.Carrier.NIC(machine.Config.Uuid, running.id, adapter.Key, connected); err != nil {
			return &types.GenericVmConfigFault{Reason: err.Error()}
		}
	}
	return nil
}

// directoryOf is the datastore path of the machine's own directory.
func directoryOf(machine *vcsim.VirtualMachine) string {
	at := machine.Config.Files.VmPathName
	return at[:strings.LastIndex(at, "/")]
}

// inSnapshot says whether a snapshot of the machine holds the disk.
func (w *world) inSnapshot(machine *vcsim.VirtualMachine, disk *types.VirtualDisk) bool {
	if strings.HasPrefix(disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo).DiskMode, "independent") {
		return false
	}
	for _, snapshot := range w.snapshots(machine) {
		if object.VirtualDeviceList(snapshot.Config.Hardware.Device).FindByKey(disk.Key) != nil {
			return true
		}
	}
	return false
}
