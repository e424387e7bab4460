package bed

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/object"
	vcsim "github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// folder answers for folders of machines.
type folder struct {
	*vcsim.Folder
	world *world
}

// CreateVMTask makes a machine.
func (f *folder) CreateVMTask(ctx *vcsim.Context, asked *types.CreateVM_Task) soap.HasFault {
	task := f.world.task(ctx, "CreateVM_Task", f.Folder, func(ctx *vcsim.Context) (types.AnyType, fault) {
		if failed := f.world.hostless(asked.Pool, asked.Host); failed != nil {
			return nil, failed
		}
		made, failed := f.world.create(ctx, f.Folder, asked.Config, asked.Pool, asked.Host)
		if failed != nil {
			return nil, failed
		}
		return made.Self, nil
	})
	return &methods.CreateVM_TaskBody{Res: &types.CreateVM_TaskResponse{Returnval: task}}
}

// RegisterVMTask is refused: vcsim reads nothing of a VMX file, and makes a machine without devices.
func (f *folder) RegisterVMTask(*vcsim.Context, *types.RegisterVM_Task) soap.HasFault {
	return &methods.RegisterVM_TaskBody{Fault_: vcsim.Fault("", &types.NotSupported{})}
}

// DestroyTask destroys what is in a folder with it, machines and their disks, as Folder.Destroy_Task is documented ("recursively
// destroys all children"). vcsim forgets the machines and leaves their files.
func (f *folder) DestroyTask(ctx *vcsim.Context, asked *types.Destroy_Task) soap.HasFault {
	task := f.world.task(ctx, "Destroy_Task", f.Folder, func(ctx *vcsim.Context) (types.AnyType, fault) {
		for _, child := range append([]ref{}, f.ChildEntity...) {
			if child.Type != "VirtualMachine" {
				continue
			}
			found, failed := f.world.machine(child)
			if failed == nil {
				f.world.alone(child, func() { failed = f.world.destroy(ctx, found) })
			}
			if failed != nil {
				return nil, failed
			}
		}
		return f.world.inner(ctx, f.Folder, func() soap.HasFault { return f.Folder.DestroyTask(ctx, asked) })
	})
	return &methods.Destroy_TaskBody{Res: &types.Destroy_TaskResponse{Returnval: task}}
}

// create makes a machine with all that vcsim leaves out. Left behind when it fails: nothing.
func (w *world) create(ctx *vcsim.Context, in *vcsim.Folder, spec types.VirtualMachineConfigSpec, pool ref, host *ref) (*vcsim.VirtualMachine, fault) {
	if spec.Name == "" || strings.ContainsAny(spec.Name, "/\\%") {
		return nil, &types.InvalidName{Name: spec.Name}
	}
	var same ref
	w.registry.WithLock(ctx, in, func() {
		if other := w.registry.FindByName(spec.Name, in.ChildEntity); other != nil {
			same = other.Reference()
		}
	})
	if same.Value != "" {
		return nil, &types.DuplicateName{Name: spec.Name, Object: same}
	}
	directory, failed := w.directory(&spec)
	if failed != nil {
		return nil, failed
	}
	w.mounted(ctx, pool)
	// vCenter gives a random BIOS UUID; vcsim's is a hash of the path, and so comes again with a machine of the same name.
	if spec.Uuid == "" {
		spec.Uuid = uuid.NewString()
	}
	if spec.InstanceUuid == "" {
		spec.InstanceUuid = uuid.NewString()
	}
	spec.Version, _, _ = strings.Cut(strings.TrimSpace(spec.Version), " ")
	var made []string
	undo := func() {
		for _, disk := range made {
			_ = w.disks.Delete(disk)
		}
		if file, failed := w.disks.File(directory); failed == nil {
			_ = os.RemoveAll(file)
		}
	}
	for index, change := range spec.DeviceChange {
		change := change.GetVirtualDeviceConfigSpec()
		disk, failed := w.newDevice(change, index, directory, spec.Name, "")
		if disk != "" {
			made = append(made, disk)
		}
		if failed != nil {
			undo()
			return nil, failed
		}
	}
	result, failed := w.inner(ctx, in, func() soap.HasFault {
		return in.CreateVMTask(ctx, &types.CreateVM_Task{This: in.Self, Config: spec, Pool: pool, Host: host})
	})
	if failed != nil {
		undo()
		return nil, failed
	}
	machine, failed := w.machine(result.(ref))
	if failed != nil {
		return nil, failed
	}
	w.registry.WithLock(ctx, machine, func() {
		patchVApp(machine, spec.VAppConfig)
		// vcsim marks its machines; vCenter does not.
		machine.Config.ExtraConfig = without(machine.Config.ExtraConfig, "govcsim")
		// vcsim says nothing there, which is no value of the enumerations: pyVmomi, and so Ansible, reads no such summary.
		for _, runtime := range []*types.VirtualMachineRuntimeInfo{&machine.Runtime, &machine.Summary.Runtime} {
			runtime.FaultToleranceState = types.VirtualMachineFaultToleranceStateNotConfigured
			runtime.RecordReplayState = types.VirtualMachineRecordReplayStateInactive
		}
	})
	return machine, nil
}

// directory makes the machine's own directory, and sets the path of its VMX file. vCenter takes the machine's name, with _1 and
// so on behind it when there is one already.
func (w *world) directory(spec *types.VirtualMachineConfigSpec) (string, fault) {
	var at object.DatastorePath
	if spec.Files == nil || !at.FromString(spec.Files.VmPathName) {
		return "", &types.InvalidVmConfig{Property: "configSpec.files.vmPathName"}
	}
	if w.datastore(at.Datastore) == nil {
		return "", &types.InvalidDatastore{Name: at.Datastore}
	}
	base := spec.Name
	if at.Path != "" {
		base = strings.TrimSuffix(at.Path, "/")
		if path.Ext(base) == ".vmx" {
			base = path.Dir(base)
		}
	}
	for number := range 1000 {
		try := base
		if number > 0 {
			try = fmt.Sprintf("%s_%d", base, number)
		}
		directory := object.DatastorePath{Datastore: at.Datastore, Path: try}
		file, failed := w.disks.File(directory.String())
		if failed != nil {
			return "", failed
		}
		err := os.MkdirAll(filepath.Dir(file), 0o700)
		if err == nil {
			err = os.Mkdir(file, 0o700)
		}
		if os.IsExist(err) {
			continue
		}
		if err != nil {
			return "", &types.CannotCreateFile{FileFault: types.FileFault{File: directory.String()}}
		}
		spec.Files.VmPathName = directory.String() + "/" + spec.Name + ".vmx"
		return directory.String(), nil
	}
	return "", &types.FileAlreadyExists{FileFault: types.FileFault{File: base}}
}

// makeDirectory makes a missing directory of a datastore.
func (w *world) makeDirectory(at string) error {
	file, failed := w.disks.File(at)
	if failed != nil {
		return fmt.Errorf("%s", message(failed))
	}
	return os.Mkdir(file, 0o700)
}
