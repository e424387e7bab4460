package bed

import (
	"fmt"
	"regexp"
	"strings"

	vcsim "github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// snapshot answers for snapshots. It does not keep the content of disks, only the rules and the names. So no revert is
// possible.
type snapshot struct {
	*vcsim.VirtualMachineSnapshot
	world *world
}

// snapshots are those of a machine.
func (w *world) snapshots(machine *vcsim.VirtualMachine) []*vcsim.VirtualMachineSnapshot {
	if machine.Snapshot == nil {
		return nil
	}
	var found []*vcsim.VirtualMachineSnapshot
	var walk func([]types.VirtualMachineSnapshotTree)
	walk = func(trees []types.VirtualMachineSnapshotTree) {
		for _, tree := range trees {
			if snapshot, is := w.registry.Get(tree.Snapshot).(*vcsim.VirtualMachineSnapshot); is {
				found = append(found, snapshot)
			}
			walk(tree.ChildSnapshotList)
		}
	}
	walk(machine.Snapshot.RootSnapshotList)
	return found
}

// CreateSnapshotTask takes a snapshot.
func (m *machine) CreateSnapshotTask(ctx *vcsim.Context, asked *types.CreateSnapshot_Task) soap.HasFault {
	task := m.world.task(ctx, "CreateSnapshot_Task", m.VirtualMachine, func(ctx *vcsim.Context) (types.AnyType, fault) {
		return m.world.takeSnapshot(ctx, m.VirtualMachine, func() soap.HasFault { return m.VirtualMachine.CreateSnapshotTask(ctx, asked) })
	})
	return &methods.CreateSnapshot_TaskBody{Res: &types.CreateSnapshot_TaskResponse{Returnval: task}}
}

// CreateSnapshotExTask takes one too.
func (m *machine) CreateSnapshotExTask(ctx *vcsim.Context, asked *types.CreateSnapshotEx_Task) soap.HasFault {
	task := m.world.task(ctx, "CreateSnapshotEx_Task", m.VirtualMachine, func(ctx *vcsim.Context) (types.AnyType, fault) {
		return m.world.takeSnapshot(ctx, m.VirtualMachine, func() soap.HasFault { return m.VirtualMachine.CreateSnapshotExTask(ctx, asked) })
	})
	return &methods.CreateSnapshotEx_TaskBody{Res: &types.CreateSnapshotEx_TaskResponse{Returnval: task}}
}

// takeSnapshot lets vcsim note the snapshot, and then puts a delta on each disk that is no independent one: from then on the
// machine's disks have other paths (NAME-000001.vmdk), with the old ones as their parents.
func (w *world) takeSnapshot(ctx *vcsim.Context, machine *vcsim.VirtualMachine, take func() soap.HasFault) (types.AnyType, fault) {
	if machine.Runtime.PowerState == on && w.bed.config.Bodies {
		return nil, &types.NotSupported{}
	}
	result, failed := w.inner(ctx, machine, take)
	if failed != nil {
		return nil, failed
	}
	return result, w.rebase(ctx, machine, func(backing *types.VirtualDiskFlatVer2BackingInfo) fault {
		parent := *backing
		next, failed := w.nextDelta(backing.FileName)
		if failed != nil {
			return failed
		}
		child, failed := w.disks.Child(next, backing.FileName)
		if failed != nil {
			return failed
		}
		backing.FileName, backing.Parent, backing.Uuid = next, &parent, child.UUID
		return nil
	})
}

var delta = regexp.MustCompile(`-\d{6}\.vmdk$`)

func (w *world) nextDelta(path string) (string, fault) {
	base := strings.TrimSuffix(delta.ReplaceAllString(path, ".vmdk"), ".vmdk")
	for number := 1; number < 1_000_000; number++ {
		next := fmt.Sprintf("%s-%06d.vmdk", base, number)
		if _, failed := w.disks.Read(next); failed != nil {
			return next, nil
		}
	}
	return "", &types.FileAlreadyExists{FileFault: types.FileFault{File: path}}
}

// rebase changes the backings of a machine's dependent disks.
func (w *world) rebase(ctx *vcsim.Context, machine *vcsim.VirtualMachine, change func(*types.VirtualDiskFlatVer2BackingInfo) fault) fault {
	failed := w.rewrite(ctx, machine, func(backing *types.VirtualDiskFlatVer2BackingInfo) fault {
		if strings.HasPrefix(backing.DiskMode, "independent") {
			return nil
		}
		return change(backing)
	})
	if failed == nil && machine.Runtime.PowerState == on {
		w.disks.Unlock(holder(machine))
		failed = w.lock(machine)
	}
	return failed
}

// rewrite changes the backings of all of a machine's disks.
func (w *world) rewrite(ctx *vcsim.Context, machine *vcsim.VirtualMachine, change func(*types.VirtualDiskFlatVer2BackingInfo) fault) fault {
	var failed fault
	w.registry.WithLock(ctx, machine, func() {
		list := devices(machine)
		for index, device := range list {
			disk, is := device.(*types.VirtualDisk)
			if !is {
				continue
			}
			backing, is := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
			if !is {
				continue
			}
			// Others may hold what was read before: it is not changed, but replaced.
			newDisk, newBacking := *disk, *backing
			if failed = change(&newBacking); failed != nil {
				return
			}
			newDisk.Backing = &newBacking
			list[index] = &newDisk
		}
		w.registry.Update(ctx, machine, []types.PropertyChange{{Name: "config.hardware.device", Val: []types.BaseVirtualDevice(list)}})
		w.changed(ctx, machine)
	})
	return failed
}

// RemoveSnapshotTask removes a snapshot.
func (s *snapshot) RemoveSnapshotTask(ctx *vcsim.Context, asked *types.RemoveSnapshot_Task) soap.HasFault {
	task := s.world.task(ctx, "RemoveSnapshot_Task", s.Vm, func(ctx *vcsim.Context) (types.AnyType, fault) {
		machine, failed := s.world.machine(s.Vm)
		if failed != nil {
			return nil, failed
		}
		if _, failed := s.world.inner(ctx, s.VirtualMachineSnapshot, func() soap.HasFault {
			return s.VirtualMachineSnapshot.RemoveSnapshotTask(ctx, asked)
		}); failed != nil {
			return nil, failed
		}
		return nil, s.world.consolidate(ctx, machine)
	})
	return &methods.RemoveSnapshot_TaskBody{Res: &types.RemoveSnapshot_TaskResponse{Returnval: task}}
}

// RemoveAllSnapshotsTask removes them all.
func (m *machine) RemoveAllSnapshotsTask(ctx *vcsim.Context, asked *types.RemoveAllSnapshots_Task) soap.HasFault {
	task := m.world.task(ctx, "RemoveAllSnapshots_Task", m.VirtualMachine, func(ctx *vcsim.Context) (types.AnyType, fault) {
		if _, failed := m.world.inner(ctx, m.VirtualMachine, func() soap.HasFault {
			return m.VirtualMachine.RemoveAllSnapshotsTask(ctx, asked)
		}); failed != nil {
			return nil, failed
		}
		return nil, m.world.consolidate(ctx, m.VirtualMachine)
	})
	return &methods.RemoveAllSnapshots_TaskBody{Res: &types.RemoveAllSnapshots_TaskResponse{Returnval: task}}
}

// consolidate gives disks their old paths again when the last snapshot is gone. A parent of a linked clone stays unchanged, and so
// does the delta on it.
func (w *world) consolidate(ctx *vcsim.Context, machine *vcsim.VirtualMachine) fault {
	if len(w.snapshots(machine)) > 0 {
		return nil
	}
	var gone []string
	failed := w.rebase(ctx, machine, func(backing *types.VirtualDiskFlatVer2BackingInfo) fault {
		for backing.Parent != nil && strings.HasPrefix(backing.Parent.FileName, directoryOf(machine)+"/") {
			parent := *backing.Parent
			if w.disks.Children(parent.FileName) > 1 {
				return nil
			}
			gone = append(gone, backing.FileName)
			backing.FileName, backing.Parent, backing.Uuid = parent.FileName, parent.Parent, parent.Uuid
		}
		return nil
	})
	for _, disk := range gone {
		if failed == nil {
			failed = w.disks.Delete(disk)
		}
	}
	return failed
}

// RevertToSnapshotTask is refused: what disks held is not kept.
func (s *snapshot) RevertToSnapshotTask(*vcsim.Context, *types.RevertToSnapshot_Task) soap.HasFault {
	return &methods.RevertToSnapshot_TaskBody{Fault_: vcsim.Fault("", &types.NotSupported{})}
}

// RevertToCurrentSnapshotTask is refused as well.
func (m *machine) RevertToCurrentSnapshotTask(*vcsim.Context, *types.RevertToCurrentSnapshot_Task) soap.HasFault {
	return &methods.RevertToCurrentSnapshot_TaskBody{Fault_: vcsim.Fault("", &types.NotSupported{})}
}
