package bed

import (
	"crypto/rand"
	"fmt"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"
)

// newDevice completes a device that is added: a disk's file, a network, a MAC address. It gives the path of a disk that it
// has made.
func (w *world) newDevice(change *types.VirtualDeviceConfigSpec, index int, directory, base string, holder string) (string, fault) {
	bad := func(property string) fault {
		return &types.InvalidDeviceSpec{InvalidVmConfig: types.InvalidVmConfig{Property: property}, DeviceIndex: int32(index)}
	}
	if change.Operation != types.VirtualDeviceConfigSpecOperationAdd || change.Device == nil {
		return "", bad("operation")
	}
	if card, is := change.Device.(types.BaseVirtualEthernetCard); is {
		return "", w.newCard(card.GetVirtualEthernetCard(), bad)
	}
	disk, is := change.Device.(*types.VirtualDisk)
	if !is {
		return "", nil
	}
	backing, is := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
	if !is {
		return "", &types.DeviceUnsupportedForVmPlatform{InvalidDeviceSpec: *bad("backing").(*types.InvalidDeviceSpec)}
	}
	if disk.UnitNumber == nil {
		return "", bad("unitNumber")
	}
	if failed := w.knowsPolicy(change.Profile); failed != nil {
		return "", failed
	}
	create := change.FileOperation != ""
	switch change.FileOperation {
	case "", types.VirtualDeviceConfigSpecFileOperationCreate:
	default:
		return "", &types.NotSupported{}
	}
	// vcsim then finds the existing file, and makes none.
	change.FileOperation = ""
	var made string
	var failed fault
	if create {
		made, failed = w.newDisk(disk, backing, directory, base, bad)
	} else {
		failed = w.oldDisk(disk, backing, holder)
	}
	if failed == nil {
		w.policies.ofDisk(backing.FileName, change.Profile)
	}
	return made, failed
}

func (w *world) newDisk(disk *types.VirtualDisk, backing *types.VirtualDiskFlatVer2BackingInfo, directory, base string, bad func(string) fault) (string, fault) {
	var at object.DatastorePath
	if !at.FromString(backing.FileName) || at.Path == "" {
		unused, failed := w.disks.Unused(directory, base, nil)
		if failed != nil {
			return "", failed
		}
		backing.FileName = unused
	}
	if backing.Parent != nil {
		child, failed := w.disks.Child(backing.FileName, backing.Parent.FileName)
		if failed != nil {
			return "", failed
		}
		settle(disk, backing, child.Capacity, child.UUID)
		return backing.FileName, nil
	}
	capacity := disk.CapacityInBytes
	if capacity == 0 {
		capacity = disk.CapacityInKB * 1024
	}
	if capacity <= 0 {
		return "", bad("capacityInKB")
	}
	thin := backing.ThinProvisioned != nil && *backing.ThinProvisioned
	made, failed := w.disks.Create(backing.FileName, capacity, thin)
	if failed != nil {
		return "", failed
	}
	if backing.Uuid != "" {
		if failed := w.disks.SetUUID(backing.FileName, backing.Uuid); failed != nil {
			return backing.FileName, failed
		}
		made.UUID = backing.Uuid
	}
	settle(disk, backing, made.Capacity, made.UUID)
	return backing.FileName, nil
}

// oldDisk completes a disk that is attached by its path: vCenter fills in its capacity and UUID, and refuses one that a running
// machine has locked (govmomi 2039).
func (w *world) oldDisk(disk *types.VirtualDisk, backing *types.VirtualDiskFlatVer2BackingInfo, holder string) fault {
	found, failed := w.disks.Read(backing.FileName)
	if failed != nil {
		return failed
	}
	if failed := w.disks.Locked(holder, backing.FileName); failed != nil && !w.bed.Switches().IgnoresLocks {
		return failed
	}
	if of := w.objectAt(backing.FileName); of != nil && !w.bed.Switches().HidesObjectIDs {
		disk.VDiskId = &types.ID{Id: of.Config.Id.Id}
	}
	backing.Parent = nil
	if found.Parent != "" {
		backing.Parent = &types.VirtualDiskFlatVer2BackingInfo{
			VirtualDeviceFileBackingInfo: types.VirtualDeviceFileBackingInfo{FileName: found.Parent},
		}
	}
	settle(disk, backing, found.Capacity, found.UUID)
	return nil
}

func settle(disk *types.VirtualDisk, backing *types.VirtualDiskFlatVer2BackingInfo, capacity int64, uuid string) {
	disk.CapacityInBytes, disk.CapacityInKB, backing.Uuid = capacity, capacity/1024, uuid
	if backing.DiskMode == "" {
		backing.DiskMode = string(types.VirtualDiskModePersistent)
	}
}

// newCard checks an adapter's network, which vcsim takes for granted, and gives it a MAC address of vCenter's own range, as
// AddressType "assigned" is documented. vcsim derives one of 4,096 from the path.
func (w *world) newCard(card *types.VirtualEthernetCard, bad func(string) fault) fault {
	if backing, is := card.Backing.(*types.VirtualEthernetCardNetworkBackingInfo); is {
		if w.network(backing.DeviceName) == nil {
			return bad("backing.deviceName")
		}
	}
	if card.Backing == nil {
		return bad("backing")
	}
	if card.AddressType != string(types.VirtualEthernetCardMacTypeManual) || card.MacAddress == "" {
		card.AddressType = string(types.VirtualEthernetCardMacTypeAssigned)
		var random [3]byte
		// It never fails: the documentation of crypto/rand.
		_, _ = rand.Read(random[:])
		card.MacAddress = fmt.Sprintf("00:50:56:%02x:%02x:%02x", 0x80|random[0]&0x3f, random[1], random[2])
	}
	return nil
}

func (w *world) network(named string) *ref {
	for _, kind := range []string{"Network", "OpaqueNetwork"} {
		for _, entity := range w.registry.All(kind) {
			if name(entity) == named {
				at := entity.Reference()
				return &at
			}
		}
	}
	return nil
}
