//! Requests to a tenant cluster's Kubernetes API for its workers. Knows nothing of VMs.

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
    /// The provider ID, such as `vsphere://` and a BIOS UUID, as each worker's kubelet reports it. Empty if it reports none.
    pub provider: String,
    /// Whether its kubelet reported lately that it is ready.
    pub ready: bool,
    /// Whether it takes no new pods.
    pub cordoned: bool,
    /// The address that the cluster has for it, once its kubelet has reported one.
    #[serde(default)]
    pub address: Option<Ipv4Addr>,
    pub excluded: bool,
    pub control: bool,
    /// Version of its kubelet, such as `v1.36.2`. Empty if it reports none.
    pub kubelet: String,
    /// When its kubelet last reported whether it is ready, in the API's format. Empty if it never did.
    pub heard: String,
}

impl NodeSeen {
    /// Whether the node may run in the VM that the hypervisor shows with this BIOS UUID. The ID of a node never changes, and
    /// images up to 0.1 gave it in the other byte order.
    pub fn runs_in(&self, vm: Uuid) -> bool {
        BiosUuid::of_provider_id(&self.provider) == Some(vm.into())
    }

    /// The minor version of its kubelet. `None` if it reports none.
    pub fn minor(&self) -> Option<Minor> {
        Minor::of(self.kubelet.trim_start_matches('v'))
    }
}

/// A pod on a node that is to be drained. Without pods that stay with their node: those of DaemonSets, static ones, and those
/// that have ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodSeen {
    pub namespace: String,
    pub name: String,
    /// The object's UID: another pod of the same name is another pod.
    pub uid: String,
    pub ending: bool,
    /// Whether it has no controller that starts it elsewhere.
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
    /// It is ending, or is gone.
    Going,
    /// It may not go now, in the API's words: a PodDisruptionBudget, or a webhook that denies it. This says nothing of other
    /// pods.
    Blocked(String),
}

/// A change of the cluster. It may be made again.
#[derive(Clone, Copy, Debug)]
pub enum ClusterChange<'a> {
    /// Creates a join token that is valid once it exists. One with the same identifier stays as it is.
    AddToken(&'a Token),
    /// Removes the join token with this identifier, if it exists: no client joins with it from now on.
    RemoveToken(&'a str),
    /// Cordons a node, and moves the addresses of services to other nodes.
    Cordon(&'a NodeSeen),
    /// Removes a node that was seen, and no other one of its name.
    DeleteNode(&'a NodeSeen),
    /// Makes control-plane nodes forget the client that they admitted by a name. No client makes a node by that name without
    /// another token. An existing node of the name is unknown to them: they report it, and give it no certificate.
    ReleaseName(&'a str),
}

/// A cluster with workers. Each request ends within [`crate::lease::MARGIN`], with or without success.
#[async_trait]
pub trait Cluster: Send + Sync {
    async fn nodes(&self) -> anyhow::Result<Vec<NodeSeen>>;

    /// The pods that have to move before a node may be removed.
    async fn pods(&self, node: &str) -> anyhow::Result<Vec<PodSeen>>;

    /// The claims of volumes that exist only on one of these nodes, as `namespace/name`, by node.
    async fn local_claims(&self, nodes: &[String]) -> anyhow::Result<BTreeMap<String, Vec<String>>>;

    /// The services whose addresses a node answers for, as `namespace/name`. Empty if no speaker reports any.
    async fn announced(&self, node: &str) -> anyhow::Result<Vec<String>>;

    /// The keys that control-plane nodes admitted last by the names of these nodes, by name. Only those that they recorded for
    /// these node objects. Each has the format of the VM's statement ([`contract::statement::Statement::key`]).
    async fn let_in(&self, nodes: &[&NodeSeen]) -> anyhow::Result<BTreeMap<String, String>>;

    /// # Errors
    /// If it is not certain that the change was made.
    async fn change(&self, change: ClusterChange<'_>) -> anyhow::Result<()>;

    /// Evicts a pod, if its PodDisruptionBudgets and the API's webhooks permit it.
    ///
    /// # Errors
    /// If the API does not answer, or refuses for a reason that is not the pod's.
    async fn evict(&self, pod: &PodSeen) -> anyhow::Result<Evicted>;
}
