//! Swaps and minor versions, each from an observation to the next step.

mod begins;
mod beside;
mod open;
mod raises;

use fleet::upgrade::Request;
use serde_json::{Value, json};

use super::{Change, ObservedCluster};
use crate::decisions::fixture::{self, cluster, image, now};
use crate::decisions::pause_reason::PauseReason;
use crate::decisions::swap_progress::{SwapProgress, unsettled};
use crate::objects::{ControlPlaneSize, NodeImage, Operation, Resolved, TenantCluster, TenantClusterStatus, set};
use crate::records::fixture::plan;

pub(in crate::decisions) const FORMER: &str = "kaas-tenant-0.2.0";
pub(in crate::decisions) const NEW: &str = "kaas-tenant-0.3.0";
/// The wanted size of control-plane nodes.
const SIZE: ControlPlaneSize = ControlPlaneSize { processors: 2, memory_mib: 4096 };

/// A cluster on the former image whose spec names this one.
pub(in crate::decisions) fn names(wanted: Option<&str>) -> TenantCluster {
    let mut cluster = cluster();
    cluster.spec.image = wanted.map(str::to_owned);
    let image = image(FORMER, "0.2.0");
    let resolved = Resolved { image: Some(FORMER.to_owned()), digest: Some(image.spec.digest), ..Resolved::default() };
    cluster.status = Some(TenantClusterStatus { resolved: Some(resolved), ..TenantClusterStatus::default() });
    cluster
}

pub(in crate::decisions) fn images() -> Vec<NodeImage> {
    let mut new = image(NEW, "0.3.0");
    new.spec.digest = format!("sha256:{}", "0b".repeat(32));
    let status = new.status.as_mut().unwrap();
    (status.appliance, status.build) = (Some("kaas-tenant".to_owned()), Some("0b".repeat(16)));
    status.kubernetes.push("1.37".to_owned());
    vec![image(FORMER, "0.2.0"), new]
}

/// An Operation with these entries after its plan. Its status shows its progress.
pub(in crate::decisions) fn swap(entries: &[Value]) -> Operation {
    let mut operation = fixture::swap(plan(), entries);
    shows(&mut operation);
    operation
}

pub(in crate::decisions) fn shows(operation: &mut Operation) {
    let swapping = SwapProgress::of(operation).unwrap().unwrap();
    let status = operation.status.as_mut().unwrap();
    (status.step, status.outcome) = (swapping.step.clone(), swapping.ending().map(|it| it.words().to_owned()));
    for (reason, words) in swapping.reasons() {
        set(&mut status.conditions, reason, &words, 1, &now());
    }
}

pub(in crate::decisions) fn ended(outcome: &str) -> Vec<Value> {
    let done = |action: &str| json!({"event": "done", "action": action, "note": ""});
    vec![done("verify"), done("snapshot"), json!({"event": "ended", "outcome": outcome})]
}

pub(in crate::decisions) fn turned(direction: &str) -> Value {
    json!({"event": "direction-changed", "direction": direction, "code": "upgrade.asked", "reason": "asked"})
}

/// The entries after the plan of a swap that was withdrawn for another plan.
pub(in crate::decisions) fn withdrawn() -> Vec<Value> {
    let mut back = turned("back");
    back["code"] = json!("upgrade.withdrawn");
    [vec![back], ended("rolled-back")].concat()
}

/// The swap goes on with this request.
pub(in crate::decisions) fn go(request: Request) -> Change {
    Change::Go("shop-1".to_owned(), request)
}

fn next(cluster: &TenantCluster, operation: Option<&Operation>) -> Change {
    next_beside(cluster, operation, None)
}

/// As [`next`], during this change of the control cluster.
fn next_beside(cluster: &TenantCluster, operation: Option<&Operation>, change: Option<&str>) -> Change {
    let (images, rests) = (images(), PauseReason::of(cluster, change.map(str::to_owned)));
    let swaps = operation.map(std::slice::from_ref).unwrap_or_default();
    ObservedCluster { rests, ..observed(cluster, swaps, &images) }.next()
}

/// A cluster whose size is the wanted one, after these swaps in this order.
pub(in crate::decisions) fn observed<'a>(
    cluster: &'a TenantCluster,
    swaps: &'a [Operation],
    images: &'a [NodeImage],
) -> ObservedCluster<'a> {
    ObservedCluster {
        cluster,
        swap: swaps.last().map(|operation| (operation, SwapProgress::of(operation).unwrap().unwrap())),
        abandoned: unsettled(swaps),
        raise: None,
        images,
        minor: "1.36".parse().ok(),
        workers: &[],
        size: Ok(SIZE),
        room: None,
        plan_room: None,
        rests: PauseReason::of(cluster, None),
        has_drifted: false,
        now: now().0,
    }
}
