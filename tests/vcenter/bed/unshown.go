package bed

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	vcsim "github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vcenter/faults"
)

type (
	// underWay has the task that works.
	underWay struct{}
	// delayed has the rule that makes a task take its time.
	delayed struct{}
)

// child is a place in the inventory. Machines of the same name may be in other folders.
type child struct {
	folder ref
	name   string
}

// hiding is how little is shown of a machine.
type hiding struct {
	// made has whether it is being made, and traceless that its files and its datastore are not shown.
	made, traceless bool
}

// unshown are the machines whose settings are shown to no client.
func (w *world) unshown() map[ref]hiding {
	switches, hidden := w.bed.Switches(), map[ref]hiding{}
	w.mutex.Lock()
	for at := range w.making {
		hidden[at] = hiding{made: true}
	}
	born := maps.Clone(w.born)
	w.mutex.Unlock()
	if len(switches.Inaccessible)+len(switches.Traceless)+len(born) == 0 {
		return hidden
	}
	for _, entity := range w.registry.All("VirtualMachine") {
		machine := entity.(*vcsim.VirtualMachine)
		if machine.Parent != nil && born[child{*machine.Parent, machine.Name}] && !switches.ShowsSettingsWhileMade {
			hidden[machine.Self] = hiding{made: true}
		}
		traceless := slices.Contains(switches.Traceless, machine.Name)
		if traceless || slices.Contains(switches.Inaccessible, machine.Name) {
			hidden[machine.Self] = hiding{traceless: traceless}
		}
	}
	return hidden
}

// hide leaves out what vCenter does not show of a machine: its settings, and those of its files that it has not read.
func (h hiding) hide(found *types.ObjectContent) {
	var shown []types.DynamicProperty
	for _, property := range found.PropSet {
		top, _, _ := strings.Cut(property.Name, ".")
		switch {
		case top == "config" || top == "guest" || top == "snapshot" || strings.HasPrefix(property.Name, "summary.config"):
			continue
		case (h.made || h.traceless) && (top == "layoutEx" || top == "datastore"):
			continue
		case property.Name == "runtime.connectionState" && !h.made:
			property.Val = types.VirtualMachineConnectionStateInaccessible
		}
		shown = append(shown, property)
	}
	found.PropSet = shown
}

// searchIndex does not find a machine by settings that are not shown.
type searchIndex struct {
	*vcsim.SearchIndex
	world *world
}

// FindAllByUuid leaves out machines whose files are not reached.
func (s *searchIndex) FindAllByUuid(ctx *vcsim.Context, asked *types.FindAllByUuid) soap.HasFault {
	answer := s.SearchIndex.FindAllByUuid(ctx, asked)
	body, is := answer.(*methods.FindAllByUuidBody)
	if !is || body.Res == nil || s.world.bed.Switches().FindsInaccessible {
		return answer
	}
	hidden := s.world.unshown()
	body.Res.Returnval = slices.DeleteFunc(body.Res.Returnval, func(found ref) bool {
		h, is := hidden[found]
		return is && !h.made
	})
	return answer
}

// isBorn marks a machine that comes into the inventory: it shows no settings. The returned function removes the mark.
func (w *world) isBorn(at child) func() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.born[at] = true
	return func() {
		w.mutex.Lock()
		defer w.mutex.Unlock()
		delete(w.born, at)
	}
}

// isMade begins the time in which a machine is in the inventory, is worked on by the task of ctx, and shows no settings; what it gives ends
// that.
func (w *world) isMade(ctx *vcsim.Context, made *vcsim.VirtualMachine) func() {
	task, is := ctx.Value(underWay{}).(ref)
	if !is {
		return func() {}
	}
	w.registry.WithLock(ctx, made, func() {
		w.registry.Update(ctx, made, []types.PropertyChange{{Name: "recentTask", Val: append(made.RecentTask, task)}})
	})
	w.mutex.Lock()
	w.busy[made.Self] = task
	if !w.bed.Switches().ShowsSettingsWhileMade {
		w.making[made.Self] = task
	}
	w.mutex.Unlock()
	if rule, is := ctx.Value(delayed{}).(*faults.Rule); is {
		rule.Wait(nil)
	}
	return func() {
		w.mutex.Lock()
		delete(w.making, made.Self)
		w.mutex.Unlock()
		w.release(made.Self)
	}
}

// clientClone clones a machine as vSphere Client does: the copies of its disks keep the UUIDs of the disks, all of extraConfig comes along
// (govmomi#1682), and the adapters are not connected at power-on where that was unticked.
func (w *world) clientClone(named, to string) error {
	source, err := w.named(named)
	if err != nil {
		return err
	}
	failed := w.cloneByHand(source, to)
	if failed != nil {
		return fmt.Errorf("%s", message(failed))
	}
	return nil
}

func (w *world) cloneByHand(source *vcsim.VirtualMachine, to string) fault {
	ctx := w.own()
	asked := &types.CloneVM_Task{This: source.Self, Folder: *source.Parent, Name: to}
	asked.Spec.Location.Pool = source.ResourcePool
	for _, device := range devices(source).SelectByType((*types.VirtualEthernetCard)(nil)) {
		card := clonedDevice(device)
		card.GetVirtualDevice().Connectable = &types.VirtualDeviceConnectInfo{AllowGuestControl: true}
		asked.Spec.Location.DeviceChange = append(asked.Spec.Location.DeviceChange, &types.VirtualDeviceConfigSpec{
			Operation: types.VirtualDeviceConfigSpecOperationEdit, Device: card,
		})
	}
	made, failed := w.clone(ctx, source, asked)
	if failed != nil {
		return failed
	}
	uuids := map[int32]string{}
	for _, device := range devices(source).SelectByType((*types.VirtualDisk)(nil)) {
		uuids[device.GetVirtualDevice().Key] = device.(*types.VirtualDisk).Backing.(*types.VirtualDiskFlatVer2BackingInfo).Uuid
	}
	for _, device := range devices(made).SelectByType((*types.VirtualDisk)(nil)) {
		backing := device.(*types.VirtualDisk).Backing.(*types.VirtualDiskFlatVer2BackingInfo)
		if failed := w.disks.SetUUID(backing.FileName, uuids[device.GetVirtualDevice().Key]); failed != nil {
			return failed
		}
	}
	return w.rewrite(ctx, made, func(backing *types.VirtualDiskFlatVer2BackingInfo) fault {
		disk, failed := w.disks.Read(backing.FileName)
		if failed == nil {
			backing.Uuid = disk.UUID
		}
		return failed
	})
}

// named is the machine of a name, wherever it is.
func (w *world) named(name string) (*vcsim.VirtualMachine, error) {
	for _, entity := range w.registry.All("VirtualMachine") {
		if machine := entity.(*vcsim.VirtualMachine); machine.Name == name {
			return machine, nil
		}
	}
	return nil, fmt.Errorf("no machine %q", name)
}
