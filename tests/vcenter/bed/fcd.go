package bed

import (
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/object"
	vcsim "github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// storageObjects answers for First Class Disks. vcsim's have empty files, know no locks, and are attached to no device. Here a disk's file
// is one of the store's, and a machine that holds that file holds the disk, whichever way it was attached ("attachDisk" and
// "reconfigure" of a disk by its path, reference of VirtualMachine).
type storageObjects struct {
	*vcsim.VcenterVStorageObjectManager
	world *world
}

// firstClass is a First Class Disk.
type firstClass struct {
	types.VStorageObject
	snapshots map[string]bool
}

func (f *firstClass) path() string {
	return f.Config.Backing.(*types.BaseConfigInfoDiskFileBackingInfo).FilePath
}

// object finds a disk on a datastore by its identifier.
func (w *world) object(at ref, id types.ID) *firstClass {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	found := w.objects[id.Id]
	if found == nil || found.Config.Backing.GetBaseConfigInfoBackingInfo().Datastore != at {
		return nil
	}
	return found
}

// objectAt finds a disk by its file.
func (w *world) objectAt(path string) *firstClass {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, found := range w.objects {
		if found.path() == path {
			return found
		}
	}
	return nil
}

// consumer is the machine that holds a disk, and its device.
func (w *world) consumer(of *firstClass) (*vcsim.VirtualMachine, *types.VirtualDisk) {
	for _, entity := range w.registry.All("VirtualMachine") {
		machine := entity.(*vcsim.VirtualMachine)
		for _, device := range devices(machine).SelectByType((*types.VirtualDisk)(nil)) {
			backing, is := device.GetVirtualDevice().Backing.(types.BaseVirtualDeviceFileBackingInfo)
			if is && backing.GetVirtualDeviceFileBackingInfo().FileName == of.path() {
				return machine, device.(*types.VirtualDisk)
			}
		}
	}
	return nil, nil
}

// CreateDiskTask makes a disk in the datastore's directory "fcd". "keepAfterDeleteVm … If not set, the default value is true": VslmCreateSpec.
func (m *storageObjects) CreateDiskTask(ctx *vcsim.Context, asked *types.CreateDisk_Task) soap.HasFault {
	task := m.world.task(ctx, "CreateDisk_Task", m.VcenterVStorageObjectManager, func(*vcsim.Context) (types.AnyType, fault) {
		backing, is := asked.Spec.BackingSpec.(*types.VslmCreateSpecDiskFileBackingSpec)
		if !is || asked.Spec.Name == "" || asked.Spec.CapacityInMB <= 0 {
			return nil, &types.InvalidArgument{InvalidProperty: "spec"}
		}
		datastore, is := m.world.registry.Get(backing.Datastore).(*vcsim.Datastore)
		if !is {
			return nil, &types.InvalidDatastore{}
		}
		id := types.ID{Id: uuid.NewString()}
		directory := "[" + datastore.Name + "] fcd"
		if err := m.world.makeDirectory(directory); err != nil && !os.IsExist(err) {
			return nil, &types.CannotCreateFile{FileFault: types.FileFault{File: directory}}
		}
		path := directory + "/" + id.Id + ".vmdk"
		thin := backing.ProvisioningType == string(types.BaseConfigInfoDiskFileBackingInfoProvisioningTypeThin)
		if _, failed := m.world.disks.Create(path, asked.Spec.CapacityInMB<<20, thin); failed != nil {
			return nil, failed
		}
		keep := asked.Spec.KeepAfterDeleteVm
		if keep == nil {
			keep = types.NewBool(true)
		}
		made := &firstClass{snapshots: map[string]bool{}}
		made.Config.Id, made.Config.Name, made.Config.CreateTime, made.Config.KeepAfterDeleteVm = id, asked.Spec.Name, time.Now(), keep
		made.Config.CapacityInMB = asked.Spec.CapacityInMB
		file := types.BaseConfigInfoFileBackingInfo{FilePath: path}
		file.Datastore = backing.Datastore
		made.Config.Backing = &types.BaseConfigInfoDiskFileBackingInfo{
			BaseConfigInfoFileBackingInfo: file, ProvisioningType: backing.ProvisioningType,
		}
		m.world.mutex.Lock()
		m.world.objects[id.Id] = made
		m.world.mutex.Unlock()
		return made.VStorageObject, nil
	})
	return &methods.CreateDisk_TaskBody{Res: &types.CreateDisk_TaskResponse{Returnval: task}}
}

// RetrieveVStorageObject shows a disk.
func (m *storageObjects) RetrieveVStorageObject(_ *vcsim.Context, asked *types.RetrieveVStorageObject) soap.HasFault {
	found := m.world.object(asked.Datastore, asked.Id)
	if found == nil {
		return &methods.RetrieveVStorageObjectBody{Fault_: vcsim.Fault("", &types.NotFound{})}
	}
	shown := found.VStorageObject
	if machine, _ := m.world.consumer(found); machine != nil {
		shown.Config.ConsumerId = []types.ID{{Id: machine.Config.InstanceUuid}}
	}
	return &methods.RetrieveVStorageObjectBody{Res: &types.RetrieveVStorageObjectResponse{Returnval: shown}}
}

// ListVStorageObject lists the disks of a datastore.
func (m *storageObjects) ListVStorageObject(_ *vcsim.Context, asked *types.ListVStorageObject) soap.HasFault {
	m.world.mutex.Lock()
	defer m.world.mutex.Unlock()
	response := new(types.ListVStorageObjectResponse)
	for _, found := range m.world.objects {
		if found.Config.Backing.GetBaseConfigInfoBackingInfo().Datastore == asked.Datastore {
			response.Returnval = append(response.Returnval, found.Config.Id)
		}
	}
	return &methods.ListVStorageObjectBody{Res: response}
}

// DeleteVStorageObjectTask deletes a disk that no machine holds.
func (m *storageObjects) DeleteVStorageObjectTask(ctx *vcsim.Context, asked *types.DeleteVStorageObject_Task) soap.HasFault {
	task := m.world.task(ctx, "DeleteVStorageObject_Task", m.VcenterVStorageObjectManager, func(*vcsim.Context) (types.AnyType, fault) {
		found := m.world.object(asked.Datastore, asked.Id)
		if found == nil {
			return nil, &types.NotFound{}
		}
		if machine, _ := m.world.consumer(found); machine != nil {
			return nil, &types.InvalidState{}
		}
		if failed := m.world.disks.Delete(found.path()); failed != nil {
			return nil, failed
		}
		m.world.forgetObject(found)
		return nil, nil
	})
	return &methods.DeleteVStorageObject_TaskBody{Res: &types.DeleteVStorageObject_TaskResponse{Returnval: task}}
}

func (w *world) forgetObject(gone *firstClass) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	delete(w.objects, gone.Config.Id.Id)
}

// ExtendDiskTask makes a disk larger, and the device of the machine that holds it.
func (m *storageObjects) ExtendDiskTask(ctx *vcsim.Context, asked *types.ExtendDisk_Task) soap.HasFault {
	task := m.world.task(ctx, "ExtendDisk_Task", m.VcenterVStorageObjectManager, func(ctx *vcsim.Context) (types.AnyType, fault) {
		found := m.world.object(asked.Datastore, asked.Id)
		if found == nil {
			return nil, &types.NotFound{}
		}
		machine, disk := m.world.consumer(found)
		if machine != nil && m.world.bed.Switches().RefusesObjectExtension {
			return nil, &types.InvalidState{}
		}
		if asked.NewCapacityInMB <= found.Config.CapacityInMB {
			return nil, &types.InvalidArgument{InvalidProperty: "newCapacityInMB"}
		}
		bytes := asked.NewCapacityInMB << 20
		if failed := m.world.disks.Extend(found.path(), bytes); failed != nil {
			return nil, failed
		}
		found.Config.CapacityInMB = asked.NewCapacityInMB
		if machine != nil {
			m.world.registry.WithLock(ctx, machine, func() {
				disk.CapacityInBytes, disk.CapacityInKB = bytes, bytes/1024
				m.world.changed(ctx, machine)
			})
		}
		return nil, nil
	})
	return &methods.ExtendDisk_TaskBody{Res: &types.ExtendDisk_TaskResponse{Returnval: task}}
}

// VStorageObjectCreateSnapshotTask makes a snapshot of a disk.
func (m *storageObjects) VStorageObjectCreateSnapshotTask(ctx *vcsim.Context, asked *types.VStorageObjectCreateSnapshot_Task) soap.HasFault {
	work := func(*vcsim.Context) (types.AnyType, fault) {
		found := m.world.object(asked.Datastore, asked.Id)
		if found == nil {
			return nil, &types.NotFound{}
		}
		if machine, _ := m.world.consumer(found); machine != nil && m.world.bed.Switches().RefusesObjectSnapshots {
			return nil, &types.InvalidState{}
		}
		id := types.ID{Id: uuid.NewString()}
		found.snapshots[id.Id] = true
		return id, nil
	}
	task := m.world.task(ctx, "VStorageObjectCreateSnapshot_Task", m.VcenterVStorageObjectManager, work)
	return &methods.VStorageObjectCreateSnapshot_TaskBody{Res: &types.VStorageObjectCreateSnapshot_TaskResponse{Returnval: task}}
}

// DeleteSnapshotTask deletes one.
func (m *storageObjects) DeleteSnapshotTask(ctx *vcsim.Context, asked *types.DeleteSnapshot_Task) soap.HasFault {
	task := m.world.task(ctx, "DeleteSnapshot_Task", m.VcenterVStorageObjectManager, func(*vcsim.Context) (types.AnyType, fault) {
		found := m.world.object(asked.Datastore, asked.Id)
		if found == nil || !found.snapshots[asked.SnapshotId.Id] {
			return nil, &types.NotFound{}
		}
		delete(found.snapshots, asked.SnapshotId.Id)
		return nil, nil
	})
	return &methods.DeleteSnapshot_TaskBody{Res: &types.DeleteSnapshot_TaskResponse{Returnval: task}}
}

// AttachDiskTask attaches a disk as part of snapshots, which is the default mode of a device.
func (m *machine) AttachDiskTask(ctx *vcsim.Context, asked *types.AttachDisk_Task) soap.HasFault {
	task := m.world.task(ctx, "AttachDisk_Task", m.VirtualMachine, func(ctx *vcsim.Context) (types.AnyType, fault) {
		found := m.world.object(asked.Datastore, asked.DiskId)
		if found == nil {
			return nil, &types.NotFound{}
		}
		controller, is := devices(m.VirtualMachine).FindByKey(asked.ControllerKey).(types.BaseVirtualController)
		if !is {
			return nil, &types.MissingController{}
		}
		disk := &types.VirtualDisk{}
		disk.Key = -1
		disk.Backing = &types.VirtualDiskFlatVer2BackingInfo{
			VirtualDeviceFileBackingInfo: types.VirtualDeviceFileBackingInfo{FileName: found.path()},
		}
		devices(m.VirtualMachine).AssignController(disk, controller)
		return nil, m.change(ctx, types.VirtualDeviceConfigSpecOperationAdd, disk)
	})
	return &methods.AttachDisk_TaskBody{Res: &types.AttachDisk_TaskResponse{Returnval: task}}
}

// DetachDiskTask detaches a disk.
func (m *machine) DetachDiskTask(ctx *vcsim.Context, asked *types.DetachDisk_Task) soap.HasFault {
	task := m.world.task(ctx, "DetachDisk_Task", m.VirtualMachine, func(ctx *vcsim.Context) (types.AnyType, fault) {
		m.world.mutex.Lock()
		found := m.world.objects[asked.DiskId.Id]
		m.world.mutex.Unlock()
		if found == nil {
			return nil, &types.NotFound{}
		}
		holder, disk := m.world.consumer(found)
		if holder == nil || holder.Self != m.Self {
			return nil, &types.NotFound{}
		}
		return nil, m.change(ctx, types.VirtualDeviceConfigSpecOperationRemove, disk)
	})
	return &methods.DetachDisk_TaskBody{Res: &types.DetachDisk_TaskResponse{Returnval: task}}
}

func (m *machine) change(ctx *vcsim.Context, operation types.VirtualDeviceConfigSpecOperation, disk *types.VirtualDisk) fault {
	spec := types.VirtualMachineConfigSpec{DeviceChange: []types.BaseVirtualDeviceConfigSpec{
		&types.VirtualDeviceConfigSpec{Operation: operation, Device: disk},
	}}
	return m.world.reconfigure(ctx, m.VirtualMachine, &types.ReconfigVM_Task{This: m.Self, Spec: spec})
}

// keepsObject says whether a disk outlives a machine that is destroyed with it ("keepAfterDeleteVm", reference of BaseConfigInfo). One that
// does not is forgotten.
func (w *world) keepsObject(path string) bool {
	found := w.objectAt(path)
	if found == nil {
		return false
	}
	if *found.Config.KeepAfterDeleteVm && !w.bed.Switches().ObjectsGoWithMachines {
		return true
	}
	w.forgetObject(found)
	return false
}

// emptyControllers are the SCSI controllers that nothing hangs on.
func emptyControllers(all object.VirtualDeviceList) map[int32]bool {
	empty := map[int32]bool{}
	for _, controller := range all.SelectByType((*types.VirtualSCSIController)(nil)) {
		empty[controller.GetVirtualDevice().Key] = true
	}
	for _, device := range all {
		delete(empty, device.GetVirtualDevice().ControllerKey)
	}
	return empty
}
