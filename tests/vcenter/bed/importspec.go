package bed

import (
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/ovf"
	vcsim "github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// ovfManager answers for the reader of OVF descriptors. vcsim's knows no SATA controller, panics at a blank disk and keeps its
// object locked then, loses the transport, and copies the values of properties, secrets too, into extraConfig.
type ovfManager struct {
	*vcsim.OvfManager
	world *world
}

// CreateImportSpec makes an import specification of an OVF descriptor.
func (m *ovfManager) CreateImportSpec(_ *vcsim.Context, asked *types.CreateImportSpec) soap.HasFault {
	result := types.OvfCreateImportSpecResult{}
	params := asked.Cisp.GetOvfCreateImportSpecParams()
	envelope, err := ovf.Unmarshal(strings.NewReader(asked.OvfDescriptor))
	var spec types.VirtualMachineConfigSpec
	if err == nil {
		spec, err = envelope.ToConfigSpecWithOptions(ovf.ToConfigSpecOptions{Strict: true, DeploymentConfiguration: params.DeploymentOption})
	}
	if err != nil || envelope.VirtualSystem == nil {
		reason := "the descriptor has no virtual system"
		if err != nil {
			reason = err.Error()
		}
		result.Error = []types.LocalizedMethodFault{{Fault: &types.OvfInvalidPackage{}, LocalizedMessage: reason}}
		return &methods.CreateImportSpecBody{Res: &types.CreateImportSpecResponse{Returnval: result}}
	}
	datastore, is := m.world.registry.Get(asked.Datastore).(*vcsim.Datastore)
	if !is {
		return &methods.CreateImportSpecBody{Fault_: vcsim.Fault("", &types.ManagedObjectNotFound{Obj: asked.Datastore})}
	}
	system := envelope.VirtualSystem
	if params.EntityName != "" {
		spec.Name = params.EntityName
	}
	spec.Files = &types.VirtualMachineFileInfo{VmPathName: "[" + datastore.Name + "]"}
	if system.Annotation != nil {
		spec.Annotation = system.Annotation.Annotation
	}
	hardware := system.VirtualHardware[0]
	m.networks(&spec, hardware, chosen(envelope, params), params)
	result.FileItem = m.disks(&spec, envelope, params)
	vapp(&spec, system, hardware, params)
	result.ImportSpec = &types.VirtualMachineImportSpec{ConfigSpec: spec, ResPoolEntity: &asked.ResourcePool}
	return &methods.CreateImportSpecBody{Res: &types.CreateImportSpecResponse{Returnval: result}}
}

// chosen is the deployment option that is asked for, or else the default one, or else the first.
func chosen(envelope *ovf.Envelope, params *types.OvfCreateImportSpecParams) string {
	if params.DeploymentOption != "" || envelope.DeploymentOption == nil {
		return params.DeploymentOption
	}
	options := envelope.DeploymentOption.Configuration
	for _, option := range options {
		if option.Default != nil && *option.Default {
			return option.ID
		}
	}
	if len(options) == 0 {
		return ""
	}
	return options[0].ID
}

// networks connects the adapters as the caller maps the descriptor's networks, or else to "VM Network".
func (m *ovfManager) networks(spec *types.VirtualMachineConfigSpec, hardware ovf.VirtualHardwareSection, option string, params *types.OvfCreateImportSpecParams) {
	var wanted []string
	for _, item := range hardware.Item {
		if item.Configuration != nil && *item.Configuration != option {
			continue
		}
		if item.ResourceType != nil && *item.ResourceType == ovf.EthernetAdapter {
			connection := ""
			if len(item.Connection) > 0 {
				connection = item.Connection[0]
			}
			wanted = append(wanted, connection)
		}
	}
	for _, change := range spec.DeviceChange {
		card, is := change.GetVirtualDeviceConfigSpec().Device.(types.BaseVirtualEthernetCard)
		if !is || len(wanted) == 0 {
			continue
		}
		named := wanted[0]
		wanted = wanted[1:]
		backing := &types.VirtualEthernetCardNetworkBackingInfo{}
		backing.DeviceName = "VM Network"
		card.GetVirtualEthernetCard().Backing = backing
		for _, mapping := range params.NetworkMapping {
			if mapping.Name == named {
				card.GetVirtualEthernetCard().Backing = m.world.backingOf(mapping.Network)
			}
		}
	}
}

// backingOf connects an adapter to a network.
func (w *world) backingOf(at ref) types.BaseVirtualDeviceBackingInfo {
	switch found := w.registry.Get(at).(type) {
	case *vcsim.DistributedVirtualPortgroup:
		backing := &types.VirtualEthernetCardDistributedVirtualPortBackingInfo{}
		backing.Port.PortgroupKey = found.Key
		if over, is := w.registry.Get(*found.Config.DistributedVirtualSwitch).(*vcsim.DistributedVirtualSwitch); is {
			backing.Port.SwitchUuid = over.Uuid
		}
		return backing
	default:
		backing := &types.VirtualEthernetCardNetworkBackingInfo{}
		for _, kind := range []string{"Network", "OpaqueNetwork"} {
			for _, entity := range w.registry.All(kind) {
				if entity.Reference() == at {
					backing.DeviceName = name(entity)
				}
			}
		}
		return backing
	}
}

// disks asks for an upload of each disk that the descriptor has a file for; all of them are made blank.
func (m *ovfManager) disks(spec *types.VirtualMachineConfigSpec, envelope *ovf.Envelope, params *types.OvfCreateImportSpecParams) []types.OvfFileItem {
	var all object.VirtualDeviceList
	for _, change := range spec.DeviceChange {
		all = append(all, change.GetVirtualDeviceConfigSpec().Device)
	}
	var items []types.OvfFileItem
	for _, change := range spec.DeviceChange {
		change := change.GetVirtualDeviceConfigSpec()
		disk, is := change.Device.(*types.VirtualDisk)
		if !is {
			continue
		}
		backing, is := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo)
		if !is {
			continue
		}
		if disk.UnitNumber == nil {
			disk.UnitNumber = new(int32)
		}
		file := backing.FileName
		change.FileOperation = types.VirtualDeviceConfigSpecFileOperationCreate
		backing.FileName, backing.Datastore = "", nil
		backing.ThinProvisioned = types.NewBool(params.DiskProvisioning == string(types.OvfCreateImportSpecParamsDiskProvisioningTypeThin))
		for _, reference := range envelope.References {
			if file != "" && (reference.Href == file || strings.HasSuffix(reference.Href, "/"+file)) {
				items = append(items, types.OvfFileItem{
					DeviceId: deviceID(spec.Name, all, disk), Path: reference.Href, Size: int64(reference.Size), CimType: int32(ovf.DiskDrive), Create: true,
				})
			}
		}
	}
	return items
}

// vapp sets the values that the caller gives, and what the descriptor says of the environment.
func vapp(spec *types.VirtualMachineConfigSpec, system *ovf.VirtualSystem, hardware ovf.VirtualHardwareSection, params *types.OvfCreateImportSpecParams) {
	if spec.VAppConfig == nil {
		return
	}
	config := spec.VAppConfig.GetVmConfigSpec()
	for _, property := range config.Property {
		key := property.Info.Id
		if property.Info.ClassId != "" {
			key = property.Info.ClassId + "." + key
		}
		if property.Info.InstanceId != "" {
			key += "." + property.Info.InstanceId
		}
		for _, given := range params.PropertyMapping {
			if given.Key == key {
				property.Info.Value = given.Value
			}
		}
	}
	for _, eula := range system.Eula {
		config.Eula = append(config.Eula, eula.License)
	}
	if hardware.Transport != nil {
		config.OvfEnvironmentTransport = strings.Fields(*hardware.Transport)
	}
}
