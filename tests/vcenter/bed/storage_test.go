package bed

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"vcenter/ovatest"
)

// attach adds a disk by nothing but its path, to the controller of another disk.
func attach(beside *types.VirtualDisk, path string, unit int32) types.VirtualMachineConfigSpec {
	return change(add, &types.VirtualDisk{VirtualDevice: types.VirtualDevice{
		ControllerKey: beside.ControllerKey, UnitNumber: &unit,
		Backing: &types.VirtualDiskFlatVer2BackingInfo{
			VirtualDeviceFileBackingInfo: types.VirtualDeviceFileBackingInfo{FileName: path},
			DiskMode:                     string(types.VirtualDiskModeIndependent_persistent),
		},
	}})
}

// detach names a disk by nothing but its key.
func detach(disk *types.VirtualDisk) types.VirtualMachineConfigSpec {
	return change(remove, &types.VirtualDisk{VirtualDevice: types.VirtualDevice{Key: disk.Key}})
}

func (s *site) independent(vm *object.VirtualMachine, disk *types.VirtualDisk) *types.VirtualDisk {
	s.Helper()
	edited, backing := *disk, *disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
	backing.DiskMode = string(types.VirtualDiskModeIndependent_persistent)
	edited.Backing = &backing
	s.done(s.reconfigure(vm, change(edit, &edited)))
	return &edited
}

func TestADiskMovesFromOneMachineToAnother(t *testing.T) {
	s := opened(t)
	one, two := s.imported("node-1"), s.imported("node-2")
	data := s.disks(one)[1]
	uuid := data.Backing.(*types.VirtualDiskFlatVer2BackingInfo).Uuid
	s.done(one.PowerOn(background))
	task, err := s.reconfigure(two, attach(data, pathOf(data), 5))
	refused[*types.FileLocked](s, "a disk that a running machine has", task, err)
	s.done(one.PowerOff(background))
	s.done(s.reconfigure(one, detach(data)))
	s.done(s.reconfigure(two, attach(data, pathOf(data), 5)))
	moved := s.disks(two)[2]
	if moved.CapacityInBytes != ovatest.Capacity || moved.Backing.(*types.VirtualDiskFlatVer2BackingInfo).Uuid != uuid {
		t.Errorf("%+v", moved)
	}
	task, err = s.reconfigure(one, attach(data, "[LocalDS_0] node-1/nothing.vmdk", 5))
	refused[*types.FileNotFound](s, "a disk that is not there", task, err)
	// The machine that it came from goes, and its directory has the disk still.
	file := s.machine("node-2").Disks[pathOf(data)][0]
	s.done(one.Destroy(background))
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	// An attached disk is deleted with its machine, wherever it is.
	s.done(two.PowerOn(background))
	task, err = two.Destroy(background)
	refused[*types.InvalidPowerState](s, "destroying what runs", task, err)
	s.done(two.PowerOff(background))
	s.done(two.Destroy(background))
	s.isGone(file)
}

func TestTwoMachinesWithOneDiskDoNotBothRun(t *testing.T) {
	s := opened(t)
	one, two := s.imported("node-1"), s.imported("node-2")
	data := s.disks(one)[1]
	s.done(s.reconfigure(two, attach(data, pathOf(data), 5)))
	s.done(two.PowerOn(background))
	task, err := one.PowerOn(background)
	refused[*types.FileLocked](s, "the second", task, err)
	manager := object.NewVirtualDiskManager(s.client.Client)
	task, err = manager.DeleteVirtualDisk(background, pathOf(data), nil)
	refused[*types.InvalidArgument](s, "without a datacenter", task, err)
	task, err = manager.DeleteVirtualDisk(background, pathOf(data), s.datacenter)
	refused[*types.FileLocked](s, "deleting it", task, err)
	task, err = object.NewFileManager(s.client.Client).DeleteDatastoreFile(background, "[LocalDS_0] node-1", s.datacenter)
	refused[*types.FileLocked](s, "deleting its directory", task, err)
	s.done(two.PowerOff(background))
	s.done(one.PowerOn(background))
}

func TestSnapshotsHoldTheirDisks(t *testing.T) {
	s := opened(t)
	vm := s.imported("node-1")
	data := s.disks(vm)[1]
	// The data disk is outside snapshots.
	independent := s.independent(vm, data)
	s.done(vm.CreateSnapshot(background, "before", "", false, false))
	paths := map[string]bool{}
	var system *types.VirtualDisk
	for _, disk := range s.disks(vm) {
		paths[pathOf(disk)] = true
		if strings.Contains(pathOf(disk), "-000001") {
			system = disk
		}
	}
	if !paths["[LocalDS_0] node-1/node-1-000001.vmdk"] || !paths[pathOf(data)] {
		t.Fatalf("%v", paths)
	}
	task, err := s.reconfigure(vm, detach(system))
	refused[*types.InvalidDeviceSpec](s, "detaching what a snapshot holds", task, err)
	s.done(s.reconfigure(vm, detach(independent)))
	s.done(s.reconfigure(vm, attach(system, pathOf(data), 9)))
	added := s.disks(vm)[1]
	s.done(s.reconfigure(vm, detach(added)))
	task, err = vm.RevertToSnapshot(background, "before", true)
	refused[*types.NotSupported](s, "reverting", task, err)
	s.done(vm.RemoveAllSnapshot(background, nil))
	if path := pathOf(s.disks(vm)[0]); path != "[LocalDS_0] node-1/node-1.vmdk" {
		t.Error(path)
	}
	left, _ := filepath.Glob(filepath.Join(s.bed.config.Directory, "LocalDS_0", "node-1", "*-00000*"))
	if len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestEachChangeGivesSettingsAnotherVersion(t *testing.T) {
	s := opened(t)
	vm := s.imported("node-1")
	versions := map[string]string{s.read(vm).Config.ChangeVersion: "the import"}
	for _, step := range []struct {
		what string
		do   func()
	}{
		{"a snapshot", func() { s.done(vm.CreateSnapshot(background, "before", "", false, false)) }},
		{"no snapshot", func() { s.done(vm.RemoveAllSnapshot(background, nil)) }},
		{"another name", func() { s.done(vm.Rename(background, "node-2")) }},
		{"a template", func() { s.must(vm.MarkAsTemplate(background)) }},
		{"a machine again", func() { s.must(vm.MarkAsVirtualMachine(background, *s.pool, nil)) }},
		{"another entry", func() {
			s.done(vm.Reconfigure(background, types.VirtualMachineConfigSpec{
				ExtraConfig: []types.BaseOptionValue{&types.OptionValue{Key: "a", Value: "b"}},
			}))
		}},
	} {
		step.do()
		version := s.read(vm).Config.ChangeVersion
		if before, known := versions[version]; known {
			t.Errorf("%s: the version of %s", step.what, before)
		}
		versions[version] = step.what
	}
}

func TestAChangeThatNamesAnOldVersionIsRefused(t *testing.T) {
	s := opened(t)
	vm := s.imported("node-1")
	old := types.VirtualMachineConfigSpec{ChangeVersion: s.read(vm).Config.ChangeVersion, Annotation: "a"}
	s.done(s.reconfigure(vm, old))
	task, err := s.reconfigure(vm, old)
	refused[*types.ConcurrentAccess](s, "an old version", task, err)
	s.ask("PUT", "/switches", `{"ignores_change_version": true}`)
	s.done(s.reconfigure(vm, old))
}

func TestWhatASnapshotNamesGoesWithItsMachine(t *testing.T) {
	s := opened(t)
	vm := s.imported("node-1")
	independent := s.independent(vm, s.disks(vm)[1])
	s.done(vm.CreateSnapshot(background, "backup", "", false, false))
	s.done(s.reconfigure(vm, detach(independent)))
	file := filepath.Join(s.bed.config.Directory, "LocalDS_0", "node-1", filepath.Base(pathOf(independent)))
	if _, err := os.Stat(file); err != nil {
		t.Fatal(err)
	}
	s.done(vm.Destroy(background))
	s.isGone(file)
}

func (s *site) cloneOf(from *object.VirtualMachine, name, how string, snapshot *types.ManagedObjectReference, change ...func(*types.VirtualMachineCloneSpec)) (*object.Task, error) {
	s.Helper()
	pool := s.pool.Reference()
	spec := types.VirtualMachineCloneSpec{Location: types.VirtualMachineRelocateSpec{Pool: &pool, DiskMoveType: how}, Snapshot: snapshot}
	for _, change := range change {
		change(&spec)
	}
	return from.Clone(background, s.folder, name, spec)
}

func (s *site) made(info *types.TaskInfo) *object.VirtualMachine {
	return object.NewVirtualMachine(s.client.Client, info.Result.(types.ManagedObjectReference))
}

func TestAFullCloneHoldsTheSame(t *testing.T) {
	s := opened(t)
	template := s.imported("template")
	s.must(template.MarkAsTemplate(background))
	vm := s.made(s.done(s.cloneOf(template, "node-1", "", nil)))
	s.holds(s.machine("node-1").Disks["[LocalDS_0] node-1/node-1.vmdk"][0], ovatest.SystemDisk())
	from, to := s.read(template), s.read(vm)
	old, copied := from.Config.VAppConfig.GetVmConfigInfo(), to.Config.VAppConfig.GetVmConfigInfo()
	if len(copied.Property) != 3 || !reflect.DeepEqual(copied.Property, old.Property) || len(copied.Product) != 1 || len(copied.OvfEnvironmentTransport) != 2 {
		t.Errorf("%+v", copied)
	}
	if to.Config.Uuid == from.Config.Uuid || to.Config.Firmware != "efi" || to.Config.Template {
		t.Errorf("%+v", to.Config)
	}
	mac := func(config *types.VirtualMachineConfigInfo) string {
		return object.VirtualDeviceList(config.Hardware.Device).SelectByType((*types.VirtualEthernetCard)(nil))[0].(types.BaseVirtualEthernetCard).GetVirtualEthernetCard().MacAddress
	}
	if mac(from.Config) == mac(to.Config) {
		t.Error("both have one MAC address")
	}
	task, err := template.PowerOn(background)
	refused[*types.InvalidState](s, "powering a template on", task, err)
	s.done(vm.PowerOn(background))
}

func TestPartsOfACloneAreDroppedOnRequest(t *testing.T) {
	s := opened(t)
	template := s.imported("template")
	s.must(template.MarkAsTemplate(background))
	const uuid = "42000000-0000-0000-0000-000000000001"
	property := s.read(template).Config.VAppConfig.GetVmConfigInfo().Property[0]
	property.Value = "192.0.2.77"
	unit := int32(3)
	disk := change(add, &types.VirtualDisk{CapacityInKB: 1024, VirtualDevice: types.VirtualDevice{
		Key: -1, ControllerKey: s.disks(template)[0].ControllerKey, UnitNumber: &unit, Backing: &types.VirtualDiskFlatVer2BackingInfo{},
	}})
	disk.DeviceChange[0].GetVirtualDeviceConfigSpec().FileOperation = types.VirtualDeviceConfigSpecFileOperationCreate
	clone := func(name string) map[string]bool {
		config := disk
		config.Uuid, config.ExtraConfig = uuid, []types.BaseOptionValue{&types.OptionValue{Key: "a.b", Value: "c"}}
		config.VAppConfig = &types.VmConfigSpec{Property: []types.VAppPropertySpec{{
			ArrayUpdateSpec: types.ArrayUpdateSpec{Operation: types.ArrayUpdateOperationEdit}, Info: &property,
		}}}
		vm := s.made(s.done(s.cloneOf(template, name, "", nil, func(spec *types.VirtualMachineCloneSpec) { spec.Config = &config })))
		now, entry := s.read(vm).Config, false
		for _, option := range now.ExtraConfig {
			entry = entry || option.GetOptionValue().Key == "a.b"
		}
		return map[string]bool{
			"vapp": now.VAppConfig.GetVmConfigInfo().Property[0].Value == property.Value, "uuid": now.Uuid == uuid, "extra": entry,
			"devices": len(s.disks(vm)) == len(s.disks(template))+1,
		}
	}
	for part, is := range clone("whole") {
		if !is {
			t.Errorf("without a switch %s is dropped", part)
		}
	}
	for _, part := range []string{"vapp", "uuid", "extra", "devices"} {
		s.ask("PUT", "/switches", `{"clone_drops": ["`+part+`"]}`)
		for other, is := range clone("without-" + part) {
			if is == (other == part) {
				t.Errorf("%s dropped: %s is there: %v", part, other, is)
			}
		}
	}
}

func TestATemplateIsRewrittenOnRequest(t *testing.T) {
	s := opened(t)
	template := s.imported("template")
	s.must(template.MarkAsTemplate(background))
	card := func() (string, string) {
		config := s.read(template).Config
		found := object.VirtualDeviceList(config.Hardware.Device).SelectByType((*types.VirtualEthernetCard)(nil))[0]
		return found.GetVirtualDevice().DeviceInfo.GetDescription().Summary, config.ChangeVersion
	}
	summary, version := card()
	s.done(s.cloneOf(template, "node-1", "", nil))
	if now, same := card(); now != summary || same != version {
		t.Errorf("without the switch: %s, %s", now, same)
	}
	s.ask("PUT", "/switches", `{"rewrites_templates": true}`)
	s.done(s.cloneOf(template, "node-2", "", nil))
	if now, other := card(); now == summary || other == version {
		t.Errorf("%s, %s", now, other)
	}
}

func TestPasswordsOfFormsAreNotShown(t *testing.T) {
	s := opened(t)
	vm := s.imported("node-1")
	secrets := func() (all []string) {
		var found mo.VirtualMachine
		s.must(vm.Properties(background, vm.Reference(), []string{"config.vAppConfig.property"}, &found))
		whole := s.read(vm).Config.VAppConfig.GetVmConfigInfo().Property
		for _, property := range append(whole, found.Config.VAppConfig.GetVmConfigInfo().Property...) {
			if strings.HasPrefix(property.Type, "password") {
				all = append(all, property.Value)
			}
		}
		return all
	}
	if all := secrets(); strings.Join(all, "") != "" || len(all) != 2 {
		t.Errorf("%q", all)
	}
	s.ask("PUT", "/switches", `{"shows_passwords": true}`)
	if all := secrets(); len(all) != 2 || all[0] != `a&b<"c` {
		t.Errorf("%q", all)
	}
}

func TestLinkedClonesStandOnASnapshot(t *testing.T) {
	s := opened(t)
	template := s.imported("template")
	linked := string(types.VirtualMachineRelocateDiskMoveOptionsCreateNewChildDiskBacking)
	task, err := s.cloneOf(template, "node-1", linked, nil)
	refused[*types.InvalidArgument](s, "a linked clone without a snapshot", task, err)
	s.done(template.CreateSnapshot(background, "base", "", false, false))
	snapshot := s.read(template).Snapshot.CurrentSnapshot
	s.must(template.MarkAsTemplate(background))
	power := func(spec *types.VirtualMachineCloneSpec) { spec.PowerOn = true }
	one := s.made(s.done(s.cloneOf(template, "node-1", linked, snapshot, power)))
	two := s.made(s.done(s.cloneOf(template, "node-2", linked, snapshot, power)))
	files := s.machine("node-1").Disks["[LocalDS_0] node-1/node-1.vmdk"]
	base := s.machine("node-2").Disks["[LocalDS_0] node-2/node-2.vmdk"]
	if len(files) != 2 || len(base) != 2 || files[1] != base[1] || files[0] == base[0] {
		t.Errorf("%v %v", files, base)
	}
	s.is(one, on)
	s.is(two, on)
	// The template is deleted, and the parents of the clones stay.
	s.done(template.Destroy(background))
	s.holds(files[1], ovatest.SystemDisk())
	s.done(one.PowerOff(background))
	s.done(one.PowerOn(background))
	s.done(one.PowerOff(background))
	s.done(one.Destroy(background))
	s.isGone(files[0])
}

func TestDisksAreMadeCopiedMovedAndNamed(t *testing.T) {
	s := opened(t)
	manager := object.NewVirtualDiskManager(s.client.Client)
	files, datacenter := object.NewFileManager(s.client.Client), s.datacenter
	s.must(files.MakeDirectory(background, "[LocalDS_0] disks", datacenter, false))
	s.done(manager.CreateVirtualDisk(background, "[LocalDS_0] disks/a.vmdk", datacenter, &types.FileBackedVirtualDiskSpec{
		VirtualDiskSpec: types.VirtualDiskSpec{DiskType: string(types.VirtualDiskTypePreallocated), AdapterType: "lsiLogic"}, CapacityKb: 1024,
	}))
	uuid, err := manager.QueryVirtualDiskUuid(background, "[LocalDS_0] disks/a.vmdk", datacenter)
	s.must(err)
	if !strings.HasPrefix(uuid, "60 00 C2 9") {
		t.Error(uuid)
	}
	s.done(manager.CopyVirtualDisk(background, "[LocalDS_0] disks/a.vmdk", datacenter, "[LocalDS_0] disks/b.vmdk", datacenter, nil, false))
	task, err := manager.CopyVirtualDisk(background, "[LocalDS_0] disks/a.vmdk", datacenter, "[LocalDS_0] disks/b.vmdk", datacenter, nil, false)
	refused[*types.FileAlreadyExists](s, "over another", task, err)
	s.done(manager.MoveVirtualDisk(background, "[LocalDS_0] disks/a.vmdk", datacenter, "[LocalDS_0] disks/c.vmdk", datacenter, false))
	moved, err := manager.QueryVirtualDiskUuid(background, "[LocalDS_0] disks/c.vmdk", datacenter)
	s.must(err)
	if moved != uuid {
		t.Error(moved)
	}
	task, err = files.MoveDatastoreFile(background, "[LocalDS_0] disks/c.vmdk", datacenter, "[LocalDS_0] disks/d.vmdk", datacenter, false)
	refused[*types.NotSupported](s, "moving a descriptor by itself", task, err)
	browser, err := s.datastore.Browser(background)
	s.must(err)
	info := s.done(browser.SearchDatastore(background, "[LocalDS_0] disks", &types.HostDatastoreBrowserSearchSpec{}))
	if found := info.Result.(types.HostDatastoreBrowserSearchResults).File; len(found) != 4 {
		t.Errorf("without a pattern: %d files", len(found))
	}
	s.done(manager.DeleteVirtualDisk(background, "[LocalDS_0] disks/c.vmdk", datacenter))
	task, err = manager.DeleteVirtualDisk(background, "[LocalDS_0] disks/c.vmdk", datacenter)
	refused[*types.FileNotFound](s, "once more", task, err)
}

func TestADatastoreIsRenamedAndPathsOfBeforeLeadNowhere(t *testing.T) {
	s := opened(t)
	manager := object.NewVirtualDiskManager(s.client.Client)
	vm := s.imported("node-1")
	path := func() string { return s.disks(vm)[1].Backing.(*types.VirtualDiskFlatVer2BackingInfo).FileName }
	before := path()
	s.done(s.datastore.Rename(background, "other"))
	now := path()
	if now != strings.Replace(before, "[LocalDS_0]", "[other]", 1) {
		t.Error(now)
	}
	_, err := manager.QueryVirtualDiskUuid(background, before, s.datacenter)
	refused[*types.InvalidDatastore](s, "by its path of before", nil, err)
	_, err = manager.QueryVirtualDiskUuid(background, now, s.datacenter)
	s.must(err)
	s.done(vm.Destroy(background))
}

func TestFilesDriftUnderARunningMachine(t *testing.T) {
	s := opened(t)
	vm := s.imported("node-1")
	uuid := s.disks(vm)[1].Backing.(*types.VirtualDiskFlatVer2BackingInfo).Uuid
	s.done(vm.PowerOn(background))
	s.ask("POST", "/drift", `{"machine": "node-1", "directory": "elsewhere"}`)
	moved := s.disks(vm)[1].Backing.(*types.VirtualDiskFlatVer2BackingInfo)
	if moved.FileName != "[LocalDS_0] elsewhere/node-1_1.vmdk" || moved.Uuid != uuid {
		t.Errorf("%+v", moved)
	}
	two := s.imported("node-2")
	task, err := s.reconfigure(two, attach(s.disks(two)[0], moved.FileName, 9))
	refused[*types.FileLocked](s, "it is locked there too", task, err)
	s.done(vm.PowerOff(background))
	s.done(vm.Destroy(background))
	s.isGone(filepath.Join(s.bed.config.Directory, "LocalDS_0", "elsewhere", "node-1_1.vmdk"))
}

func TestAFolderGoesWithItsMachines(t *testing.T) {
	s := opened(t)
	inside, err := s.folder.CreateFolder(background, "cluster")
	s.must(err)
	outer := s.folder
	s.folder = inside
	vm := s.imported("node-1")
	s.folder = outer
	s.done(vm.PowerOn(background))
	task, err := inside.Destroy(background)
	refused[*types.InvalidPowerState](s, "while one runs", task, err)
	s.done(vm.PowerOff(background))
	s.done(inside.Destroy(background))
	s.isEmpty()
}
