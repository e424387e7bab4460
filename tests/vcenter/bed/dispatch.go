package bed

import (
	vcsim "github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// open are the calls that need no session: methods of ServiceInstance and SessionManager whose privilege is System.Anonymous
// (vSphere Web Services API reference). vcsim lets reads of properties through as well.
var open = map[string]bool{
	"RetrieveServiceContent": true, "RetrieveInternalContent": true, "CurrentTime": true, "Login": true, "LoginByToken": true,
	"LoginExtensionByCertificate": true, "CloneSession": true, "PbmRetrieveServiceContent": true, "List": true,
}

// handle decides on each call who answers it. vcsim looks for the object in the session after it has asked us, and overrules
// us with what it finds there. So the reference that it looks for is changed to one that no session has: it carries
// a server's GUID. The registry keeps vcsim's own object, which the property collector and vcsim's type assertions need.
func (w *world) handle(ctx *vcsim.Context, method *vcsim.Method) (mo.Reference, types.BaseMethodFault) {
	if ctx.Session == nil {
		if open[method.Name] {
			return nil, nil
		}
		return nil, &types.NotAuthenticated{NoPermission: types.NoPermission{Object: &method.This, PrivilegeId: "System.View"}}
	}
	if ctx.Map != w.registry {
		// Another endpoint, as that of storage policies.
		return nil, nil
	}
	if refused := w.permitted(ctx, method); refused != nil {
		return nil, refused
	}
	if away := w.away(method); away != nil {
		return nil, away
	}
	if collector := w.collecting(ctx.Session.UserName, method); collector != nil {
		method.This.ServerGUID = "strict"
		return collector, nil
	}
	strict := w.strict(w.registry.Get(method.This))
	if strict == nil {
		return nil, nil
	}
	method.This.ServerGUID = "strict"
	return strict, nil
}

// strict is the object that answers in place of one of vcsim's: all that it does not answer itself is vcsim's.
func (w *world) strict(object mo.Reference) mo.Reference {
	switch object := object.(type) {
	case *vcsim.VirtualMachine:
		return &machine{VirtualMachine: object, world: w}
	case *vcsim.VirtualMachineSnapshot:
		return &snapshot{VirtualMachineSnapshot: object, world: w}
	case *vcsim.Folder:
		return &folder{Folder: object, world: w}
	case *vcsim.ResourcePool:
		return &pool{ResourcePool: object, world: w}
	case *vcsim.Datacenter:
		return &datacenter{Datacenter: object, world: w}
	case *vcsim.ClusterComputeResource:
		return &cluster{ClusterComputeResource: object, world: w}
	case *vcsim.OvfManager:
		return &ovfManager{OvfManager: object, world: w}
	case *vcsim.Datastore:
		return &datastore{Datastore: object, world: w}
	case *vcsim.VirtualDiskManager:
		return &diskManager{VirtualDiskManager: object, world: w}
	case *vcsim.FileManager:
		return &fileManager{FileManager: object, world: w}
	case *vcsim.HostDatastoreBrowser:
		return &browser{HostDatastoreBrowser: object, world: w}
	case *vcsim.VcenterVStorageObjectManager:
		return &storageObjects{VcenterVStorageObjectManager: object, world: w}
	case *vcsim.SearchIndex:
		return &searchIndex{SearchIndex: object, world: w}
	case *vcsim.AuthorizationManager:
		return &authorization{AuthorizationManager: object, world: w}
	}
	return nil
}
