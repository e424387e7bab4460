//! Checks that one controller of tenant clusters leads. The leader renews a Lease every few seconds. The number of controllers
//! that run does not count: while a node is off or swapped, another one leads.

use std::time::{Duration, SystemTime};

use contract::codes;
use contract::finding::{Finding, Findings};
use serde_json::{Value, json};

use crate::cluster::addons::CONTROLLER;
use crate::cluster::kubernetes::api::Api;
use crate::status;

/// Longer than pods take to start on a slow node, and than a new leader takes to follow one that died.
const PATIENCE: Duration = Duration::from_secs(5 * 60);

pub(super) fn look(api: &Api) -> anyhow::Result<Findings> {
    let of = |version: &str, kind: &str| {
        let metadata = json!({"namespace": "kaas-system", "name": "kaas-controller"});
        api.like(&json!({"apiVersion": version, "kind": kind, "metadata": metadata}))
    };
    // The controllers use the Lease of that name (`controller/src/leadership/lease.rs`).
    let (lease, pods) = (of("coordination.k8s.io/v1", "Lease")?, of("apps/v1", "DaemonSet")?);
    let up = Duration::from_secs(status::since_power_on().unwrap_or_default());
    Ok(judge(lease.as_ref(), pods.as_ref(), up, SystemTime::now()).into())
}

/// Reports that none leads, once the Lease was not renewed for [`PATIENCE`]. Pods that were just made, and those of a node that
/// was just powered on, may still be starting. Missing pods are reported by the part that applies them.
fn judge(lease: Option<&Value>, pods: Option<&Value>, up: Duration, now: SystemTime) -> Option<Finding> {
    let time = |value: &Value| humantime::parse_rfc3339(value.as_str()?).ok();
    // A clock that is behind makes it shorter.
    let long = |since: SystemTime| now.duration_since(since).is_ok_and(|gone| gone >= PATIENCE);
    let made = time(&pods?["metadata"]["creationTimestamp"])?;
    let said = lease.and_then(|lease| time(&lease["spec"]["renewTime"]));
    if up < PATIENCE || !long(made) || said.is_some_and(|said| !long(said)) {
        return None;
    }
    let seen = match said {
        Some(said) => format!("no controller leads since {}", humantime::format_rfc3339_seconds(said)),
        None => "no controller has led yet".to_owned(),
    };
    Some(codes::ADD_ON_NOT_READY.finding(
        CONTROLLER,
        seen,
        "Tenant clusters run on, and none is made, changed or removed. Look why: `kubectl --namespace=kaas-system describe pods`, \
         and `kubectl --namespace=kaas-system logs daemonset/kaas-controller`",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_without_renewals_becomes_a_finding() {
        let minute = |minutes: u64| Duration::from_secs(60 * minutes);
        let now = humantime::parse_rfc3339("2026-11-26T10:00:00Z").unwrap();
        let pods = |made: &str| Some(json!({"metadata": {"creationTimestamp": made}}));
        let lease = |renewed: &str| Some(json!({"spec": {"renewTime": renewed}}));
        let old = "2026-11-26T09:00:00Z";
        for (lease, pods, up, expected) in [
            (lease("2026-11-26T09:59:58.123456Z"), pods(old), minute(60), None),
            // Another clock is ahead.
            (lease("2026-11-26T10:09:00.000000Z"), pods(old), minute(60), None),
            (
                lease("2026-11-26T09:54:00.000000Z"),
                pods(old),
                minute(60),
                Some("no controller leads since 2026-11-26T09:54:00Z"),
            ),
            (lease("2026-11-26T09:56:00.000000Z"), pods(old), minute(60), None),
            // The whole cluster was off.
            (lease("2026-11-20T09:00:00.000000Z"), pods(old), minute(4), None),
            (
                lease("2026-11-20T09:00:00.000000Z"),
                pods(old),
                minute(5),
                Some("no controller leads since 2026-11-20T09:00:00Z"),
            ),
            (None, pods(old), minute(60), Some("no controller has led yet")),
            (Some(json!({"spec": {}})), pods(old), minute(60), Some("no controller has led yet")),
            (None, pods("2026-11-26T09:56:00Z"), minute(60), None),
            (None, None, minute(60), None),
        ] {
            let found = judge(lease.as_ref(), pods.as_ref(), up, now);
            assert_eq!(found.map(|finding| finding.seen).as_deref(), expected, "{lease:?} {pods:?} {up:?}");
        }
    }
}
