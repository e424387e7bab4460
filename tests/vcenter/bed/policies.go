package bed

import (
	"maps"
	"slices"
	"sync"

	"github.com/vmware/govmomi/pbm"
	"github.com/vmware/govmomi/pbm/methods"
	// It registers the endpoint of storage policies with vcsim as well.
	policysim "github.com/vmware/govmomi/pbm/simulator"
	pbmtypes "github.com/vmware/govmomi/pbm/types"
	vcsim "github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// profileManager is the object that knows the storage policies.
var profileManager = ref{Type: "PbmProfileProfileManager", Value: "ProfileManager"}

// policies are the storage policies that machines and disks were given: vcsim takes them and forgets them.
type policies struct {
	mutex sync.Mutex
	// homes has that of each machine's own files, disks that of each disk by its file: a linked clone has the UUID of what it was cloned from.
	homes map[ref]string
	disks map[string]string
}

// ofHome notes the policy of a machine's own files, if one is named.
func (p *policies) ofHome(machine ref, named []types.BaseVirtualMachineProfileSpec) {
	note(p, &p.homes, machine, named)
}

// ofDisk notes the policy of a disk, if one is named.
func (p *policies) ofDisk(file string, named []types.BaseVirtualMachineProfileSpec) {
	note(p, &p.disks, file, named)
}

func note[K comparable](p *policies, to *map[K]string, key K, named []types.BaseVirtualMachineProfileSpec) {
	id := policyOf(named)
	if id == "" {
		return
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if *to == nil {
		*to = map[K]string{}
	}
	(*to)[key] = id
}

// noted has the policies as they are now: of machines, and of disks.
func (p *policies) noted() (map[ref]string, map[string]string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return maps.Clone(p.homes), maps.Clone(p.disks)
}

// policyOf is the identifier of the policy that a specification names; none if it names none.
func policyOf(named []types.BaseVirtualMachineProfileSpec) string {
	id := ""
	for _, one := range named {
		if defined, is := one.(*types.VirtualMachineDefinedProfileSpec); is {
			id = defined.ProfileId
		}
	}
	return id
}

// knowsPolicy refuses a missing policy, as PbmRetrieveContent does. Which fault other calls end with is not documented.
func (w *world) knowsPolicy(named []types.BaseVirtualMachineProfileSpec) fault {
	id := policyOf(named)
	if id == "" {
		return nil
	}
	ctx := w.own().For(pbm.Path)
	manager := ctx.Map.Get(profileManager).(*policysim.ProfileManager)
	var failed fault
	ctx.Map.WithLock(ctx, manager, func() {
		asked := &pbmtypes.PbmRetrieveContent{This: profileManager, ProfileIds: []pbmtypes.PbmProfileId{{UniqueId: id}}}
		if answer := manager.PbmRetrieveContent(asked).(*methods.PbmRetrieveContentBody); answer.Fault_ != nil {
			failed = answer.Fault_.VimFault().(fault)
		}
	})
	return failed
}

// clonePolicies checks what a clone says of policies: of each disk it names, datastore and manner have to be those of the whole, for
// this bed lays all files of a machine in one place.
func (w *world) clonePolicies(from *types.VirtualMachineConfigInfo, location types.VirtualMachineRelocateSpec) fault {
	if failed := w.knowsPolicy(location.Profile); failed != nil {
		return failed
	}
	for _, disk := range location.Disk {
		is := func(device types.BaseVirtualDevice) bool {
			_, is := device.(*types.VirtualDisk)
			return is && device.GetVirtualDevice().Key == disk.DiskId
		}
		switch {
		case !slices.ContainsFunc(from.Hardware.Device, is):
			return &types.InvalidArgument{InvalidProperty: "spec.location.disk.diskId"}
		case location.Datastore == nil || *location.Datastore != disk.Datastore || location.DiskMoveType != disk.DiskMoveType:
			return &types.NotSupported{}
		}
		if failed := w.knowsPolicy(disk.Profile); failed != nil {
			return failed
		}
	}
	return nil
}

// noteClone notes the policies of a clone: its first disk is that of the first of what was cloned, and so on.
func (w *world) noteClone(from *types.VirtualMachineConfigInfo, made *vcsim.VirtualMachine, location types.VirtualMachineRelocateSpec) {
	w.policies.ofHome(made.Self, location.Profile)
	disks := func(list []types.BaseVirtualDevice) []*types.VirtualDisk {
		var found []*types.VirtualDisk
		for _, device := range list {
			if disk, is := device.(*types.VirtualDisk); is {
				found = append(found, disk)
			}
		}
		return found
	}
	copies := disks(made.Config.Hardware.Device)
	for index, disk := range disks(from.Hardware.Device) {
		for _, locator := range location.Disk {
			if backing, is := copies[index].Backing.(*types.VirtualDiskFlatVer2BackingInfo); is && locator.DiskId == disk.Key {
				w.policies.ofDisk(backing.FileName, locator.Profile)
			}
		}
	}
}

// watchPolicies asks for the privilege that reading storage policies needs ("Profile-driven Storage Privileges" in vSphere Security).
func (w *world) watchPolicies() {
	registry := w.own().For(pbm.Path).Map
	if registry == nil {
		// A bare host has none.
		return
	}
	registry.Handler = func(ctx *vcsim.Context, method *vcsim.Method) (mo.Reference, types.BaseMethodFault) {
		const privilege = "StorageProfile.View"
		asks := method.Name == "PbmQueryProfile" || method.Name == "PbmRetrieveContent"
		// A client without a session gets its error from vcsim.
		if !asks || ctx.Session == nil || slices.Contains(w.held(ctx.Session.UserName, w.model.ServiceContent.RootFolder), privilege) {
			return nil, nil
		}
		return nil, &types.NoPermission{Object: &w.model.ServiceContent.RootFolder, PrivilegeId: privilege}
	}
}
