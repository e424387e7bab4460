//! Why nothing is begun of a cluster's control nodes, and what is under way rests where no node is away: somebody has paused it, or the
//! control cluster itself is being changed. Pure.

use fleet::upgrade::Direction;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use super::swap_progress::{Stage, SwapProgress};
use crate::objects::{OperationReason, TenantCluster};

/// The label of control nodes (Kubernetes, "Well-Known Labels, Annotations and Taints").
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// How it begins for people why something rests.
const PAUSED: &str = "the cluster is paused";
const CHANGED: &str = "the control cluster is being changed";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PauseReason {
    /// A person has paused the cluster.
    Paused,
    /// The control cluster is being changed; by what that is seen.
    ControlCluster(String),
}

impl PauseReason {
    /// Why a cluster rests, if it does. `control_cluster` is by what a change of the control cluster is seen.
    pub fn of(cluster: &TenantCluster, control_cluster: Option<String>) -> Option<Self> {
        if cluster.spec.paused { Some(Self::Paused) } else { control_cluster.map(Self::ControlCluster) }
    }

    /// The same as an Operation has it.
    pub fn reason(&self) -> OperationReason {
        match self {
            Self::Paused => OperationReason::Paused,
            Self::ControlCluster(_) => OperationReason::ControlClusterChanges,
        }
    }

    /// The same for people.
    pub fn words(&self) -> String {
        match self {
            Self::Paused => PAUSED.to_owned(),
            Self::ControlCluster(why) => format!("{CHANGED}, and this goes on afterwards: {why}"),
        }
    }

    /// Why what is asked of an Operation is refused meanwhile: it would be done later, when somebody else may have said that it goes on.
    /// `back` is what is to be named in the spec, and where, by who wants to go back: that is heard before anything else afterwards.
    pub fn refuses(&self, back: Option<&str>) -> String {
        let refused = format!("{}; ask for it once that is over", self.words());
        match back {
            Some(back) => format!("{refused}, or name {back} now: then it goes back first"),
            None => refused,
        }
    }
}

/// Whether something that was refused in these words still is: for the same that keeps it now, or for nothing that ever kept it.
pub fn is_still(refused: &str, rest: Option<&PauseReason>) -> bool {
    let by = [PAUSED, CHANGED].map(|opening| refused.starts_with(opening));
    by == [matches!(rest, Some(PauseReason::Paused)), matches!(rest, Some(PauseReason::ControlCluster(_)))]
}

/// By what it is seen that the control cluster is being changed, and what a person does where it is not: the controller that leads is of
/// another build than that which the cluster's kinds are of (`is_marked`), or a control node takes no pods, as while its image is swapped.
/// None if nothing is seen of it.
pub fn control_cluster(is_marked: bool, nodes: &[Node]) -> Option<String> {
    if !is_marked {
        return Some("the image that the controller is of is not committed: commit it, or take it back".to_owned());
    }
    let is_cordoned = |node: &&Node| {
        let is_control = node.labels().contains_key(CONTROL_PLANE);
        is_control && node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
    };
    let node = nodes.iter().find(is_cordoned)?;
    Some(format!("its control node {} takes no pods: uncordon it, or replace it if it is lost", node.name_any()))
}

/// Whether no node is away as long as a swap takes no step.
pub fn is_pausable(swapping: &SwapProgress) -> bool {
    swapping.stage != Stage::Goes || (swapping.direction == Direction::Forward && !swapping.is_away)
}

/// Why the conditions of a swap's Operation are as they are, in a cluster that may rest.
pub fn swap_reasons(rest: Option<&PauseReason>, swapping: &SwapProgress) -> [(OperationReason, String); 2] {
    let [progressing, succeeded] = swapping.reasons();
    // One whose node is back waits for a person, whether or not the cluster rests.
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
    fn a_control_cluster_is_being_changed_while_a_control_node_takes_no_pods_or_its_image_is_not_committed() {
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
    fn what_was_refused_for_a_rest_says_nothing_any_more_once_that_is_over() {
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
