//! What a node's endpoint says and takes about image swaps: the agent's own types, under the names of this side, which
//! asks many nodes.

pub use agent::disk::ownership::{Image as Build, Use};
pub use agent::kubernetes::upgrade::wire::{Request as KubernetesRequest, State as KubernetesUpgrade};
pub use agent::swap::wire::{
    Etcd, Good, Kubernetes, Member, Node as Facts, Refused, Request as SwapRequest, RunningImage as Image, Stage,
    State as Swap, VirtualAddress,
};
