//! Decides whether the node may be upgraded to another minor version now. Pure.

use contract::codes::{self, Code};
use contract::minor::Minor;
use contract::swap::Rejection;

/// The oldest etcd that kubeadm supports (`MinExternalEtcdVersion`, `cmd/kubeadm/app/constants` of 1.36 and 1.37).
const OLDEST_ETCD: [u64; 3] = [3, 5, 24];

#[derive(Clone, Debug)]
pub(super) struct UpgradePreconditions {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) available: Vec<String>,
    /// Whether the node is ready and its boot is marked healthy.
    pub(super) ready: bool,
    /// A swap or an evacuation of this node that blocks the upgrade, in words.
    pub(super) swap: Option<String>,
    /// Other nodes that are being swapped or upgraded.
    pub(super) others: Result<Vec<String>, String>,
    /// Control-plane nodes that Kubernetes does not report ready.
    pub(super) not_ready: Result<Vec<String>, String>,
    /// Whether etcd can lose this node's member for a while.
    pub(super) quorum: Result<(), String>,
    /// Each control-plane node's version of etcd. `None` if its member is not healthy.
    pub(super) etcd: Vec<(String, Option<String>)>,
    /// APIs that `to` does not have and that clients use.
    pub(super) removed: Result<Vec<String>, String>,
}

/// Decides by all preconditions but kubeadm's preflight, which runs only if all others are met.
pub(super) fn judge(seen: &UpgradePreconditions) -> Result<(), Rejection> {
    version(seen)?;
    if !seen.ready {
        return refuse(
            &codes::KUBERNETES_NOT_READY,
            "this node is not ready, or its boot is not marked healthy yet; `kaas-agent status` says why",
        );
    }
    if let Some(swap) = &seen.swap {
        return refuse(&codes::KUBERNETES_SWAP_OPEN, format!("{swap}; Kubernetes is upgraded after the commit"));
    }
    match &seen.others {
        Ok(others) if others.is_empty() => {}
        Ok(others) => {
            let reason = format!("{} is being swapped or upgraded; one node at a time", others.join(" and "));
            return refuse(&codes::KUBERNETES_ANOTHER, reason);
        }
        Err(why) => {
            let reason = format!("whether another node is being swapped or upgraded cannot be known: {why}");
            return refuse(&codes::KUBERNETES_ANOTHER, reason);
        }
    }
    match &seen.not_ready {
        Ok(nodes) if nodes.is_empty() => {}
        Ok(nodes) => {
            let reason = format!("Kubernetes does not call {} ready; bring it back first", nodes.join(" and "));
            return refuse(&codes::KUBERNETES_NOT_READY, reason);
        }
        Err(why) => return refuse(&codes::KUBERNETES_NOT_READY, format!("the nodes cannot be listed: {why}")),
    }
    seen.quorum.clone().map_err(|reason| Rejection::of(&codes::KUBERNETES_ETCD, reason))?;
    etcd(&seen.etcd)?;
    match &seen.removed {
        Ok(removed) if removed.is_empty() => Ok(()),
        Ok(removed) => refuse(
            &codes::KUBERNETES_REMOVED_APIS,
            format!(
                "Kubernetes {} no longer has {}, and a client has requested it since the API servers were started; \
                 move to its successor (the audit log, or the metric apiserver_requested_deprecated_apis, shows it)",
                seen.to,
                removed.join(", ")
            ),
        ),
        Err(why) => refuse(&codes::KUBERNETES_REMOVED_APIS, format!("which APIs are in use cannot be known: {why}")),
    }
}

fn version(seen: &UpgradePreconditions) -> Result<(), Rejection> {
    let UpgradePreconditions { from, to, available: carried, .. } = seen;
    if !carried.contains(to) {
        let reason =
            format!("this image carries Kubernetes {}, not {to}; swap to one that does first", carried.join(" and "));
        return refuse(&codes::KUBERNETES_NOT_IN_IMAGE, reason);
    }
    match (from.parse::<Minor>(), to.parse::<Minor>()) {
        (Ok(is), Ok(wanted)) if wanted == is.next() => Ok(()),
        (Ok(is), Ok(_)) => refuse(
            &codes::KUBERNETES_SKEW,
            format!("from Kubernetes {from} the way leads to {} only, not to {to}", is.next()),
        ),
        _ => refuse(&codes::KUBERNETES_SKEW, format!("{from} or {to} is no Kubernetes minor such as 1.36")),
    }
}

fn etcd(members: &[(String, Option<String>)]) -> Result<(), Rejection> {
    let ill: Vec<&str> =
        members.iter().filter(|(_, version)| version.is_none()).map(|(node, _)| node.as_str()).collect();
    if !ill.is_empty() {
        let reason = format!("the etcd member of {} is not healthy; repair it first", ill.join(" and "));
        return refuse(&codes::KUBERNETES_ETCD, reason);
    }
    let of = |version: &Option<String>| version.as_deref().and_then(numbers);
    let old: Vec<String> = members
        .iter()
        .filter(|(_, version)| of(version).is_none_or(|numbers| numbers < OLDEST_ETCD))
        .map(|(node, version)| format!("{node} ({})", version.as_deref().unwrap_or_default()))
        .collect();
    if old.is_empty() {
        return Ok(());
    }
    let [major, minor, patch] = OLDEST_ETCD;
    refuse(
        &codes::KUBERNETES_ETCD,
        format!(
            "kubeadm takes etcd from {major}.{minor}.{patch} on, and that of {} is older; swap its image first",
            old.join(" and ")
        ),
    )
}

fn numbers(version: &str) -> Option<[u64; 3]> {
    let numbers: Option<Vec<u64>> = version.split('.').map(|part| part.parse().ok()).collect();
    numbers?.try_into().ok()
}

fn refuse(code: &Code, reason: impl Into<String>) -> Result<(), Rejection> {
    Err(Rejection::of(code, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fine() -> UpgradePreconditions {
        UpgradePreconditions {
            from: "1.35".into(),
            to: "1.36".into(),
            available: vec!["1.36".into(), "1.35".into()],
            ready: true,
            swap: None,
            others: Ok(vec![]),
            not_ready: Ok(vec![]),
            quorum: Ok(()),
            etcd: vec![("cp1".into(), Some("3.6.16".into())), ("cp2".into(), Some("3.5.24".into()))],
            removed: Ok(vec![]),
        }
    }

    #[test]
    fn next_minor_version_is_allowed_if_healthy() {
        assert_eq!(judge(&fine()), Ok(()));
    }

    #[test]
    fn each_unmet_precondition_is_named() {
        let old = |version: &str| vec![("cp3".to_owned(), Some(version.to_owned()))];
        type Change = Box<dyn Fn(&mut UpgradePreconditions)>;
        let table: Vec<(Change, &str, &str)> = vec![
            (Box::new(|seen| seen.to = "1.37".into()), "kubernetes.not-in-image", "1.36 and 1.35"),
            (Box::new(|seen| seen.to = "1.35".into()), "kubernetes.skew", "1.36 only"),
            (Box::new(|seen| seen.from = "1.34".into()), "kubernetes.skew", "1.35 only"),
            (Box::new(|seen| seen.ready = false), "kubernetes.not-ready", "not ready"),
            (Box::new(|seen| seen.swap = Some("the swap 7 is open".into())), "kubernetes.swap-open", "swap 7"),
            (Box::new(|seen| seen.others = Ok(vec!["cp2".into()])), "kubernetes.another", "cp2"),
            (Box::new(|seen| seen.others = Err("away".into())), "kubernetes.another", "away"),
            (Box::new(|seen| seen.not_ready = Ok(vec!["cp2".into()])), "kubernetes.not-ready", "cp2"),
            (Box::new(|seen| seen.not_ready = Err("away".into())), "kubernetes.not-ready", "away"),
            (Box::new(|seen| seen.quorum = Err("cp3 has no member".into())), "kubernetes.etcd", "cp3 has no member"),
            (Box::new(|seen| seen.etcd[1].1 = None), "kubernetes.etcd", "cp2"),
            (Box::new(move |seen| seen.etcd = old("3.5.9")), "kubernetes.etcd", "cp3 (3.5.9)"),
            (Box::new(move |seen| seen.etcd = old("new")), "kubernetes.etcd", "cp3 (new)"),
            (
                Box::new(|seen| seen.removed = Ok(vec!["widgets.example.io/v1beta1".into()])),
                "kubernetes.removed-apis",
                "widgets",
            ),
            (Box::new(|seen| seen.removed = Err("cp2 is away".into())), "kubernetes.removed-apis", "cp2 is away"),
        ];
        for (change, code, words) in table {
            let mut seen = fine();
            change(&mut seen);
            let refused = judge(&seen).unwrap_err();
            assert!(refused.code == code && refused.reason.contains(words), "{refused}");
        }
    }
}
