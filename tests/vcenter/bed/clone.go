package bed

import (
	"github.com/google/uuid"
	"github.com/vmware/govmomi/object"
	vcsim "github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/simulator/esx"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// CloneVMTask makes a copy of a machine, or a linked clone of a snapshot of it. vcsim makes blank disks, and loses the vApp
// configuration.
func (m *machine) CloneVMTask(ctx *vcsim.Context, asked *types.CloneVM_Task) soap.HasFault {
	task := m.world.task(ctx, "CloneVM_Task", m.VirtualMachine, func(ctx *vcsim.Context) (types.AnyType, fault) {
		made, failed := m.world.clone(ctx, m.VirtualMachine, asked)
		if failed != nil {
			return nil, failed
		}
		if m.world.bed.Switches().ClonesChangeTheirSource {
			m.world.registry.WithLock(ctx, m.VirtualMachine, func() { m.world.changed(ctx, m.VirtualMachine) })
		}
		if m.world.bed.Switches().RewritesTemplates && m.Config.Template {
			m.world.registry.WithLock(ctx, m.VirtualMachine, func() { m.world.rewritten(ctx, m.VirtualMachine) })
		}
		return made.Self, nil
	})
	return &methods.CloneVM_TaskBody{Res: &types.CloneVM_TaskResponse{Returnval: task}}
}

func (w *world) clone(ctx *vcsim.Context, source *vcsim.VirtualMachine, asked *types.CloneVM_Task) (*vcsim.VirtualMachine, fault) {
	in, is := w.registry.Get(asked.Folder).(*vcsim.Folder)
	if !is {
		return nil, &types.ManagedObjectNotFound{Obj: asked.Folder}
	}
	location := asked.Spec.Location
	pool := location.Pool
	if pool == nil && !source.Config.Template {
		pool = source.ResourcePool
	}
	if pool == nil {
		// "For clone operations from a template to a virtual machine, this argument is required": VirtualMachineRelocateSpec.
		return nil, &types.InvalidArgument{InvalidProperty: "spec.location.pool"}
	}
	if asked.Spec.Customization != nil {
		return nil, &types.NotSupported{}
	}
	from, failed := w.cloned(source, asked.Spec.Snapshot)
	if failed != nil {
		return nil, failed
	}
	if failed := w.clonePolicies(from, location); failed != nil {
		return nil, failed
	}
	linked := false
	switch types.VirtualMachineRelocateDiskMoveOptions(location.DiskMoveType) {
	case "", types.VirtualMachineRelocateDiskMoveOptionsMoveAllDiskBackingsAndDisallowSharing,
		types.VirtualMachineRelocateDiskMoveOptionsMoveAllDiskBackingsAndConsolidate,
		types.VirtualMachineRelocateDiskMoveOptionsMoveAllDiskBackingsAndAllowSharing:
	case types.VirtualMachineRelocateDiskMoveOptionsCreateNewChildDiskBacking:
		// "For a clone this option is only valid when cloning from a snapshot": VirtualMachineRelocateDiskMoveOptions.
		if linked = true; asked.Spec.Snapshot == nil {
			return nil, &types.InvalidArgument{InvalidProperty: "spec.snapshot"}
		}
	default:
		return nil, &types.NotSupported{}
	}
	spec := w.cloneSpec(source, from, asked)
	var copies []copied
	if spec.DeviceChange, copies, failed = w.cloneDevices(from, linked); failed != nil {
		return nil, failed
	}
	if !w.clonesToAnyHost() || w.bed.Switches().RefusesWithoutHost {
		if failed := w.hostless(*pool, location.Host); failed != nil {
			return nil, failed
		}
	}
	grown := w.isBorn(child{asked.Folder, asked.Name})
	made, failed := w.create(ctx, in, spec, *pool, location.Host)
	if failed != nil {
		grown()
		return nil, failed
	}
	w.noteClone(from, made, location)
	whole := w.isMade(ctx, made)
	grown()
	defer whole()
	if failed = w.fill(made, copies); failed == nil {
		failed = w.afterwards(ctx, made, asked)
	}
	if failed != nil {
		if made.Runtime.PowerState != on {
			_ = w.destroy(ctx, made)
		}
		return nil, failed
	}
	return made, nil
}

// cloned is the configuration that is cloned: the machine's, or a snapshot's.
func (w *world) cloned(source *vcsim.VirtualMachine, at *ref) (*types.VirtualMachineConfigInfo, fault) {
	if at == nil {
		return source.Config, nil
	}
	for _, snapshot := range w.snapshots(source) {
		if snapshot.Self == *at {
			return &snapshot.Config, nil
		}
	}
	return nil, &types.InvalidArgument{InvalidProperty: "spec.snapshot"}
}

// cloneSpec is all of a clone but its devices. Its extraConfig comes along as it is, an OVF environment of the source's too, until
// the clone is powered on: guests have met such ones.
func (w *world) cloneSpec(source *vcsim.VirtualMachine, from *types.VirtualMachineConfigInfo, asked *types.CloneVM_Task) types.VirtualMachineConfigSpec {
	var at object.DatastorePath
	at.FromString(source.Config.Files.VmPathName)
	if wanted := asked.Spec.Location.Datastore; wanted != nil {
		if datastore, is := w.registry.Get(*wanted).(*vcsim.Datastore); is {
			at.Datastore = datastore.Name
		}
	}
	spec := types.VirtualMachineConfigSpec{
		Name: asked.Name, Version: from.Version, GuestId: from.GuestId, Annotation: from.Annotation, Firmware: from.Firmware,
		Files:   &types.VirtualMachineFileInfo{VmPathName: "[" + at.Datastore + "]"},
		NumCPUs: from.Hardware.NumCPU, MemoryMB: int64(from.Hardware.MemoryMB), NumCoresPerSocket: from.Hardware.NumCoresPerSocket,
		BootOptions: from.BootOptions, ManagedBy: from.ManagedBy, CpuHotAddEnabled: from.CpuHotAddEnabled,
		MemoryHotAddEnabled: from.MemoryHotAddEnabled, Flags: &from.Flags,
	}
	spec.ExtraConfig = append(spec.ExtraConfig, from.ExtraConfig...)
	if from.VAppConfig != nil {
		info := from.VAppConfig.GetVmConfigInfo()
		vapp := &types.VmConfigSpec{
			IpAssignment: &info.IpAssignment, Eula: info.Eula, OvfEnvironmentTransport: info.OvfEnvironmentTransport,
			InstallBootRequired: &info.InstallBootRequired, InstallBootStopDelay: info.InstallBootStopDelay,
		}
		add := types.ArrayUpdateSpec{Operation: types.ArrayUpdateOperationAdd}
		for _, property := range info.Property {
			vapp.Property = append(vapp.Property, types.VAppPropertySpec{ArrayUpdateSpec: add, Info: &property})
		}
		for _, product := range info.Product {
			vapp.Product = append(vapp.Product, types.VAppProductSpec{ArrayUpdateSpec: add, Info: &product})
		}
		spec.VAppConfig = vapp
	}
	return spec
}

// copied is a disk that gets the contents of another: the first of a source's disks belongs to the clone's first, and so on.
type copied struct{ from string }

// cloneDevices are the devices of a clone, with disks that have no file yet.
func (w *world) cloneDevices(from *types.VirtualMachineConfigInfo, linked bool) ([]types.BaseVirtualDeviceConfigSpec, []copied, fault) {
	standard := map[int32]bool{}
	for _, device := range esx.VirtualDevice {
		standard[device.GetVirtualDevice().Key] = true
	}
	var changes []types.BaseVirtualDeviceConfigSpec
	var copies []copied
	for _, device := range from.Hardware.Device {
		if standard[device.GetVirtualDevice().Key] {
			continue
		}
		change := &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd}
		switch device := device.(type) {
		case *types.VirtualDisk:
			backing, is := device.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
			if !is {
				return nil, nil, &types.NotSupported{}
			}
			disk, fresh := *device, *backing
			fresh.FileName, fresh.Uuid, fresh.Parent, fresh.Datastore = "", "", nil, nil
			if linked {
				fresh.Parent = &types.VirtualDiskFlatVer2BackingInfo{VirtualDeviceFileBackingInfo: backing.VirtualDeviceFileBackingInfo}
			} else {
				copies = append(copies, copied{backing.FileName})
			}
			disk.Backing = &fresh
			change.Device, change.FileOperation = &disk, types.VirtualDeviceConfigSpecFileOperationCreate
		case types.BaseVirtualEthernetCard:
			card := clonedDevice(device.(types.BaseVirtualDevice))
			ethernet := card.(types.BaseVirtualEthernetCard).GetVirtualEthernetCard()
			if ethernet.AddressType != string(types.VirtualEthernetCardMacTypeManual) {
				ethernet.MacAddress = ""
			}
			change.Device = card
		default:
			change.Device = clonedDevice(device)
		}
		changes = append(changes, change)
	}
	return changes, copies, nil
}

// fill copies the contents of disks.
func (w *world) fill(made *vcsim.VirtualMachine, copies []copied) fault {
	for index, path := range files(made) {
		if index >= len(copies) {
			break
		}
		if failed := w.disks.Fill(path, copies[index].from); failed != nil {
			return failed
		}
	}
	return nil
}

// afterwards does what a clone's specification asks for in addition to the copy.
func (w *world) afterwards(ctx *vcsim.Context, made *vcsim.VirtualMachine, asked *types.CloneVM_Task) fault {
	changes := asked.Spec.Config
	if changes == nil {
		changes = &types.VirtualMachineConfigSpec{}
	}
	dropped(changes, w.bed.Switches().CloneDrops)
	changes.DeviceChange = append(append([]types.BaseVirtualDeviceConfigSpec{}, asked.Spec.Location.DeviceChange...), changes.DeviceChange...)
	if failed := w.reconfigure(ctx, made, &types.ReconfigVM_Task{This: made.Self, Spec: *changes}); failed != nil {
		return failed
	}
	if asked.Spec.Template {
		var failed fault
		w.registry.WithLock(ctx, made, func() {
			if response := made.MarkAsTemplate(&types.MarkAsTemplate{This: made.Self}); response.Fault() != nil {
				failed = response.Fault().VimFault().(fault)
			}
		})
		return failed
	}
	if asked.Spec.PowerOn {
		return w.powerOn(ctx, made)
	}
	return nil
}

// rewritten changes a machine's settings as a vCenter does that renames networks or registers the machine on another host: other summaries,
// names of host devices, entries of hosts, and another version.
func (w *world) rewritten(ctx *vcsim.Context, machine *vcsim.VirtualMachine) {
	for _, device := range machine.Config.Hardware.Device {
		device := device.GetVirtualDevice()
		if info, is := device.DeviceInfo.(*types.Description); is {
			info.Summary += " (renamed)"
		}
		if backing, is := device.Backing.(types.BaseVirtualDeviceDeviceBackingInfo); is {
			if _, network := device.Backing.(*types.VirtualEthernetCardNetworkBackingInfo); !network {
				backing.GetVirtualDeviceDeviceBackingInfo().DeviceName += "-renamed"
			}
		}
	}
	entry := &types.OptionValue{Key: "migrate.hostLog", Value: uuid.NewString()}
	machine.Config.ExtraConfig = append(without(machine.Config.ExtraConfig, entry.Key), entry)
	w.changed(ctx, machine)
}

// dropped takes parts of settings away that are to have no effect.
func dropped(spec *types.VirtualMachineConfigSpec, parts []string) {
	for _, part := range parts {
		switch part {
		case "vapp":
			spec.VAppConfig = nil
		case "uuid":
			spec.Uuid = ""
		case "extra":
			spec.ExtraConfig = nil
		case "devices":
			spec.DeviceChange = nil
		}
	}
}

// RelocateVMTask moves a machine to another host or pool. Moving its files is refused: vcsim says that it did, and does not. The
// control call "drift" does.
func (m *machine) RelocateVMTask(ctx *vcsim.Context, asked *types.RelocateVM_Task) soap.HasFault {
	if asked.Spec.Datastore != nil || len(asked.Spec.Disk) > 0 || len(asked.Spec.DeviceChange) > 0 {
		return &methods.RelocateVM_TaskBody{Fault_: vcsim.Fault("", &types.NotSupported{})}
	}
	task := m.world.task(ctx, "RelocateVM_Task", m.VirtualMachine, func(ctx *vcsim.Context) (types.AnyType, fault) {
		return m.world.inner(ctx, m.VirtualMachine, func() soap.HasFault { return m.VirtualMachine.RelocateVMTask(ctx, asked) })
	})
	return &methods.RelocateVM_TaskBody{Res: &types.RelocateVM_TaskResponse{Returnval: task}}
}
