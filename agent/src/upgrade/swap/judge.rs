//! Whether a swap may be prepared now. The decision is pure; what it goes by is
//! looked up just before.

use std::time::Duration;

use contract::codes;
use contract::swap::{Refused, Request, Stage, SwapState};
use contract::version::is_older;

use super::context::SwapContext;
use crate::cluster::etcd::member;
use crate::host::at_once;

/// How long a member may take to answer, times the timeout factor.
const ASKING: Duration = Duration::from_secs(5);

/// What the decision goes by.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// This image's version.
    own_version: String,
    /// The request's.
    to_version: String,
    downgrade: bool,
    /// Whether the node has formed and Kubernetes calls it ready.
    ready: bool,
    /// Whether the own etcd member is well.
    healthy: bool,
    /// The other control nodes whose members are not.
    unhealthy: Vec<String>,
    /// Another node that is being swapped.
    other: Option<String>,
    /// Why the other nodes' swaps could not be looked up.
    unknown: Option<String>,
}

impl Seen {
    /// Looks. Members are asked all at once.
    pub(super) fn look(context: &SwapContext, request: &Request) -> Self {
        let (config, pki) = (&context.config, &context.pki);
        let timeout = config.timeout(ASKING);
        let nodes = &config.cluster.control_nodes;
        let asked = at_once::ask(nodes, |node| member::healthy(node, pki, timeout));
        let own = &config.node.name;
        let others = context.others_under_way();
        let status = context.reporter.status();
        Self {
            own_version: context.image.version.clone(),
            to_version: request.to.version.clone(),
            downgrade: request.downgrade,
            ready: status.phase == crate::status::Phase::Done && status.is_ready(),
            healthy: asked.iter().any(|(node, healthy)| node.name == *own && *healthy),
            unhealthy: asked
                .iter()
                .filter(|(node, well)| node.name != *own && !well)
                .map(|(node, _)| node.name.clone())
                .collect(),
            other: others.as_ref().ok().and_then(|others| others.first().cloned()),
            unknown: others.err().map(|error| format!("{error:#}")),
        }
    }
}

/// Decides whether this node may be prepared for the swap.
pub(super) fn judge(seen: &Seen) -> Result<(), Refused> {
    if is_older(&seen.to_version, &seen.own_version) && !seen.downgrade {
        return Err(Refused::of(
            &codes::IMAGE_DOWNGRADE,
            format!(
                "image {} is older than {}, which runs here; if that is meant, ask for a downgrade",
                seen.to_version, seen.own_version
            ),
        ));
    }
    if !seen.ready {
        let reason = "this node is not ready: `kaas-agent status` says why";
        return Err(Refused::of(&codes::SWAP_NOT_READY, reason));
    }
    if !seen.healthy {
        let reason = "this node's etcd member sees no leader or does not answer";
        return Err(Refused::of(&codes::SWAP_QUORUM, reason));
    }
    if !seen.unhealthy.is_empty() {
        let reason = format!(
            "the etcd member of {} is not healthy: with this node off, etcd would lose its quorum",
            seen.unhealthy.join(" and ")
        );
        return Err(Refused::of(&codes::SWAP_QUORUM, reason));
    }
    if let Some(other) = &seen.other {
        let reason = format!("{other} is being swapped: finish or cancel that first");
        return Err(Refused::of(&codes::SWAP_ANOTHER, reason));
    }
    match &seen.unknown {
        Some(error) => {
            let reason = format!("whether another node is being swapped cannot be known: {error}");
            Err(Refused::of(&codes::SWAP_ANOTHER, reason))
        }
        None => Ok(()),
    }
}

/// What a request means beside the swap that there is: how far it is if it is the same
/// one, or none if a new one may begin.
pub(super) fn repeated(state: Option<&SwapState>, request: &Request) -> Result<Option<Stage>, Refused> {
    let Some(state) = state else { return Ok(None) };
    match state.stage {
        Stage::Taken => Err(Refused::of(
            &codes::SWAP_TAKEN,
            format!("the swap {} is not committed yet: commit it, or give the disk back", state.id),
        )),
        Stage::Failed => Ok(None),
        stage if state.id == request.id && state.to.as_ref() == Some(&request.to) => Ok(Some(stage)),
        stage => {
            debug_assert!(stage.is_under_way());
            Err(Refused::of(
                &codes::SWAP_ANOTHER,
                format!("the swap {} of this node is under way: cancel it first", state.id),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::swap::{Image, Use};
    use uuid::Uuid;

    fn seen() -> Seen {
        Seen {
            own_version: "1.0.0".into(),
            to_version: "2.0.0".into(),
            downgrade: false,
            ready: true,
            healthy: true,
            unhealthy: vec![],
            other: None,
            unknown: None,
        }
    }

    #[test]
    fn what_stands_against_a_swap_is_named_with_its_code() {
        assert_eq!(judge(&seen()), Ok(()));
        assert_eq!(judge(&Seen { to_version: "1.0.0".into(), ..seen() }), Ok(()));
        assert_eq!(judge(&Seen { to_version: "0.9.0".into(), downgrade: true, ..seen() }), Ok(()));
        let cases = [
            (Seen { to_version: "0.9.0".into(), ..seen() }, "image.downgrade", "older than 1.0.0"),
            (Seen { ready: false, ..seen() }, "swap.not-ready", "not ready"),
            (Seen { healthy: false, ..seen() }, "swap.quorum", "this node's etcd member"),
            (Seen { unhealthy: vec!["cp3".into()], ..seen() }, "swap.quorum", "member of cp3"),
            (Seen { other: Some("cp2".into()), ..seen() }, "swap.another", "cp2 is being swapped"),
            (Seen { unknown: Some("no answer".into()), ..seen() }, "swap.another", "no answer"),
        ];
        for (seen, code, words) in cases {
            let refused = judge(&seen).unwrap_err();
            assert!(refused.code == code && refused.reason.contains(words), "{refused}");
        }
    }

    #[test]
    fn asking_again_changes_nothing_and_another_swap_waits() {
        let image = |version: &str| Image { version: version.into(), build: "b".into() };
        let request = |id, version: &str| Request {
            id: Uuid::from_u128(id),
            to: image(version),
            drain_seconds: 1,
            downgrade: false,
            publisher: None,
        };
        let state = |stage| SwapState {
            id: Uuid::from_u128(1),
            stage,
            error: None,
            from: Use { vm: None, version: "1".into(), build: "a".into() },
            to: Some(image("2")),
        };
        assert_eq!(repeated(None, &request(1, "2")), Ok(None));
        for stage in [Stage::Judging, Stage::Yielding, Stage::MovingLeader, Stage::Draining, Stage::Prepared] {
            assert_eq!(repeated(Some(&state(stage)), &request(1, "2")), Ok(Some(stage)));
            for other in [request(2, "2"), request(1, "3")] {
                assert_eq!(repeated(Some(&state(stage)), &other).unwrap_err().code, "swap.another");
            }
        }
        assert_eq!(repeated(Some(&state(Stage::Failed)), &request(1, "2")), Ok(None));
        assert_eq!(repeated(Some(&state(Stage::Taken)), &request(1, "2")).unwrap_err().code, "swap.taken");
    }
}
