package bed

import (
	"slices"
	"strings"

	"github.com/vmware/govmomi/object"
	vcsim "github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/simulator/esx"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// User is somebody who can log in.
type User struct {
	Name     string `json:"name"`
	Password string `json:"password"`
	// Privileges of the user's role at the root, for all below it. Everybody can see and read. Nil is an administrator.
	Privileges []string `json:"privileges"`
}

// Known are all privileges that there are.
func Known() []string {
	return object.AuthorizationRoleList(esx.RoleList).ByName("Admin").Privilege
}

// needed has the privilege of each call that changes something: "Required Privileges" of the methods in the vSphere Web Services API
// reference. What ReconfigVM_Task, CreateVM_Task and CloneVM_Task need depends on what they ask for.
var needed = map[string][]string{
	"PowerOnVM_Task": {"VirtualMachine.Interact.PowerOn"}, "PowerOnMultiVM_Task": {"VirtualMachine.Interact.PowerOn"},
	"PowerOffVM_Task": {"VirtualMachine.Interact.PowerOff"}, "ShutdownGuest": {"VirtualMachine.Interact.PowerOff"},
	"ResetVM_Task": {"VirtualMachine.Interact.Reset"}, "SuspendVM_Task": {"VirtualMachine.Interact.Suspend"},
	"UnregisterVM": {"VirtualMachine.Inventory.Unregister"}, "RegisterVM_Task": {"VirtualMachine.Inventory.Register"},
	"MarkAsTemplate": {"VirtualMachine.Provisioning.MarkAsTemplate"}, "MarkAsVirtualMachine": {"VirtualMachine.Provisioning.MarkAsVM"},
	"CreateSnapshot_Task": {"VirtualMachine.State.CreateSnapshot"}, "CreateSnapshotEx_Task": {"VirtualMachine.State.CreateSnapshot"},
	"RemoveSnapshot_Task": {"VirtualMachine.State.RemoveSnapshot"}, "RemoveAllSnapshots_Task": {"VirtualMachine.State.RemoveSnapshot"},
	"RevertToSnapshot_Task": {"VirtualMachine.State.RevertToSnapshot"},
	"ImportVApp":            {"VApp.Import"},
	"CreateFolder":          {"Folder.Create"},
	"MakeDirectory":         {"Datastore.FileManagement"}, "DeleteDatastoreFile_Task": {"Datastore.FileManagement"},
	"MoveDatastoreFile_Task": {"Datastore.FileManagement"}, "CopyDatastoreFile_Task": {"Datastore.FileManagement"},
	"CreateVirtualDisk_Task": {"Datastore.FileManagement"}, "DeleteVirtualDisk_Task": {"Datastore.FileManagement"},
	"MoveVirtualDisk_Task": {"Datastore.FileManagement"}, "CopyVirtualDisk_Task": {"Datastore.FileManagement"},
	"SetVirtualDiskUuid": {"Datastore.FileManagement"}, "QueryVirtualDiskUuid": {"Datastore.FileManagement"},
	"SearchDatastore_Task": {"Datastore.Browse"}, "SearchDatastoreSubFolders_Task": {"Datastore.Browse"},
	"CancelTask":                      {"Global.CancelTask"},
	"ReconfigureComputeResource_Task": {"Host.Inventory.EditCluster"},
	"CreateResourcePool":              {"Resource.CreatePool"},
	"TerminateSession":                {"Sessions.TerminateSession"},
	"AddAuthorizationRole":            {"Authorization.ModifyRoles"}, "UpdateAuthorizationRole": {"Authorization.ModifyRoles"},
	"RemoveAuthorizationRole": {"Authorization.ModifyRoles"}, "SetEntityPermissions": {"Authorization.ModifyPermissions"},
}

// forCall are the privileges that a call needs.
func (w *world) forCall(method *vcsim.Method) []string {
	switch asked := method.Body.(type) {
	case *types.Destroy_Task:
		switch asked.This.Type {
		case "Folder":
			return []string{"Folder.Delete"}
		case "ResourcePool":
			return []string{"Resource.DeletePool"}
		}
		return []string{"VirtualMachine.Inventory.Delete"}
	case *types.Rename_Task:
		return []string{asked.This.Type + map[bool]string{true: ".Config.Rename", false: ".Rename"}[asked.This.Type == "VirtualMachine"]}
	case *types.ReconfigVM_Task:
		return forSpec(&asked.Spec)
	case *types.CreateVM_Task:
		return append(forSpec(&asked.Config), "VirtualMachine.Inventory.Create", "Resource.AssignVMToPool", "Datastore.AllocateSpace")
	case *types.ImportVApp:
		return []string{"VApp.Import", "Resource.AssignVMToPool", "Datastore.AllocateSpace", "Network.Assign"}
	case *types.CloneVM_Task:
		privilege := "VirtualMachine.Provisioning.Clone"
		if source, failed := w.machine(asked.This); failed == nil && source.Config.Template {
			privilege = "VirtualMachine.Provisioning.DeployTemplate"
		}
		list := []string{privilege, "VirtualMachine.Inventory.CreateFromExisting", "Resource.AssignVMToPool", "Datastore.AllocateSpace"}
		if asked.Spec.Config != nil {
			list = append(list, forSpec(asked.Spec.Config)...)
		}
		return list
	}
	return needed[method.Name]
}

// forSpec are the privileges for the changes of a machine, as the reference of ReconfigVM_Task lists them.
func forSpec(spec *types.VirtualMachineConfigSpec) []string {
	var list []string
	add := func(when bool, privilege string) {
		if when && !slices.Contains(list, privilege) {
			list = append(list, privilege)
		}
	}
	add(spec.Name != "", "VirtualMachine.Config.Rename")
	add(spec.Annotation != "", "VirtualMachine.Config.Annotation")
	add(spec.NumCPUs != 0, "VirtualMachine.Config.CPUCount")
	add(spec.MemoryMB != 0, "VirtualMachine.Config.Memory")
	add(len(spec.ExtraConfig) > 0, "VirtualMachine.Config.AdvancedConfig")
	add(spec.ManagedBy != nil, "VirtualMachine.Config.ManagedBy")
	add(spec.VAppConfig != nil, "VApp.ApplicationConfig")
	add(spec.CpuAllocation != nil || spec.MemoryAllocation != nil, "VirtualMachine.Config.Resource")
	add(spec.BootOptions != nil || spec.Flags != nil || spec.Firmware != "", "VirtualMachine.Config.Settings")
	for _, change := range spec.DeviceChange {
		change := change.GetVirtualDeviceConfigSpec()
		_, disk := change.Device.(*types.VirtualDisk)
		_, card := change.Device.(types.BaseVirtualEthernetCard)
		switch change.Operation {
		case types.VirtualDeviceConfigSpecOperationAdd:
			add(disk && change.FileOperation == "", "VirtualMachine.Config.AddExistingDisk")
			add(disk && change.FileOperation != "", "VirtualMachine.Config.AddNewDisk")
			add(card, "Network.Assign")
			add(!disk, "VirtualMachine.Config.AddRemoveDevice")
		case types.VirtualDeviceConfigSpecOperationRemove:
			add(disk, "VirtualMachine.Config.RemoveDisk")
			add(!disk, "VirtualMachine.Config.AddRemoveDevice")
		default:
			add(true, "VirtualMachine.Config.EditDevice")
		}
	}
	return list
}

// held are a user's privileges; all of them for the bed itself and for whom it does not know.
func (w *world) held(user string) []string {
	for _, known := range w.bed.config.Users {
		if known.Name == user && known.Privileges != nil {
			return append([]string{"System.Anonymous", "System.View", "System.Read"}, known.Privileges...)
		}
	}
	return Known()
}

// permitted is the fault of a call that its user has no privilege for.
func (w *world) permitted(ctx *vcsim.Context, method *vcsim.Method) fault {
	held := w.held(ctx.Session.UserName)
	for _, privilege := range w.forCall(method) {
		if !slices.Contains(held, privilege) {
			return &types.NoPermission{Object: &method.This, PrivilegeId: privilege}
		}
	}
	return nil
}

// authorization answers for what users may do; vcsim says that everybody may do everything.
type authorization struct {
	*vcsim.AuthorizationManager
	world *world
}

func (a *authorization) has(user string, entities []ref, privileges []string) []types.EntityPrivilege {
	held := a.world.held(user)
	var list []types.EntityPrivilege
	for _, entity := range entities {
		found := types.EntityPrivilege{Entity: entity}
		for _, privilege := range privileges {
			found.PrivAvailability = append(found.PrivAvailability, types.PrivilegeAvailability{
				PrivId: privilege, IsGranted: slices.Contains(held, privilege),
			})
		}
		list = append(list, found)
	}
	return list
}

// HasPrivilegeOnEntities says what a session's user may do.
func (a *authorization) HasPrivilegeOnEntities(_ *vcsim.Context, asked *types.HasPrivilegeOnEntities) soap.HasFault {
	user := a.world.userOf(asked.SessionId)
	return &methods.HasPrivilegeOnEntitiesBody{Res: &types.HasPrivilegeOnEntitiesResponse{Returnval: a.has(user, asked.Entity, asked.PrivId)}}
}

// HasPrivilegeOnEntity is refused: govmomi leaves each false out of a list of answers. It is deprecated since API 5.5.
func (a *authorization) HasPrivilegeOnEntity(*vcsim.Context, *types.HasPrivilegeOnEntity) soap.HasFault {
	return &methods.HasPrivilegeOnEntityBody{Fault_: vcsim.Fault("", &types.NotSupported{})}
}

// HasUserPrivilegeOnEntities says it of a user by name.
func (a *authorization) HasUserPrivilegeOnEntities(_ *vcsim.Context, asked *types.HasUserPrivilegeOnEntities) soap.HasFault {
	return &methods.HasUserPrivilegeOnEntitiesBody{Res: &types.HasUserPrivilegeOnEntitiesResponse{
		Returnval: a.has(asked.UserName, asked.Entities, asked.PrivId),
	}}
}

// FetchUserPrivilegeOnEntities lists them all.
func (a *authorization) FetchUserPrivilegeOnEntities(_ *vcsim.Context, asked *types.FetchUserPrivilegeOnEntities) soap.HasFault {
	response := new(types.FetchUserPrivilegeOnEntitiesResponse)
	for _, entity := range asked.Entities {
		response.Returnval = append(response.Returnval, types.UserPrivilegeResult{Entity: entity, Privileges: a.world.held(asked.UserName)})
	}
	return &methods.FetchUserPrivilegeOnEntitiesBody{Res: response}
}

func (w *world) userOf(session string) string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.sessions[session]
}

// sameUser says whether two names are one: vCenter's are not case sensitive.
func sameUser(one, other string) bool { return strings.EqualFold(one, other) }
