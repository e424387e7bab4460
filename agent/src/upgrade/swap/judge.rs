//! Decides whether a node may leave its work now, for a swap or an evacuation. The decision is pure; its input is collected
//! just before. An unknown state counts as unhealthy.

use contract::codes;
use contract::swap::{Rejection, Request, Stage, SwapState};
use contract::version::is_older;

use super::context::SwapContext;
use super::preparation_record::{PreparationRecord, Purpose};
use super::quorum;

#[derive(Clone, Debug)]
pub(super) struct SwapPreconditions {
    /// Whether the node has formed and Kubernetes reports it ready.
    ready: bool,
    quorum: Result<(), String>,
    /// The other nodes that are being swapped or upgraded, or why they could not be looked up.
    others: Result<Vec<String>, String>,
}

impl SwapPreconditions {
    /// Collects the preconditions. Members are asked in parallel.
    pub(super) fn look(context: &SwapContext) -> Self {
        let status = context.reporter.status();
        Self {
            ready: status.phase == crate::status::Phase::Done && status.is_ready(),
            quorum: quorum::look(context),
            others: context.others_under_way().map_err(|error| format!("{error:#}")),
        }
    }
}

pub(super) fn judge(seen: &SwapPreconditions) -> Result<(), Rejection> {
    if !seen.ready {
        let reason = "this node is not ready: `kaas-agent status` says why";
        return Err(Rejection::of(&codes::SWAP_NOT_READY, reason));
    }
    seen.quorum.clone().map_err(|reason| Rejection::of(&codes::SWAP_QUORUM, reason))?;
    match &seen.others {
        Ok(others) => match others.first() {
            Some(other) => {
                let reason = format!("{other} is being swapped: finish or cancel that first");
                Err(Rejection::of(&codes::SWAP_ANOTHER, reason))
            }
            None => Ok(()),
        },
        Err(error) => {
            let reason = format!("whether another node is being swapped cannot be known: {error}");
            Err(Rejection::of(&codes::SWAP_ANOTHER, reason))
        }
    }
}

/// Decides whether the requested image may follow this one, of version `own`.
pub(super) fn version(own: &str, request: &Request) -> Result<(), Rejection> {
    if is_older(&request.to.version, own) && !request.downgrade {
        return Err(Rejection::of(
            &codes::IMAGE_DOWNGRADE,
            format!(
                "image {} is older than {own}, which runs here; if that is meant, ask for a downgrade",
                request.to.version
            ),
        ));
    }
    Ok(())
}

/// The meaning of a request for `purpose` next to the current state. Returns the stage if it is the same request, or `None` if
/// it may begin.
pub(super) fn repeated(
    taken: Option<&SwapState>,
    leaving: Option<&PreparationRecord>,
    purpose: &Purpose,
) -> Result<Option<Stage>, Rejection> {
    match leaving.filter(|leaving| leaving.stage.is_under_way()) {
        Some(leaving) if leaving.purpose.is_same_request(purpose) => return Ok(Some(leaving.stage)),
        Some(leaving) => {
            let reason = format!("{} of this node is under way: cancel it first", leaving.purpose);
            return Err(Rejection::of(&codes::SWAP_ANOTHER, reason));
        }
        None => {}
    }
    match (taken, purpose) {
        (Some(state), Purpose::Swap(_)) => Err(Rejection::of(
            &codes::SWAP_TAKEN,
            format!("the swap {} is not committed yet: commit it, or give the disk back", state.id),
        )),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::swap::{EvacuationRequest, Image, Losses, VmImage};
    use uuid::Uuid;

    fn seen() -> SwapPreconditions {
        SwapPreconditions { ready: true, quorum: Ok(()), others: Ok(vec![]) }
    }

    fn request(id: u128, version: &str) -> Request {
        let to = Image { version: version.into(), build: "b".into() };
        Request { id: Uuid::from_u128(id), to, drain_seconds: 1, downgrade: false, publisher: None }
    }

    #[test]
    fn each_unmet_precondition_has_its_code() {
        assert_eq!(judge(&seen()), Ok(()));
        let cases = [
            (SwapPreconditions { ready: false, ..seen() }, "swap.not-ready", "not ready"),
            (
                SwapPreconditions { quorum: Err("cp3 has no etcd member".into()), ..seen() },
                "swap.quorum",
                "cp3 has no etcd member",
            ),
            (SwapPreconditions { others: Ok(vec!["cp2".into()]), ..seen() }, "swap.another", "cp2 is being swapped"),
            (SwapPreconditions { others: Err("no answer".into()), ..seen() }, "swap.another", "no answer"),
        ];
        for (seen, code, words) in cases {
            let refused = judge(&seen).unwrap_err();
            assert!(refused.code == code && refused.reason.contains(words), "{refused}");
        }
    }

    #[test]
    fn an_older_image_is_asked_for_or_refused() {
        assert_eq!(version("1.0.0", &request(1, "1.0.0")), Ok(()));
        assert_eq!(version("1.0.0", &Request { downgrade: true, ..request(1, "0.9.0") }), Ok(()));
        let refused = version("1.0.0", &request(1, "0.9.0")).unwrap_err();
        assert!(refused.code == "image.downgrade" && refused.reason.contains("older than 1.0.0"), "{refused}");
    }

    #[test]
    fn asking_again_changes_nothing_and_another_one_waits() {
        let swap = |id, version: &str| Purpose::Swap(request(id, version));
        let evacuation = |id| Purpose::Evacuation(EvacuationRequest { id: Uuid::from_u128(id), drain_seconds: 1 });
        for purpose in [swap(1, "2"), evacuation(1)] {
            assert_eq!(repeated(None, None, &purpose), Ok(None));
            let at = |stage| PreparationRecord { stage, ..PreparationRecord::begun(purpose.clone()) };
            for stage in [Stage::Judging, Stage::Yielding, Stage::MovingLeader, Stage::Draining, Stage::Prepared] {
                assert_eq!(repeated(None, Some(&at(stage)), &purpose), Ok(Some(stage)));
                for other in [swap(2, "2"), swap(1, "3"), evacuation(2)] {
                    assert_eq!(repeated(None, Some(&at(stage)), &other).unwrap_err().code, "swap.another");
                }
            }
            assert_eq!(repeated(None, Some(&at(Stage::Failed)), &purpose), Ok(None));
        }
        // A VM that has taken another one's disk can be evacuated, but not swapped again.
        let taken = SwapState {
            id: Uuid::from_u128(1),
            stage: Stage::Taken,
            error: None,
            code: None,
            losses: Losses::default(),
            from: VmImage { vm: None, version: "1".into(), build: "a".into() },
            to: None,
        };
        assert_eq!(repeated(Some(&taken), None, &swap(1, "2")).unwrap_err().code, "swap.taken");
        assert_eq!(repeated(Some(&taken), None, &evacuation(1)), Ok(None));
    }
}
