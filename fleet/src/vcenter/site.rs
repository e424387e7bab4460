//! Where the VMs of a deployment are, as a person writes it.

use vsphere::RestartPriority;

/// How a VM's system disk is made from its template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clones {
    /// As a difference to the template's, which has to stay for as long as the VM does: made in seconds.
    #[default]
    Linked,
    Full,
}

/// Where the VMs of a deployment are. All but the data center are paths below it, as vSphere Client shows them; in names `/`,
/// `\` and `%` are written `%2f`, `%5c` and `%25`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// The data center: its inventory path, such as `DC1` or `folder/DC1`.
    pub datacenter: String,
    /// The folder that VMs are put into, such as `clusters/control`; of VMs and templates. Best one of the deployment's own: each
    /// look reads a little of each VM that is directly in it.
    pub folder: String,
    /// Folders that VMs of the deployment may be in as well, because they were adopted there or are to be put there.
    pub other_folders: Vec<String>,
    /// The folder of the templates, which deployments may share; that of the VMs if nothing is said.
    pub templates: Option<String>,
    /// The resource pool, such as `cluster/Resources/pool`; of a cluster or host by itself its topmost one.
    pub resource_pool: String,
    /// The datastore of what nothing else is said of.
    pub datastore: String,
    /// The networks that VMs are put onto: what may be done with them is checked, and templates are on the first one.
    pub networks: Vec<String>,
    /// How system disks are made.
    pub clones: Clones,
    /// Whether a rule of the cluster keeps the VMs on different hosts, as far as there are as many.
    pub different_hosts: bool,
    /// When vSphere HA starts the VMs after their host has failed, if not as the cluster says for all. With this or with
    /// `different_hosts` it starts none that was disconnected.
    pub restart: Option<RestartPriority>,
    /// The storage policy of new VMs and of their disks, by its name; the datastore's default if nothing is said. Disks that are handed on,
    /// and templates, keep what they have.
    pub storage_policy: Option<String>,
    /// The key of the extension that vSphere Client names as the one whose the VMs are, if one is registered for them.
    pub managed_by: Option<String>,
}
