package bed

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	vcsim "github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// DestroyTask deletes a machine.
func (m *machine) DestroyTask(ctx *vcsim.Context, _ *types.Destroy_Task) soap.HasFault {
	task := m.world.task(ctx, "Destroy_Task", m.VirtualMachine, func(ctx *vcsim.Context) (types.AnyType, fault) {
		return nil, m.world.destroy(ctx, m.VirtualMachine)
	})
	return &methods.Destroy_TaskBody{Res: &types.Destroy_TaskResponse{Returnval: task}}
}

// UnregisterVM forgets a machine and leaves its files.
func (m *machine) UnregisterVM(ctx *vcsim.Context, asked *types.UnregisterVM) soap.HasFault {
	m.world.mutex.Lock()
	other, taken := m.world.busy[m.Self]
	m.world.mutex.Unlock()
	if taken {
		return &methods.UnregisterVMBody{Fault_: vcsim.Fault("", &types.TaskInProgress{Task: other})}
	}
	return m.VirtualMachine.UnregisterVM(ctx, asked)
}

// MarkAsTemplate is no task, and is refused while one is at work.
func (m *machine) MarkAsTemplate(ctx *vcsim.Context, asked *types.MarkAsTemplate) soap.HasFault {
	m.world.mutex.Lock()
	other, taken := m.world.busy[m.Self]
	m.world.mutex.Unlock()
	if taken {
		return &methods.MarkAsTemplateBody{Fault_: vcsim.Fault("", &types.TaskInProgress{Task: other})}
	}
	response := m.VirtualMachine.MarkAsTemplate(asked)
	if response.Fault() == nil {
		// vcsim changes the fields and tells no one.
		m.world.registry.Update(ctx, m.VirtualMachine, []types.PropertyChange{
			{Name: "config.template", Val: true}, {Name: "summary.config.template", Val: true},
		})
		m.world.changed(ctx, m.VirtualMachine)
	}
	return response
}

// MarkAsVirtualMachine is no task either.
func (m *machine) MarkAsVirtualMachine(ctx *vcsim.Context, asked *types.MarkAsVirtualMachine) soap.HasFault {
	m.world.mutex.Lock()
	other, taken := m.world.busy[m.Self]
	m.world.mutex.Unlock()
	if taken {
		return &methods.MarkAsVirtualMachineBody{Fault_: vcsim.Fault("", &types.TaskInProgress{Task: other})}
	}
	response := m.VirtualMachine.MarkAsVirtualMachine(asked)
	if response.Fault() == nil {
		m.world.registry.Update(ctx, m.VirtualMachine, []types.PropertyChange{
			{Name: "config.template", Val: false}, {Name: "summary.config.template", Val: false}, {Name: "resourcePool", Val: asked.Pool},
		})
		m.world.changed(ctx, m.VirtualMachine)
	}
	return response
}

// RenameTask gives a machine another name, which is one of its settings.
func (m *machine) RenameTask(ctx *vcsim.Context, asked *types.Rename_Task) soap.HasFault {
	task := m.world.task(ctx, "Rename_Task", m.VirtualMachine, func(ctx *vcsim.Context) (types.AnyType, fault) {
		result, failed := m.world.inner(ctx, m.VirtualMachine, func() soap.HasFault { return m.VirtualMachine.RenameTask(ctx, asked) })
		if failed == nil {
			m.world.registry.WithLock(ctx, m.VirtualMachine, func() {
				m.world.registry.Update(ctx, m.VirtualMachine, []types.PropertyChange{{Name: "config.name", Val: asked.NewName}})
				m.world.changed(ctx, m.VirtualMachine)
			})
		}
		return result, failed
	})
	return &methods.Rename_TaskBody{Res: &types.Rename_TaskResponse{Returnval: task}}
}

// changed gives a machine's settings another version. "Each change to the configuration updates this value": changeVersion of
// VirtualMachineConfigInfo, vSphere Web Services API. vcsim does so in ReconfigVM_Task alone, and not where a snapshot changes
// devices, nor where a machine becomes a template, a template becomes a machine, or a machine gets another name.
func (w *world) changed(ctx *vcsim.Context, machine *vcsim.VirtualMachine) {
	w.registry.Update(ctx, machine, []types.PropertyChange{
		{Name: "config.changeVersion", Val: strconv.FormatInt(time.Now().UnixNano(), 10)},
	})
}

// destroy deletes a machine's own files, and every disk that is attached to it, wherever that is (vic 2471), or was when one of its
// snapshots was taken: a snapshot has all settings of its machine (VirtualMachineSnapshot.config). Other files in its
// directory stay, a disk that was detached before among them: vcsim deletes the directory. A parent disk of linked clones
// stays as well: vCenter keeps what machines of a group share ("Deleting a Linked Virtual Machine", vSphere Web Services SDK
// Programming Guide).
func (w *world) destroy(ctx *vcsim.Context, machine *vcsim.VirtualMachine) fault {
	if machine.Runtime.PowerState == on {
		return wrongState(machine, off)
	}
	disks := w.chains(machine)
	for _, disk := range disks {
		if w.disks.IsParent(disk) {
			continue
		}
		if failed := w.disks.Locked("", disk); failed != nil {
			return failed
		}
	}
	directory, failed := w.disks.File(directoryOf(machine))
	if failed != nil {
		return failed
	}
	var refused fault
	w.registry.WithLock(ctx, machine, func() {
		response := machine.UnregisterVM(ctx, &types.UnregisterVM{This: machine.Self})
		if response.Fault() != nil {
			refused = response.Fault().VimFault().(fault)
		}
	})
	if refused != nil {
		return refused
	}
	for _, disk := range disks {
		if w.disks.IsParent(disk) || w.keepsObject(disk) {
			continue
		}
		switch failed := w.disks.Delete(disk).(type) {
		case nil, *types.FileNotFound:
		default:
			return failed
		}
	}
	w.ownFiles(directory)
	return nil
}

// chains are a machine's disks and those of its snapshots, and below each of them what its own snapshots have left. Parents that
// belong to others end it.
func (w *world) chains(machine *vcsim.VirtualMachine) []string {
	tops := files(machine)
	for _, snapshot := range w.snapshots(machine) {
		for _, device := range snapshot.Config.Hardware.Device {
			if disk, is := device.(*types.VirtualDisk); is {
				if backing, is := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo); is {
					tops = append(tops, backing.FileName)
				}
			}
		}
	}
	var found []string
	for _, disk := range tops {
		for disk != "" && !slices.Contains(found, disk) {
			found = append(found, disk)
			read, failed := w.disks.Read(disk)
			if failed != nil || !strings.HasPrefix(read.Parent, directoryOf(machine)+"/") {
				break
			}
			disk = read.Parent
		}
	}
	return found
}

// ownFiles deletes what is a machine's and no disk, and the directory if nothing is left in it.
func (w *world) ownFiles(directory string) {
	for _, kind := range []string{"*.vmx", "*.vmxf", "*.vmsd", "*.vmsn", "*.vmem", "*.vswp", "*.nvram", "*.log"} {
		names, _ := filepath.Glob(filepath.Join(directory, kind))
		for _, file := range names {
			_ = os.Remove(file)
		}
	}
	// It stays if it is not empty.
	_ = os.Remove(directory)
}
