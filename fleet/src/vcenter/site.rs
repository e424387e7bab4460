//! The place of the VMs of a deployment, as the operator writes it.

use vsphere::RestartPriority;

/// How a VM's system disk is made from its template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clones {
    /// As a delta of the template's disk, which must stay as long as the VM does. Takes seconds.
    #[default]
    Linked,
    Full,
}

/// The place of the VMs of a deployment. All but the data center are paths below it, as vSphere Client shows them. In
/// names, `/`, `\` and `%` are written `%2f`, `%5c` and `%25`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// The data center: its inventory path, such as `DC1` or `folder/DC1`.
    pub datacenter: String,
    /// The folder of VMs for new VMs, such as `clusters/control`. A separate folder for the deployment is best: each
    /// look reads a little of each VM that is directly in it.
    pub folder: String,
    /// Other folders that may contain VMs of the deployment, because they were adopted there or a placement names them.
    pub other_folders: Vec<String>,
    /// The folder of the templates, which deployments may share. `None` means the folder of the VMs.
    pub templates: Option<String>,
    /// The resource pool, such as `cluster/Resources/pool`. A cluster or host means its top pool.
    pub resource_pool: String,
    /// The default datastore.
    pub datastore: String,
    /// The networks for VMs. Their privileges are checked, and templates are on the first one.
    pub networks: Vec<String>,
    /// How system disks are made.
    pub clones: Clones,
    /// Whether a rule of the cluster keeps the VMs on different hosts, as far as it has enough.
    pub different_hosts: bool,
    /// When vSphere HA restarts the VMs after a host failure, if not by the cluster's default. With this or with
    /// `different_hosts`, it restarts no disconnected VM.
    pub restart: Option<RestartPriority>,
    /// The name of the storage policy of new VMs and of their disks. `None` means the datastore's default. Moved disks
    /// and templates keep theirs.
    pub storage_policy: Option<String>,
    /// The key of the extension that vSphere Client shows as the manager of the VMs, if one is registered for them.
    pub managed_by: Option<String>,
}
