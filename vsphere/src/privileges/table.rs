//! The privileges that the calls of this crate need which a deployment makes. VMs are taken out of the inventory by nobody but tests.
//!
//! Source: the required privileges of each method in the vSphere Web Services API reference. Of `CloneVM_Task`: a VM from a template takes
//! `DeployTemplate` and no `Clone`, which is for a VM from a VM. Of an OVF property (`VAppPropertyInfo`): `value` takes `InstanceConfig`, and each
//! other field `ApplicationConfig`. `System.View`, `System.Read` and
//! `System.Anonymous` are in every role, and are no rows: `System.Read` is needed on more objects than these, on hosts and on switches of
//! distributed port groups, where [`crate::Error::Unreadable`] names it.

/// On which objects a privilege is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum On {
    /// The folder that VMs are put into, and so the VMs in it.
    Folder,
    /// The folder in which folders for clusters are made.
    ClustersFolder,
    /// Each datastore that VMs or files are put onto.
    Datastore,
    /// Each network that a VM is on.
    Network,
    /// The resource pool.
    Pool,
    /// The cluster.
    Cluster,
    /// The root of the inventory, where a storage policy is named ("Profile-driven Storage Privileges" in vSphere Security).
    Root,
}

/// A privilege, and what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Privilege {
    /// Its identifier.
    pub id: &'static str,
    /// On what.
    pub on: On,
    /// What cannot be done without it.
    pub purpose: &'static str,
}

macro_rules! privileges {
    ($($on:ident $id:literal $purpose:literal;)*) => {
        /// All that are needed.
        pub const PRIVILEGES: &[Privilege] = &[$(Privilege { id: $id, on: On::$on, purpose: $purpose }),*];
    };
}

/// Privileges without which nobody is refused: nothing fails for the want of them, or what a person may ask for later.
///
/// Source: `Task.CancelTask` in the vSphere Web Services API reference, which makes no exception for who has begun the task; "Global
/// Privileges" in vSphere Security: on the inventory object related to the task. `VirtualMachineConfigSpec.name` for the other one.
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

/// The privileges of a role, those of [`WISHED`] among them, each once, one a line: what `govc role.create NAME $(cat FILE)` takes, and PowerCLI's
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
    fn no_row_is_there_twice() {
        let all = || PRIVILEGES.iter().chain(WISHED);
        let mut rows: Vec<(On, &str)> = all().map(|privilege| (privilege.on, privilege.id)).collect();
        rows.sort_unstable();
        rows.dedup();
        assert_eq!(rows.len(), all().count());
    }
}
