//! What a node's endpoint says and takes about upgrades, under the names of this side, which asks many nodes.

pub use contract::kubernetes_upgrade::{Request as KubernetesRequest, State as KubernetesUpgrade};
pub use contract::node::{Etcd, Good, Kubernetes, Member, Node as Facts, RunningImage as Image, VirtualAddress};
pub use contract::swap::{Image as Build, Refused, Request as SwapRequest, Stage, State as Swap, Use};
