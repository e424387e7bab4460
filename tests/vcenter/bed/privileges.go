package bed

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/vmware/govmomi/object"
	vcsim "github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/simulator/esx"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// User is an account that can log in.
type User struct {
	Name     string `json:"name"`
	Password string `json:"password"`
	// Privileges of the user's role at the root, for all below it. Everybody can see and read. Nil is an administrator, unless On says
	// something.
	Privileges []string `json:"privileges"`
	// On are the privileges of roles on objects, by their inventory paths, such as DC0/vm/lab. They propagate. A permission on an object
	// replaces those from objects above it. Where System.View is among them, and System.Read is not, little is shown of the object.
	On map[string][]string `json:"on"`
}

// Known are all privileges that there are.
func Known() []string {
	return object.AuthorizationRoleList(esx.RoleList).ByName("Admin").Privilege
}

// needed has the privilege of each call that changes something: "Required Privileges" of the methods in the vSphere Web Services API
// reference. The privileges of ReconfigVM_Task, CreateVM_Task and CloneVM_Task depend on their arguments.
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
	"DetachDisk_Task":                 {"VirtualMachine.Config.RemoveDisk"},
	"CancelTask":                      {"Global.CancelTask"},
	"ReconfigureComputeResource_Task": {"Host.Inventory.EditCluster"},
	"CreateResourcePool":              {"Resource.CreatePool"},
	"TerminateSession":                {"Sessions.TerminateSession"},
	"AddAuthorizationRole":            {"Authorization.ModifyRoles"}, "UpdateAuthorizationRole": {"Authorization.ModifyRoles"},
	"RemoveAuthorizationRole": {"Authorization.ModifyRoles"}, "SetEntityPermissions": {"Authorization.ModifyPermissions"},
}

// demand is a privilege that a call needs on each of some objects.
type demand struct {
	privilege string
	on        []ref
}

// forCall are the privileges that a call needs, each on the object that the reference of its method says.
func (w *world) forCall(method *vcsim.Method) []demand {
	this := []ref{method.This}
	switch asked := method.Body.(type) {
	case *types.Destroy_Task:
		switch asked.This.Type {
		case "Folder":
			return []demand{{"Folder.Delete", this}}
		case "ResourcePool":
			return []demand{{"Resource.DeletePool", this}}
		}
		return []demand{{"VirtualMachine.Inventory.Delete", this}}
	case *types.Rename_Task:
		kind := asked.This.Type
		return []demand{{kind + map[bool]string{true: ".Config.Rename", false: ".Rename"}[kind == "VirtualMachine"], this}}
	case *types.ReconfigVM_Task:
		return w.demands(&asked.Spec, this)
	case *types.CreateVM_Task:
		return append(w.demands(&asked.Config, this), demand{"VirtualMachine.Inventory.Create", this},
			demand{"Resource.AssignVMToPool", []ref{asked.Pool}}, demand{"Datastore.AllocateSpace", w.datastoresOf(asked.Config.Files)})
	case *types.ImportVApp:
		list := []demand{{"VApp.Import", this}, {"Resource.AssignVMToPool", this}}
		if asked.Folder != nil {
			list = append(list, demand{"VApp.Import", []ref{*asked.Folder}})
		}
		if spec, is := asked.Spec.(*types.VirtualMachineImportSpec); is {
			list = append(list, demand{"Datastore.AllocateSpace", w.datastoresOf(spec.ConfigSpec.Files)},
				demand{"Network.Assign", w.networksOf(&spec.ConfigSpec)})
		}
		return list
	case *types.CloneVM_Task:
		folder, pool, datastore := []ref{asked.Folder}, this, this
		if asked.Spec.Location.Pool != nil {
			pool = []ref{*asked.Spec.Location.Pool}
		}
		privilege := "VirtualMachine.Provisioning.Clone"
		if source, failed := w.machine(asked.This); failed == nil {
			if source.Config.Template {
				privilege = "VirtualMachine.Provisioning.DeployTemplate"
			}
			datastore = w.datastoresOf(&types.VirtualMachineFileInfo{VmPathName: source.Config.Files.VmPathName})
		}
		if asked.Spec.Location.Datastore != nil {
			datastore = []ref{*asked.Spec.Location.Datastore}
		}
		list := []demand{
			{privilege, this}, {"VirtualMachine.Inventory.CreateFromExisting", folder}, {"Resource.AssignVMToPool", pool},
			{"Datastore.AllocateSpace", datastore},
		}
		if asked.Spec.Config != nil {
			list = append(list, w.demands(asked.Spec.Config, folder)...)
		}
		return list
	}
	if on, is := objectOf(method); is {
		list := []demand{{"Datastore.FileManagement", []ref{on}}}
		if method.Name == "AttachDisk_Task" {
			list = append(list, demand{"VirtualMachine.Config.AddExistingDisk", this})
		}
		return list
	}
	var list []demand
	for _, privilege := range needed[method.Name] {
		on := this
		if strings.HasPrefix(privilege, "Datastore.") {
			on = w.datastoresAt(paths(method)...)
		}
		list = append(list, demand{privilege, on})
	}
	return list
}

// objectOf is the datastore of a call about a First Class Disk that changes something: "Requires Datastore.FileManagement privilege on the
// datastore" (reference of VcenterVStorageObjectManager).
func objectOf(method *vcsim.Method) (ref, bool) {
	switch asked := method.Body.(type) {
	case *types.CreateDisk_Task:
		return asked.Spec.BackingSpec.GetVslmCreateSpecBackingSpec().Datastore, true
	case *types.DeleteVStorageObject_Task:
		return asked.Datastore, true
	case *types.ExtendDisk_Task:
		return asked.Datastore, true
	case *types.VStorageObjectCreateSnapshot_Task:
		return asked.Datastore, true
	case *types.DeleteSnapshot_Task:
		return asked.Datastore, true
	case *types.AttachDisk_Task:
		return asked.Datastore, true
	}
	return ref{}, false
}

// demands are the privileges for the changes of a machine, on it or on the folder that it comes into: but for networks.
func (w *world) demands(spec *types.VirtualMachineConfigSpec, on []ref) []demand {
	var list []demand
	for _, privilege := range forSpec(spec) {
		at := on
		if privilege == "Network.Assign" {
			at = w.networksOf(spec)
		}
		list = append(list, demand{privilege, at})
	}
	return list
}

// paths are those that a call about files and disks names.
func paths(method *vcsim.Method) []string {
	switch asked := method.Body.(type) {
	case *types.MakeDirectory:
		return []string{asked.Name}
	case *types.DeleteDatastoreFile_Task:
		return []string{asked.Name}
	case *types.MoveDatastoreFile_Task:
		return []string{asked.SourceName, asked.DestinationName}
	case *types.CopyDatastoreFile_Task:
		return []string{asked.SourceName, asked.DestinationName}
	case *types.CreateVirtualDisk_Task:
		return []string{asked.Name}
	case *types.DeleteVirtualDisk_Task:
		return []string{asked.Name}
	case *types.MoveVirtualDisk_Task:
		return []string{asked.SourceName, asked.DestName}
	case *types.CopyVirtualDisk_Task:
		return []string{asked.SourceName, asked.DestName}
	case *types.SetVirtualDiskUuid:
		return []string{asked.Name}
	case *types.QueryVirtualDiskUuid:
		return []string{asked.Name}
	case *types.SearchDatastore_Task:
		return []string{asked.DatastorePath}
	case *types.SearchDatastoreSubFolders_Task:
		return []string{asked.DatastorePath}
	}
	return nil
}

// datastoresAt are the datastores of paths. A path that is of none needs what it needs at the root.
func (w *world) datastoresAt(paths ...string) []ref {
	var list []ref
	for _, path := range paths {
		at, found := object.DatastorePath{}, w.model.ServiceContent.RootFolder
		if at.FromString(path) {
			if datastore := w.datastore(at.Datastore); datastore != nil {
				found = datastore.Self
			}
		}
		list = append(list, found)
	}
	return list
}

// datastoresOf is the datastore of a machine's files.
func (w *world) datastoresOf(files *types.VirtualMachineFileInfo) []ref {
	if files == nil {
		return nil
	}
	return w.datastoresAt(files.VmPathName)
}

// networksOf are the networks that a machine's new adapters are on.
func (w *world) networksOf(spec *types.VirtualMachineConfigSpec) []ref {
	var list []ref
	for _, change := range spec.DeviceChange {
		change := change.GetVirtualDeviceConfigSpec()
		card, is := change.Device.(types.BaseVirtualEthernetCard)
		if !is || change.Operation != types.VirtualDeviceConfigSpecOperationAdd {
			continue
		}
		switch backing := card.GetVirtualEthernetCard().Backing.(type) {
		case *types.VirtualEthernetCardNetworkBackingInfo:
			for _, network := range w.registry.All("Network") {
				if name(network) == backing.DeviceName {
					list = append(list, network.Reference())
				}
			}
		case *types.VirtualEthernetCardDistributedVirtualPortBackingInfo:
			list = append(list, ref{Type: "DistributedVirtualPortgroup", Value: backing.Port.PortgroupKey})
		}
	}
	return list
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
	if spec.VAppConfig != nil {
		instance, application := forForm(spec.VAppConfig.GetVmConfigSpec())
		add(instance, "VApp.InstanceConfig")
		add(application, "VApp.ApplicationConfig")
	}
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

// forForm says whether a change of a vApp configuration needs VApp.InstanceConfig, and whether VApp.ApplicationConfig: values and the choices
// of the IP assignment need the first, other fields and removals the second (references of VmConfigSpec, VAppPropertyInfo, VAppIPAssignmentInfo).
func forForm(spec *types.VmConfigSpec) (instance, application bool) {
	rest := *spec
	rest.Property, rest.IpAssignment = nil, nil
	application = !reflect.ValueOf(rest).IsZero()
	if spec.IpAssignment != nil {
		ip := *spec.IpAssignment
		instance = ip.IpAllocationPolicy != "" || ip.IpProtocol != ""
		application = application || len(ip.SupportedAllocationScheme)+len(ip.SupportedIpProtocol) > 0
	}
	for _, change := range spec.Property {
		if change.Info == nil {
			application = true
			continue
		}
		info := *change.Info
		instance = instance || info.Value != ""
		info.Key, info.Value = 0, ""
		application = application || info != types.VAppPropertyInfo{}
	}
	return instance, application
}

// limited is a user who may not do everything; nil for the bed itself and for whom it does not know.
func (w *world) limited(name string) *User {
	for _, known := range w.bed.config.Users {
		if known.Name == name && (known.Privileges != nil || known.On != nil) {
			return &known
		}
	}
	return nil
}

// held are a user's privileges on an object.
func (w *world) held(name string, at ref) []string {
	user := w.limited(name)
	if user == nil {
		return Known()
	}
	held := []string{"System.Anonymous", "System.View"}
	if w.reads(user, at) {
		held = append(held, "System.Read")
	}
	return append(held, w.granted(user, at)...)
}

// reads says whether a user's roles have System.Read on an object: all do, but those on objects that say otherwise.
func (w *world) reads(user *User, at ref) bool {
	if own, is := user.On[w.pathOf(at)]; is {
		return !isUnread(own)
	}
	above := w.above(at)
	return len(above) == 0 || slices.ContainsFunc(above, func(one ref) bool { return w.reads(user, one) })
}

// isUnread says whether a role withholds System.Read.
func isUnread(role []string) bool {
	return slices.Contains(role, "System.View") && !slices.Contains(role, "System.Read")
}

// collector answers reads of properties: it hides passwords of forms, and what a user may not read.
type collector struct {
	*vcsim.PropertyCollector
	world *world
	// user is who may not read everything; nil who may.
	user *User
	// hidden are the machines whose settings are shown to no client.
	hidden map[ref]hiding
}

// collecting is what answers a user's reads of properties instead of vcsim; nil for other calls.
func (w *world) collecting(user string, method *vcsim.Method) mo.Reference {
	if method.Name != "RetrievePropertiesEx" && method.Name != "ContinueRetrievePropertiesEx" {
		return nil
	}
	own := vcsim.NewPropertyCollector(method.This).(*vcsim.PropertyCollector)
	return &collector{PropertyCollector: own, world: w, user: w.limited(user), hidden: w.unshown()}
}

// RetrievePropertiesEx names what is not shown: "missingSet: Properties for which values could not be retrieved and the associated fault".
// For an entity's name and what it is in System.View is enough (vSphere Web Services API reference, ManagedEntity).
func (c *collector) RetrievePropertiesEx(ctx *vcsim.Context, asked *types.RetrievePropertiesEx) soap.HasFault {
	answer := c.PropertyCollector.RetrievePropertiesEx(ctx, asked)
	// A machine may have come into the inventory meanwhile.
	maps.Copy(c.hidden, c.world.unshown())
	if body, is := answer.(*methods.RetrievePropertiesExBody); is && body.Res != nil && body.Res.Returnval != nil {
		c.shown(body.Res.Returnval.Objects)
	}
	return answer
}

// ContinueRetrievePropertiesEx is the same of further pages.
func (c *collector) ContinueRetrievePropertiesEx(ctx *vcsim.Context, asked *types.ContinueRetrievePropertiesEx) soap.HasFault {
	answer := c.PropertyCollector.ContinueRetrievePropertiesEx(ctx, asked)
	if body, is := answer.(*methods.ContinueRetrievePropertiesExBody); is && body.Res != nil {
		c.shown(body.Res.Returnval.Objects)
	}
	return answer
}

func (c *collector) shown(objects []types.ObjectContent) {
	for i := range objects {
		found := &objects[i]
		if hiding, is := c.hidden[found.Obj]; is {
			hiding.hide(found)
		}
		c.world.seen(c.user, found)
		if c.user == nil || c.world.reads(c.user, found.Obj) {
			continue
		}
		var shown []types.DynamicProperty
		for _, property := range found.PropSet {
			if property.Name == "name" || property.Name == "parent" {
				shown = append(shown, property)
				continue
			}
			refused := &types.NoPermission{Object: &found.Obj, PrivilegeId: "System.Read"}
			found.MissingSet = append(found.MissingSet, types.MissingProperty{
				Path: property.Name, Fault: types.LocalizedMethodFault{Fault: refused},
			})
		}
		found.PropSet = shown
	}
}

// seen changes what is shown of an object as vCenter does.
func (w *world) seen(user *User, found *types.ObjectContent) {
	for i, property := range found.PropSet {
		if tasks, is := property.Val.(types.ArrayOfManagedObjectReference); is && found.Obj.Type == "TaskManager" && property.Name == "recentTask" {
			found.PropSet[i].Val = w.listed(user, tasks)
		}
	}
	if found.Obj.Type == "VirtualMachine" && !w.bed.Switches().ShowsPasswords {
		for i, property := range found.PropSet {
			found.PropSet[i].Val = withoutPasswords(property.Val)
		}
	}
}

// listed are the tasks that a user may access, "which is determined by having permission to access the Task object's managed entity"
// (reference of TaskManager.recentTask). That the way to an object is shown is no permission on what is above it.
func (w *world) listed(user *User, tasks types.ArrayOfManagedObjectReference) types.ArrayOfManagedObjectReference {
	if user == nil || w.bed.Switches().ListsAllTasks {
		return tasks
	}
	var list types.ArrayOfManagedObjectReference
	for _, at := range tasks.ManagedObjectReference {
		task, is := w.registry.Get(at).(*vcsim.Task)
		if !is {
			continue
		}
		if task.Info.Entity == nil || w.registry.Get(*task.Info.Entity) == nil || len(w.granted(user, *task.Info.Entity)) > 0 {
			list.ManagedObjectReference = append(list.ManagedObjectReference, at)
		}
	}
	return list
}

// granted are the privileges of a user's roles on an object: of what is set on it, and else of what propagates from above, together
// where two objects are above it ("Hierarchical Inheritance of Permissions" and "Multiple Permission Settings" in vSphere Security). On
// what is in no folder the role at the root counts.
func (w *world) granted(user *User, at ref) []string {
	if own, is := user.On[w.pathOf(at)]; is {
		return own
	}
	above := w.above(at)
	if len(user.On) == 0 || len(above) == 0 {
		return user.Privileges
	}
	var list []string
	for _, one := range above {
		list = append(list, w.granted(user, one)...)
	}
	return list
}

// above is what an object is in: "virtual machines inherit permissions from both the parent virtual machine folder and the parent host,
// cluster, or resource pool simultaneously".
func (w *world) above(at ref) []ref {
	found, is := w.registry.Get(at).(mo.Entity)
	if !is || found.Entity().Parent == nil {
		return nil
	}
	list := []ref{*found.Entity().Parent}
	if machine, is := found.(*vcsim.VirtualMachine); is && machine.ResourcePool != nil {
		list = append(list, *machine.ResourcePool)
	}
	return list
}

// pathOf is an object's inventory path, without that of the root; empty for what is in no folder.
func (w *world) pathOf(at ref) string {
	found, is := w.registry.Get(at).(mo.Entity)
	if !is || found.Entity().Parent == nil {
		return ""
	}
	return strings.TrimPrefix(w.pathOf(*found.Entity().Parent)+"/"+name(found), "/")
}

// permitted is the fault of a call that its user has no privilege for.
func (w *world) permitted(ctx *vcsim.Context, method *vcsim.Method) fault {
	user := ctx.Session.UserName
	if w.limited(user) == nil {
		return nil
	}
	for _, demand := range w.forCall(method) {
		for _, at := range demand.on {
			if !slices.Contains(w.held(user, at), demand.privilege) {
				return &types.NoPermission{Object: &at, PrivilegeId: demand.privilege}
			}
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
	var list []types.EntityPrivilege
	for _, entity := range entities {
		held := a.world.held(user, entity)
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
		response.Returnval = append(response.Returnval, types.UserPrivilegeResult{Entity: entity, Privileges: a.world.held(asked.UserName, entity)})
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
