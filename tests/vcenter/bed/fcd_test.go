package bed

import (
	"testing"

	faultsof "github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"
)

// made makes a First Class Disk.
func (s *site) firstClass() types.VStorageObject {
	s.Helper()
	asked := types.CreateDisk_Task{This: *s.client.ServiceContent.VStorageObjectManager, Spec: types.VslmCreateSpec{
		Name: "volume", KeepAfterDeleteVm: types.NewBool(true), CapacityInMB: 16,
		BackingSpec: &types.VslmCreateSpecDiskFileBackingSpec{
			VslmCreateSpecBackingSpec: types.VslmCreateSpecBackingSpec{Datastore: s.datastore.Reference()}, ProvisioningType: "thin",
		},
	}}
	response, err := methods.CreateDisk_Task(background, s.client.Client, &asked)
	s.must(err)
	return s.done(object.NewTask(s.client.Client, response.Returnval), nil).Result.(types.VStorageObject)
}

func (s *site) remove(id types.ID) *object.Task {
	s.Helper()
	asked := types.DeleteVStorageObject_Task{This: *s.client.ServiceContent.VStorageObjectManager, Id: id, Datastore: s.datastore.Reference()}
	response, err := methods.DeleteVStorageObject_Task(background, s.client.Client, &asked)
	s.must(err)
	return object.NewTask(s.client.Client, response.Returnval)
}

func (s *site) retrieve(id types.ID) (*types.RetrieveVStorageObjectResponse, error) {
	return methods.RetrieveVStorageObject(background, s.client.Client, &types.RetrieveVStorageObject{
		This: *s.client.ServiceContent.VStorageObjectManager, Id: id, Datastore: s.datastore.Reference(),
	})
}

func TestAFirstClassDiskIsKnownWhicheverWayItIsAttachedAndOutlivesItsMachine(t *testing.T) {
	s := opened(t)
	vm := s.imported("node-1")
	made := s.firstClass()
	path := made.Config.Backing.(*types.BaseConfigInfoDiskFileBackingInfo).FilePath
	controller := s.disks(vm)[0].ControllerKey
	unit := int32(9)
	disk := &types.VirtualDisk{VirtualDevice: types.VirtualDevice{Key: -1, ControllerKey: controller, UnitNumber: &unit,
		Backing: &types.VirtualDiskFlatVer2BackingInfo{
			VirtualDeviceFileBackingInfo: types.VirtualDeviceFileBackingInfo{FileName: path}, DiskMode: "independent_persistent",
		}}}
	held := func() *types.VirtualDisk {
		for _, one := range s.disks(vm) {
			if pathOf(one) == path {
				return one
			}
		}
		return nil
	}
	s.done(s.reconfigure(vm, change(add, disk)))
	if held() == nil || held().VDiskId == nil || held().VDiskId.Id != made.Config.Id.Id {
		t.Fatalf("%+v", held())
	}
	refused[*types.InvalidState](s, "deleting it while it is held", s.remove(made.Config.Id), nil)
	s.done(s.reconfigure(vm, change(remove, held())))
	attach, err := methods.AttachDisk_Task(background, s.client.Client, &types.AttachDisk_Task{
		This: vm.Reference(), DiskId: made.Config.Id, Datastore: s.datastore.Reference(), ControllerKey: controller,
	})
	s.must(err)
	s.done(object.NewTask(s.client.Client, attach.Returnval), nil)
	if backing := held().Backing.(*types.VirtualDiskFlatVer2BackingInfo); backing.DiskMode != "persistent" {
		t.Errorf("%+v", backing)
	}
	s.done(vm.Destroy(background))
	if _, err := s.retrieve(made.Config.Id); err != nil {
		t.Fatal(err)
	}
	s.done(s.remove(made.Config.Id), nil)
	if _, err := s.retrieve(made.Config.Id); !faultsof.Is(err, &types.NotFound{}) {
		t.Errorf("%v", err)
	}
}
