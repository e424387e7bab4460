package bed

import (
	"os"
	"path/filepath"
	"strings"

	vcsim "github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vcenter/disks"
)

// diskManager answers for virtual disks as files. vcsim's makes empty extents, knows no locks, and has a hash of the path for
// a UUID.
type diskManager struct {
	*vcsim.VirtualDiskManager
	world *world
}

// nowhere is the fault of a path without its datacenter, which "is required when the method is invoked on vCenter Server" (reference
// of VirtualDiskManager).
func nowhere(datacenter *ref) fault {
	if datacenter == nil {
		return &types.InvalidArgument{InvalidProperty: "datacenter"}
	}
	return nil
}

// CreateVirtualDiskTask makes a blank disk.
func (m *diskManager) CreateVirtualDiskTask(ctx *vcsim.Context, asked *types.CreateVirtualDisk_Task) soap.HasFault {
	task := m.world.task(ctx, "CreateVirtualDisk_Task", m.VirtualDiskManager, func(*vcsim.Context) (types.AnyType, fault) {
		if failed := nowhere(asked.Datacenter); failed != nil {
			return nil, failed
		}
		spec, is := asked.Spec.(*types.FileBackedVirtualDiskSpec)
		if !is || spec.CapacityKb <= 0 {
			return nil, &types.InvalidArgument{InvalidProperty: "spec"}
		}
		thin := spec.DiskType == string(types.VirtualDiskTypeThin)
		if _, failed := m.world.disks.Create(asked.Name, spec.CapacityKb*1024, thin); failed != nil {
			return nil, failed
		}
		return asked.Name, nil
	})
	return &methods.CreateVirtualDisk_TaskBody{Res: &types.CreateVirtualDisk_TaskResponse{Returnval: task}}
}

// DeleteVirtualDiskTask deletes one.
func (m *diskManager) DeleteVirtualDiskTask(ctx *vcsim.Context, asked *types.DeleteVirtualDisk_Task) soap.HasFault {
	task := m.world.task(ctx, "DeleteVirtualDisk_Task", m.VirtualDiskManager, func(*vcsim.Context) (types.AnyType, fault) {
		if failed := nowhere(asked.Datacenter); failed != nil {
			return nil, failed
		}
		return nil, m.world.disks.Delete(asked.Name)
	})
	return &methods.DeleteVirtualDisk_TaskBody{Res: &types.DeleteVirtualDisk_TaskResponse{Returnval: task}}
}

// MoveVirtualDiskTask gives one another path.
func (m *diskManager) MoveVirtualDiskTask(ctx *vcsim.Context, asked *types.MoveVirtualDisk_Task) soap.HasFault {
	task := m.world.task(ctx, "MoveVirtualDisk_Task", m.VirtualDiskManager, func(*vcsim.Context) (types.AnyType, fault) {
		if failed := nowhere(asked.SourceDatacenter); failed != nil {
			return nil, failed
		}
		return nil, m.world.disks.Move(asked.SourceName, asked.DestName)
	})
	return &methods.MoveVirtualDisk_TaskBody{Res: &types.MoveVirtualDisk_TaskResponse{Returnval: task}}
}

// CopyVirtualDiskTask copies one that no running machine has.
func (m *diskManager) CopyVirtualDiskTask(ctx *vcsim.Context, asked *types.CopyVirtualDisk_Task) soap.HasFault {
	task := m.world.task(ctx, "CopyVirtualDisk_Task", m.VirtualDiskManager, func(*vcsim.Context) (types.AnyType, fault) {
		if failed := nowhere(asked.SourceDatacenter); failed != nil {
			return nil, failed
		}
		if failed := m.world.disks.Locked("", asked.SourceName); failed != nil {
			return nil, failed
		}
		thin := false
		if spec, is := asked.DestSpec.(*types.FileBackedVirtualDiskSpec); is {
			thin = spec.DiskType == string(types.VirtualDiskTypeThin)
		}
		if asked.Force != nil && *asked.Force {
			if _, failed := m.world.disks.Read(asked.DestName); failed == nil {
				if failed := m.world.disks.Delete(asked.DestName); failed != nil {
					return nil, failed
				}
			}
		}
		if _, failed := m.world.disks.Copy(asked.SourceName, asked.DestName, thin); failed != nil {
			return nil, failed
		}
		if !m.world.bed.Switches().CopiesKeepUUID {
			return nil, nil
		}
		source, failed := m.world.disks.Read(asked.SourceName)
		if failed != nil {
			return nil, failed
		}
		return nil, m.world.disks.SetUUID(asked.DestName, source.UUID)
	})
	return &methods.CopyVirtualDisk_TaskBody{Res: &types.CopyVirtualDisk_TaskResponse{Returnval: task}}
}

// ExtendVirtualDiskTask is refused: growing a disk is nothing that this bed does.
func (m *diskManager) ExtendVirtualDiskTask(*vcsim.Context, *types.ExtendVirtualDisk_Task) soap.HasFault {
	return &methods.ExtendVirtualDisk_TaskBody{Fault_: vcsim.Fault("", &types.NotSupported{})}
}

// QueryVirtualDiskUuid says what the descriptor has.
func (m *diskManager) QueryVirtualDiskUuid(_ *vcsim.Context, asked *types.QueryVirtualDiskUuid) soap.HasFault {
	if failed := nowhere(asked.Datacenter); failed != nil {
		return &methods.QueryVirtualDiskUuidBody{Fault_: vcsim.Fault("", failed)}
	}
	found, failed := m.world.disks.Read(asked.Name)
	if failed != nil {
		return &methods.QueryVirtualDiskUuidBody{Fault_: vcsim.Fault("", failed)}
	}
	return &methods.QueryVirtualDiskUuidBody{Res: &types.QueryVirtualDiskUuidResponse{Returnval: disks.Spaced(found.UUID)}}
}

// SetVirtualDiskUuid changes it.
func (m *diskManager) SetVirtualDiskUuid(_ *vcsim.Context, asked *types.SetVirtualDiskUuid) soap.HasFault {
	if failed := nowhere(asked.Datacenter); failed != nil {
		return &methods.SetVirtualDiskUuidBody{Fault_: vcsim.Fault("", failed)}
	}
	if failed := m.world.disks.SetUUID(asked.Name, asked.Uuid); failed != nil {
		return &methods.SetVirtualDiskUuidBody{Fault_: vcsim.Fault("", failed)}
	}
	return &methods.SetVirtualDiskUuidBody{Res: new(types.SetVirtualDiskUuidResponse)}
}

// fileManager answers for files of datastores. Disks, and directories with disks, that a running machine has locked stay.
type fileManager struct {
	*vcsim.FileManager
	world *world
}

// DeleteDatastoreFileTask deletes a file, or a directory with all that is in it.
func (m *fileManager) DeleteDatastoreFileTask(ctx *vcsim.Context, asked *types.DeleteDatastoreFile_Task) soap.HasFault {
	task := m.world.task(ctx, "DeleteDatastoreFile_Task", m.FileManager, func(ctx *vcsim.Context) (types.AnyType, fault) {
		if failed := m.world.disks.Locked("", asked.Name); failed != nil {
			return nil, failed
		}
		result, failed := m.world.inner(ctx, m.FileManager, func() soap.HasFault { return m.FileManager.DeleteDatastoreFileTask(ctx, asked) })
		if failed == nil {
			m.world.disks.Forget()
		}
		return result, failed
	})
	return &methods.DeleteDatastoreFile_TaskBody{Res: &types.DeleteDatastoreFile_TaskResponse{Returnval: task}}
}

// MoveDatastoreFileTask gives a file or a directory another path. A descriptor is no file to move by itself: on VMFS "this method
// should not be used to move virtual disk files" (reference of FileManager).
func (m *fileManager) MoveDatastoreFileTask(ctx *vcsim.Context, asked *types.MoveDatastoreFile_Task) soap.HasFault {
	task := m.world.task(ctx, "MoveDatastoreFile_Task", m.FileManager, func(ctx *vcsim.Context) (types.AnyType, fault) {
		if failed := m.world.disks.Locked("", asked.SourceName); failed != nil {
			return nil, failed
		}
		if filepath.Ext(asked.SourceName) == ".vmdk" || m.hasDisks(asked.SourceName) {
			return nil, &types.NotSupported{}
		}
		return m.world.inner(ctx, m.FileManager, func() soap.HasFault { return m.FileManager.MoveDatastoreFileTask(ctx, asked) })
	})
	return &methods.MoveDatastoreFile_TaskBody{Res: &types.MoveDatastoreFile_TaskResponse{Returnval: task}}
}

func (m *fileManager) hasDisks(name string) bool {
	directory, failed := m.world.disks.File(name)
	if failed != nil {
		return false
	}
	info, err := os.Stat(directory)
	if err != nil || !info.IsDir() {
		return false
	}
	found, _ := filepath.Glob(filepath.Join(directory, "*.vmdk"))
	return len(found) > 0
}

// CopyDatastoreFileTask copies a file.
func (m *fileManager) CopyDatastoreFileTask(ctx *vcsim.Context, asked *types.CopyDatastoreFile_Task) soap.HasFault {
	task := m.world.task(ctx, "CopyDatastoreFile_Task", m.FileManager, func(ctx *vcsim.Context) (types.AnyType, fault) {
		if filepath.Ext(asked.SourceName) == ".vmdk" {
			return nil, &types.NotSupported{}
		}
		return m.world.inner(ctx, m.FileManager, func() soap.HasFault { return m.FileManager.CopyDatastoreFileTask(ctx, asked) })
	})
	return &methods.CopyDatastoreFile_TaskBody{Res: &types.CopyDatastoreFile_TaskResponse{Returnval: task}}
}

// browser answers for lists of files. vcsim finds nothing without a pattern; vCenter then finds all.
type browser struct {
	*vcsim.HostDatastoreBrowser
	world *world
}

func (b *browser) all(spec *types.HostDatastoreBrowserSearchSpec) *types.HostDatastoreBrowserSearchSpec {
	if spec == nil {
		spec = new(types.HostDatastoreBrowserSearchSpec)
	}
	if len(spec.MatchPattern) == 0 {
		spec.MatchPattern = []string{"*"}
	}
	for index, pattern := range spec.MatchPattern {
		inside := strings.TrimSuffix(strings.TrimPrefix(pattern, "*"), "*")
		if b.world.bed.Switches().SimplePatterns && strings.ContainsAny(inside, "*?") {
			// No file is called so.
			spec.MatchPattern[index] = "\x00"
		}
	}
	return spec
}

// SearchDatastoreTask lists a directory.
func (b *browser) SearchDatastoreTask(ctx *vcsim.Context, asked *types.SearchDatastore_Task) soap.HasFault {
	asked.SearchSpec = b.all(asked.SearchSpec)
	return b.HostDatastoreBrowser.SearchDatastoreTask(ctx, asked)
}

// SearchDatastoreSubFoldersTask lists a directory and those below it.
func (b *browser) SearchDatastoreSubFoldersTask(ctx *vcsim.Context, asked *types.SearchDatastoreSubFolders_Task) soap.HasFault {
	asked.SearchSpec = b.all(asked.SearchSpec)
	return b.HostDatastoreBrowser.SearchDatastoreSubFoldersTask(ctx, asked)
}
