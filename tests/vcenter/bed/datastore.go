package bed

import (
	"slices"
	"strings"

	vcsim "github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// datastore answers for a datastore.
type datastore struct {
	*vcsim.Datastore
	world *world
}

// RenameTask gives a datastore another name, which vcsim has no call for. Paths begin with this name. Paths of machines
// have the new name then, and a recorded path names no datastore any longer ("Change the Datastore Name", vSphere Storage).
func (d *datastore) RenameTask(ctx *vcsim.Context, asked *types.Rename_Task) soap.HasFault {
	task := d.world.task(ctx, "Rename_Task", d.Datastore, func(ctx *vcsim.Context) (types.AnyType, fault) {
		return nil, d.world.renameDatastore(ctx, d.Datastore, asked.NewName)
	})
	return &methods.Rename_TaskBody{Res: &types.Rename_TaskResponse{Returnval: task}}
}

func (w *world) renameDatastore(ctx *vcsim.Context, renamed *vcsim.Datastore, to string) fault {
	if other := w.datastore(to); other != nil {
		return &types.DuplicateName{Name: to, Object: other.Self}
	}
	from := renamed.Name
	if failed := w.disks.RenameDatastore(from, to); failed != nil {
		return failed
	}
	for _, entity := range w.registry.All("VirtualMachine") {
		machine := entity.(*vcsim.VirtualMachine)
		paths := append(files(machine), machine.Config.Files.VmPathName)
		if !slices.ContainsFunc(paths, func(path string) bool { return strings.HasPrefix(path, "["+from+"]") }) {
			continue
		}
		w.registry.WithLock(ctx, machine, func() {
			now := machine.Config.Files
			// vcsim looks for the datastore of each file whenever a machine is changed.
			machine.LayoutEx.File = slices.Clone(machine.LayoutEx.File)
			for i := range machine.LayoutEx.File {
				machine.LayoutEx.File[i].Name = pathOn(machine.LayoutEx.File[i].Name, from, to)
			}
			w.registry.Update(ctx, machine, []types.PropertyChange{
				{Name: "config.files.vmPathName", Val: pathOn(now.VmPathName, from, to)},
				{Name: "config.files.snapshotDirectory", Val: pathOn(now.SnapshotDirectory, from, to)},
				{Name: "config.files.suspendDirectory", Val: pathOn(now.SuspendDirectory, from, to)},
				{Name: "config.files.logDirectory", Val: pathOn(now.LogDirectory, from, to)},
				{Name: "summary.config.vmPathName", Val: pathOn(now.VmPathName, from, to)},
			})
			for _, kept := range w.snapshots(machine) {
				for _, device := range kept.Config.Hardware.Device {
					if disk, is := device.(*types.VirtualDisk); is {
						if backing, is := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo); is {
							backing.FileName = pathOn(backing.FileName, from, to)
						}
					}
				}
			}
		})
		failed := w.rewrite(ctx, machine, func(backing *types.VirtualDiskFlatVer2BackingInfo) fault {
			// A linked clone's disk names the disks below it.
			for {
				backing.FileName = pathOn(backing.FileName, from, to)
				if backing.Parent == nil {
					return nil
				}
				parent := *backing.Parent
				backing.Parent, backing = &parent, &parent
			}
		})
		if failed != nil {
			return failed
		}
	}
	w.registry.WithLock(ctx, renamed, func() {
		w.registry.Update(ctx, renamed, []types.PropertyChange{{Name: "name", Val: to}, {Name: "summary.name", Val: to}})
	})
	return nil
}

// pathOn is a path with another name of its datastore, if that was the earlier one.
func pathOn(path, from, to string) string {
	if rest, is := strings.CutPrefix(path, "["+from+"]"); is {
		return "[" + to + "]" + rest
	}
	return path
}
