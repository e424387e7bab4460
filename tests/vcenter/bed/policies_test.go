package bed

import (
	"testing"

	"github.com/vmware/govmomi/pbm"
	pbmtypes "github.com/vmware/govmomi/pbm/types"
	"github.com/vmware/govmomi/vim25/types"
)

func policySpec(id string) []types.BaseVirtualMachineProfileSpec {
	return []types.BaseVirtualMachineProfileSpec{&types.VirtualMachineDefinedProfileSpec{ProfileId: id}}
}

func TestMachinesAndDisksHaveThePolicyThatWasAskedFor(t *testing.T) {
	s := opened(t)
	client, err := pbm.NewClient(background, s.client.Client)
	s.must(err)
	id, err := client.ProfileIDByName(background, "vSAN Default Storage Policy")
	s.must(err)
	template := s.imported("template")
	s.must(template.MarkAsTemplate(background))
	asked := func(id string) func(*types.VirtualMachineCloneSpec) {
		return func(spec *types.VirtualMachineCloneSpec) {
			datastore := s.datastore.Reference()
			spec.Location.Datastore, spec.Location.Profile = &datastore, policySpec(id)
			spec.Location.Disk = []types.VirtualMachineRelocateSpecDiskLocator{{
				DiskId: s.disks(template)[0].Key, Datastore: datastore, Profile: policySpec(id),
			}}
		}
	}
	vm := s.made(s.done(s.cloneOf(template, "node-1", "", nil, asked(id))))
	system := s.disks(vm)[0]
	if made := s.machine("node-1"); made.Policy != id || len(made.Policies) != 1 || made.Policies[pathOf(system)] != id {
		t.Errorf("%+v", made)
	}
	unit := int32(9)
	spec := change(add, &types.VirtualDisk{CapacityInBytes: 1 << 20, VirtualDevice: types.VirtualDevice{
		ControllerKey: system.ControllerKey, UnitNumber: &unit,
		Backing: &types.VirtualDiskFlatVer2BackingInfo{DiskMode: string(types.VirtualDiskModeIndependent_persistent)},
	}})
	added := spec.DeviceChange[0].GetVirtualDeviceConfigSpec()
	added.FileOperation, added.Profile = types.VirtualDeviceConfigSpecFileOperationCreate, policySpec(id)
	s.done(s.reconfigure(vm, spec))
	if made := s.machine("node-1"); len(made.Policies) != 2 {
		t.Errorf("%+v", made)
	}
	if made := s.machine("template"); made.Policy != "" || len(made.Policies) != 0 {
		t.Errorf("%+v", made)
	}
	task, err := s.cloneOf(template, "node-2", "", nil, asked("none"))
	refused[*types.InvalidArgument](s, "a policy that is not there", task, err)
}

func TestPoliciesAreReadWithTheirPrivilege(t *testing.T) {
	s := opened(t, func(config *Config) {
		config.Users = append(config.Users, User{Name: "looker", Password: "secret", Privileges: []string{"System.View"}})
	})
	client, err := pbm.NewClient(background, s.login("looker", "secret").Client)
	s.must(err)
	storage := pbmtypes.PbmProfileResourceType{ResourceType: string(pbmtypes.PbmProfileResourceTypeEnumSTORAGE)}
	_, err = client.QueryProfile(background, storage, string(pbmtypes.PbmProfileCategoryEnumREQUIREMENT))
	wanted(s, "policies without the privilege", err, new(*types.NoPermission))
}
