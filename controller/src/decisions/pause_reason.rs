//! Why no change of a cluster's control-plane nodes begins, and a running one pauses at a point without a missing node. Either
//! the cluster is paused, or the control cluster itself is being changed. Pure.

use fleet::upgrade::Direction;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use super::swap_progress::{Stage, SwapProgress};
use crate::objects::{OperationReason, TenantCluster};

/// The label of control-plane nodes (Kubernetes, "Well-Known Labels, Annotations and Taints").
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// How the messages of the reasons begin.
const PAUSED: &str = "the cluster is paused";
const CHANGED: &str = "the control cluster is being changed";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PauseReason {
    /// The cluster's `paused` is set.
    Paused,
    /// The control cluster is being changed; the text has the sign of it.
    ControlCluster(String),
}

impl PauseReason {
    /// Why a cluster pauses, if it does. `control_cluster` is the sign of a change of the control cluster.
    pub fn of(cluster: &TenantCluster, control_cluster: Option<String>) -> Option<Self> {
        if cluster.spec.paused { Some(Self::Paused) } else { control_cluster.map(Self::ControlCluster) }
    }

    /// The reason for the condition of an Operation.
    pub fn reason(&self) -> OperationReason {
        match self {
            Self::Paused => OperationReason::Paused,
            Self::ControlCluster(_) => OperationReason::ControlClusterChanges,
        }
    }

    pub fn words(&self) -> String {
        match self {
            Self::Paused => PAUSED.to_owned(),
            Self::ControlCluster(why) => format!("{CHANGED}, and this continues afterwards: {why}"),
        }
    }

    /// The answer to a request on a paused Operation, which is rejected: it would otherwise run later, when the pause ends.
    /// `back` is the field of the spec, and its value, that start a rollback. After the pause a rollback comes first.
    pub fn refuses(&self, back: Option<&str>) -> String {
        let refused = format!("{}; ask for it once that is over", self.words());
        match back {
            Some(back) => format!("{refused}, or name {back} now: then the rollback comes first"),
            None => refused,
        }
    }
}

/// Whether the message of a rejected request still applies. A rejection for a pause applies during this pause. Another rejection
/// applies while nothing is paused.
pub fn is_still(refused: &str, rest: Option<&PauseReason>) -> bool {
    let by = [PAUSED, CHANGED].map(|opening| refused.starts_with(opening));
    by == [matches!(rest, Some(PauseReason::Paused)), matches!(rest, Some(PauseReason::ControlCluster(_)))]
}

/// The sign of a change of the control cluster, and what the operator can do if nothing changes it. `None` without a sign. Either
/// the controller that leads has another build than the one that installed the cluster's kinds (`is_marked`). Or a control-plane
/// node takes no pods, as during its image swap.
pub fn control_cluster(is_marked: bool, nodes: &[Node]) -> Option<String> {
    if !is_marked {
        return Some("the image of the controller is not committed: commit it, or roll back".to_owned());
    }
    let is_cordoned = |node: &&Node| {
        let is_control = node.labels().contains_key(CONTROL_PLANE);
        is_control && node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
    };
    let node = nodes.iter().find(is_cordoned)?;
    Some(format!("its control-plane node {} takes no pods: uncordon it, or replace it if it is lost", node.name_any()))
}

/// Whether no node is missing as long as the swap runs no step.
pub fn is_pausable(swapping: &SwapProgress) -> bool {
    swapping.stage != Stage::Goes || (swapping.direction == Direction::Forward && !swapping.is_away)
}

/// The reasons of a swap's Operation in a cluster that may be paused.
pub fn swap_reasons(rest: Option<&PauseReason>, swapping: &SwapProgress) -> [(OperationReason, String); 2] {
    let [progressing, succeeded] = swapping.reasons();
    // A swap with a rolled-back node waits for the operator, paused or not.
    let rests = matches!(swapping.stage, Stage::Goes | Stage::Upgraded) && is_pausable(swapping);
    match rest.filter(|_| rests) {
        Some(rest) => [(rest.reason(), swapping.step.clone().unwrap_or_default()), succeeded],
        None => [progressing, succeeded],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decisions::fixture::cluster;

    #[test]
    fn uncommitted_image_or_cordoned_node_marks_a_change() {
        let node = |name: &str, control: bool, unschedulable: Option<bool>| {
            let mut node = Node::default();
            node.metadata.name = Some(name.to_owned());
            node.metadata.labels = control.then(|| [(CONTROL_PLANE.to_owned(), String::new())].into());
            node.spec = Some(k8s_openapi::api::core::v1::NodeSpec { unschedulable, ..Default::default() });
            node
        };
        let well = [node("cp1", true, None), node("cp2", true, Some(false)), node("w1", false, Some(true))];
        assert_eq!(control_cluster(true, &well), None, "a worker is nobody's matter");
        assert!(control_cluster(false, &well).is_some());
        let swapped = [node("cp1", true, None), node("cp2", true, Some(true))];
        assert!(control_cluster(true, &swapped).unwrap().contains("cp2"));
        let mut paused = cluster();
        paused.spec.paused = true;
        assert_eq!(
            PauseReason::of(&paused, Some("x".to_owned())),
            Some(PauseReason::Paused),
            "who unpauses it is told the other"
        );
        assert_eq!(PauseReason::of(&cluster(), None), None);
    }

    #[test]
    fn rejection_for_a_pause_ends_with_the_pause() {
        let beside = |why: &str| PauseReason::ControlCluster(why.to_owned());
        let refused = [PauseReason::Paused.refuses(Some("former")), beside("cp1").refuses(None), "too far".to_owned()];
        let rests = [Some(PauseReason::Paused), Some(beside("cp2")), None];
        for (at, words) in refused.iter().enumerate() {
            for (now, rest) in rests.iter().enumerate() {
                assert_eq!(is_still(words, rest.as_ref()), at == now, "{words}: {rest:?}");
            }
        }
    }
}
