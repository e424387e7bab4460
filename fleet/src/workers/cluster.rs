//! What is asked of a tenant's Kubernetes API for its workers. Knows nothing of VMs.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use async_trait::async_trait;
use contract::bios_uuid::BiosUuid;
use contract::minor::Minor;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::token::Token;

/// A node as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSeen {
    pub name: String,
    pub uid: String,
    /// What the kubelet says it runs on, such as `vsphere://` and a BIOS UUID, as each worker's does; empty if it says nothing.
    pub provider: String,
    /// Whether its kubelet says that it is ready, and said so lately.
    pub ready: bool,
    /// Whether it takes no new pods.
    pub cordoned: bool,
    /// The address that the cluster knows it by, once its kubelet has said one.
    #[serde(default)]
    pub address: Option<Ipv4Addr>,
    pub excluded: bool,
    pub control: bool,
    /// Version of its kubelet, such as `v1.36.2`; empty if it says nothing.
    pub kubelet: String,
    /// When its kubelet last said whether it is ready, in the API's words; empty if it never did.
    pub heard: String,
}

impl NodeSeen {
    /// Whether the node may run in the VM that the hypervisor shows with this BIOS UUID. The ID of a node never changes, and
    /// an image up to 0.1 gave it in the other order of bytes.
    pub fn runs_in(&self, vm: Uuid) -> bool {
        BiosUuid::of_provider_id(&self.provider) == Some(vm.into())
    }

    /// The minor of its kubelet; none if it says nothing.
    pub fn minor(&self) -> Option<Minor> {
        Minor::of(self.kubelet.trim_start_matches('v'))
    }
}

/// A pod on a node that is to be emptied. Pods that stay with their node are not among them: those of DaemonSets, static
/// ones, and those that have ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodSeen {
    pub namespace: String,
    pub name: String,
    /// The object's UID: another pod of the same name is another pod.
    pub uid: String,
    pub ending: bool,
    /// Whether it has no controller: nobody starts it elsewhere.
    pub bare: bool,
}

impl PodSeen {
    /// Its namespace and its name.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// It was told to end, or is gone.
    Going,
    /// It may not go now, in the API's words: a PodDisruptionBudget, or a webhook that denies it. That says nothing of others.
    Blocked(String),
}

/// A cluster with workers. Each request has ended, one way or the other, within [`crate::lease::MARGIN`].
#[async_trait]
pub trait Cluster: Send + Sync {
    /// All nodes.
    async fn nodes(&self) -> anyhow::Result<Vec<NodeSeen>>;

    /// The pods that have to move away before a node may go.
    async fn pods(&self, node: &str) -> anyhow::Result<Vec<PodSeen>>;

    /// The claims whose volumes are kept on one of these nodes and nowhere else, as `namespace/name`, by node.
    async fn local_claims(&self, nodes: &[String]) -> anyhow::Result<BTreeMap<String, Vec<String>>>;

    /// The services whose addresses a node answers for, as `namespace/name`; none where nobody says so.
    async fn announced(&self, node: &str) -> anyhow::Result<Vec<String>>;

    /// The keys that control nodes have let in last by the names of these nodes, as far as they note them and for these objects, by
    /// name: each as the VM says it that is the node ([`contract::statement::Statement::key`]).
    async fn let_in(&self, nodes: &[&NodeSeen]) -> anyhow::Result<BTreeMap<String, String>>;

    /// Makes a join token that may be used once it is there. One of the same identifier stays as it is.
    ///
    /// # Errors
    /// When it is not certain that it was made.
    async fn add_token(&self, token: &Token) -> anyhow::Result<()>;

    /// Removes a join token, if it is there: nobody joins with it from now on.
    ///
    /// # Errors
    /// When it may still be there.
    async fn remove_token(&self, id: &str) -> anyhow::Result<()>;

    /// Lets a node take no new pods, and leave the addresses of services to others.
    ///
    /// # Errors
    /// When it is not certain that it does.
    async fn cordon(&self, node: &NodeSeen) -> anyhow::Result<()>;

    /// Lets a pod move away, if its PodDisruptionBudgets and the API's webhooks permit it.
    ///
    /// # Errors
    /// When the API does not answer, or refuses for a reason that is not the pod's.
    async fn evict(&self, pod: &PodSeen) -> anyhow::Result<Evicted>;

    /// Removes a node that was seen, and no other one of its name.
    ///
    /// # Errors
    /// When it may still be there.
    async fn delete_node(&self, node: &NodeSeen) -> anyhow::Result<()>;

    /// Lets control nodes forget whom they have let in by a name: nobody makes a node by it from now on without another token, and
    /// one that is there is a stranger to them, whom they name and give no certificate.
    ///
    /// # Errors
    /// When they may still know him.
    async fn release_name(&self, name: &str) -> anyhow::Result<()>;
}
