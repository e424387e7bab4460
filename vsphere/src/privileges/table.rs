//! The privileges for the calls that a deployment makes. Only tests remove VMs from the inventory.
//!
//! Source: the required privileges of each method in the vSphere Web Services API reference.
//!
//! - `CloneVM_Task`: a VM from a template requires `DeployTemplate`, not `Clone`, which is for a VM from a VM.
//! - An OVF property (`VAppPropertyInfo`): `value` requires `InstanceConfig`, and each other field `ApplicationConfig`.
//! - `System.View`, `System.Read` and `System.Anonymous` are in every role, and not in the table. `System.Read` is
//!   required on further objects: hosts, and switches of distributed port groups. [`crate::Error::Unreadable`] names
//!   them.

/// The objects that a privilege is needed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum On {
    /// The folder of the VMs, and so the VMs in it.
    Folder,
    /// The parent folder of the clusters' folders.
    ClustersFolder,
    /// Each datastore of VMs or files.
    Datastore,
    /// Each network of a VM.
    Network,
    /// The resource pool.
    Pool,
    /// The cluster.
    Cluster,
    /// The root of the inventory, for storage policies ("Profile-driven Storage Privileges" in vSphere Security).
    Root,
}

/// A privilege, and its purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Privilege {
    /// Its identifier.
    pub id: &'static str,
    /// Its objects.
    pub on: On,
    /// The action that requires it.
    pub purpose: &'static str,
}

macro_rules! privileges {
    ($($on:ident $id:literal $purpose:literal;)*) => {
        /// All required privileges.
        pub const PRIVILEGES: &[Privilege] = &[$(Privilege { id: $id, on: On::$on, purpose: $purpose }),*];
    };
}

/// Recommended privileges. Without them nothing fails, or only an action that the operator requests later.
///
/// Source: `Task.CancelTask` in the vSphere Web Services API reference, which has no exception for the task's owner.
/// "Global Privileges" in vSphere Security: on the inventory object of the task. `VirtualMachineConfigSpec.name` for
/// the other privilege.
pub const WISHED: &[Privilege] = &[
    Privilege {
        id: "Global.CancelTask",
        on: On::Datastore,
        purpose: "ending searches of a datastore that hangs; without it they end when the datastore answers",
    },
    Privilege {
        id: "VirtualMachine.Config.Rename",
        on: On::Folder,
        purpose: "keeping the VM of a worker that goes (`KeepVM`), by another name; without it that one waits",
    },
];

privileges! {
    Folder "VApp.ApplicationConfig" "sending OVF properties whole, with their types and labels";
    Folder "VApp.Import" "importing VMs";
    Folder "VApp.InstanceConfig" "filling in OVF properties";
    Folder "VirtualMachine.Config.AddExistingDisk" "attaching disks";
    Folder "VirtualMachine.Config.AddNewDisk" "making disks";
    Folder "VirtualMachine.Config.AddRemoveDevice" "importing VMs with their devices";
    Folder "VirtualMachine.Config.AdvancedConfig" "writing extraConfig";
    Folder "VirtualMachine.Config.Annotation" "writing notes";
    Folder "VirtualMachine.Config.CPUCount" "setting the number of processors";
    Folder "VirtualMachine.Config.EditDevice" "connecting network adapters";
    Folder "VirtualMachine.Config.ManagedBy" "saying whose a VM is";
    Folder "VirtualMachine.Config.Memory" "setting the memory";
    Folder "VirtualMachine.Config.RemoveDisk" "detaching disks";
    Folder "VirtualMachine.Config.Settings" "changing settings of VMs";
    Folder "VirtualMachine.Interact.DeviceConnection" "connecting network adapters of VMs that are on";
    Folder "VirtualMachine.Interact.PowerOff" "shutting VMs down and powering them off";
    Folder "VirtualMachine.Interact.PowerOn" "powering VMs on";
    Folder "VirtualMachine.Inventory.Create" "importing VMs";
    Folder "VirtualMachine.Inventory.CreateFromExisting" "cloning templates";
    Folder "VirtualMachine.Inventory.Delete" "destroying VMs";
    Folder "VirtualMachine.Provisioning.DeployTemplate" "cloning templates";
    Folder "VirtualMachine.Provisioning.MarkAsTemplate" "making templates";
    Folder "VirtualMachine.State.CreateSnapshot" "making the snapshot of a template that linked clones hang on";
    ClustersFolder "Folder.Create" "making a folder for the VMs of each tenant cluster";
    Datastore "Datastore.AllocateSpace" "putting disks onto datastores";
    Datastore "Datastore.Browse" "listing files of datastores";
    Datastore "Datastore.FileManagement" "copying disks, and writing files of datastores";
    Network "Network.Assign" "putting VMs onto networks";
    Pool "Resource.AssignVMToPool" "putting VMs into resource pools";
    Pool "VApp.Import" "importing VMs";
    Cluster "Host.Inventory.EditCluster" "keeping VMs on different hosts, and setting restart priorities";
    Root "StorageProfile.View" "finding a storage policy by its name";
}

/// The privileges of a role with those of [`WISHED`], each once, one a line. It is input of
/// `govc role.create NAME $(cat FILE)`, and of PowerCLI's
/// `New-VIRole -Name NAME -Privilege (Get-VIPrivilege -Id (Get-Content FILE))`.
pub fn role_file() -> String {
    let mut ids: Vec<&str> = PRIVILEGES.iter().chain(WISHED).map(|privilege| privilege.id).collect();
    ids.sort_unstable();
    ids.dedup();
    ids.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_role_file_has_each_privilege_once() {
        insta::assert_snapshot!(role_file());
    }

    #[test]
    fn each_row_is_unique() {
        let all = || PRIVILEGES.iter().chain(WISHED);
        let mut rows: Vec<(On, &str)> = all().map(|privilege| (privilege.on, privilege.id)).collect();
        rows.sort_unstable();
        rows.dedup();
        assert_eq!(rows.len(), all().count());
    }
}
