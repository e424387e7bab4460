package bed

import (
	"os"
	"path/filepath"
	"strings"

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
	}
	return response
}

// destroy deletes a machine's own files, and every disk that is attached to it, wherever that is (vic 2471). Other files in its
// directory stay, a disk that was detached before among them: vcsim deletes the directory. A disk on which linked clones stand
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
		if w.disks.IsParent(disk) {
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

// chains are a machine's disks, and below each of them what its own snapshots have left. Parents that belong to others end it.
func (w *world) chains(machine *vcsim.VirtualMachine) []string {
	var found []string
	for _, disk := range files(machine) {
		for disk != "" {
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
