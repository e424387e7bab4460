package bed

import (
	"slices"
	"testing"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// all is what is shown of the machines of the folder, by name.
func (s *site) all() map[string]mo.VirtualMachine {
	s.Helper()
	children, err := s.folder.Children(background)
	s.must(err)
	refs := []types.ManagedObjectReference{}
	for _, child := range children {
		refs = append(refs, child.Reference())
	}
	var found []mo.VirtualMachine
	paths := []string{"name", "config.changeVersion", "datastore", "layoutEx", "recentTask", "runtime.connectionState"}
	s.must(property.DefaultCollector(s.client.Client).Retrieve(background, refs, paths, &found))
	shown := map[string]mo.VirtualMachine{}
	for _, one := range found {
		shown[one.Name] = one
	}
	return shown
}

func TestAMachineThatIsBeingClonedShowsNoSettings(t *testing.T) {
	for _, shows := range []bool{false, true} {
		s := opened(t)
		source := s.imported("node-1")
		if shows {
			s.ask("PUT", "/switches", `{"shows_settings_while_made": true}`)
		}
		s.ask("POST", "/rules", `{"method": "CloneVM_Task", "do": "delay-task", "milliseconds": 600000}`)
		task, err := source.Clone(background, s.folder, "node-2", types.VirtualMachineCloneSpec{
			Location: types.VirtualMachineRelocateSpec{Pool: types.NewReference(s.pool.Reference())},
		})
		s.must(err)
		s.until("it is there", func() bool {
			made, is := s.all()["node-2"]
			return is && slices.Contains(made.RecentTask, task.Reference())
		})
		made := s.all()["node-2"]
		if (made.Config != nil) != shows {
			s.Errorf("shows %v: %+v", shows, made.Config)
		}
		if s.all()["node-1"].Config == nil {
			s.Error("nor does the source")
		}
		renamed, err := object.NewVirtualMachine(s.client.Client, made.Self).PowerOn(background)
		refused[*types.TaskInProgress](s, "power-on", renamed, err)
		s.ask("DELETE", "/rules", "")
		s.done(task, nil)
		if s.all()["node-2"].Config == nil {
			s.Error("it never shows its settings")
		}
	}
}

func TestAMachineOfTheSameNameInAnotherFolderIsShown(t *testing.T) {
	s := opened(t)
	s.imported("node-1")
	world, other := s.bed.now(), ref{Type: "Folder", Value: "group-other"}
	for folder, shows := range map[ref]bool{other: true, s.folder.Reference(): false} {
		grown := world.isBorn(child{folder, "node-1"})
		if (s.all()["node-1"].Config != nil) != shows {
			s.Errorf("born in %v: shows %v", folder, !shows)
		}
		grown()
	}
}

func TestAnInaccessibleMachineShowsFilesAndNoSettings(t *testing.T) {
	s := opened(t)
	s.imported("node-1")
	s.imported("node-2")
	s.imported("node-3")
	s.ask("PUT", "/switches", `{"inaccessible": ["node-1"], "traceless": ["node-2"]}`)
	shown := s.all()
	for name, has := range map[string][2]bool{"node-1": {false, true}, "node-2": {false, false}, "node-3": {true, true}} {
		one := shown[name]
		if (one.Config != nil) != has[0] || (len(one.Datastore) > 0) != has[1] || (one.LayoutEx != nil) != has[1] {
			s.Errorf("%s: %+v", name, one)
		}
	}
}

func TestACloneOfVSphereClientKeepsTheUUIDsOfDisks(t *testing.T) {
	s := opened(t)
	source := s.imported("node-1")
	s.ask("POST", "/client-clone", `{"machine": "node-1", "to": "backup"}`)
	found, err := s.finder.VirtualMachine(background, "backup")
	s.must(err)
	had, has := s.disks(source), s.disks(found)
	if len(had) == 0 || len(had) != len(has) {
		s.Fatalf("%d disks, and %d of the clone", len(had), len(has))
	}
	for i := range had {
		one, other := had[i].Backing.(*types.VirtualDiskFlatVer2BackingInfo), has[i].Backing.(*types.VirtualDiskFlatVer2BackingInfo)
		if one.Uuid != other.Uuid || one.FileName == other.FileName {
			s.Errorf("%+v is no copy of %+v", other, one)
		}
	}
	if one, other := s.read(source).Config.Uuid, s.read(found).Config.Uuid; one == other {
		s.Errorf("both have the BIOS UUID %s", one)
	}
	for _, card := range object.VirtualDeviceList(s.read(found).Config.Hardware.Device).SelectByType((*types.VirtualEthernetCard)(nil)) {
		if connectable := card.GetVirtualDevice().Connectable; connectable == nil || connectable.StartConnected {
			s.Errorf("%+v is connected", card)
		}
	}
}
