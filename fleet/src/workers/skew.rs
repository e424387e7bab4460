//! The Kubernetes version that a worker of an image would run in a cluster.

use std::collections::BTreeSet;

use anyhow::Context;
use contract::minor::Minor;
use serde_json::Value;

use super::cluster::{Cluster as _, NodeSeen};
use super::reason;
use crate::engine::Reason;
use crate::nodes::{Client, Method};

/// The minor version of a cluster's API servers.
pub async fn cluster_minor(client: &Client) -> anyhow::Result<Minor> {
    let answer = client.ask_api(Method::GET, "/version", None).await.context("asking for the cluster's version")?;
    let said: Value = answer.json()?;
    let version = said["gitVersion"].as_str().unwrap_or_default().trim_start_matches('v');
    let answering = Minor::of(version).with_context(|| format!("the cluster's version is {version:?}"))?;
    let nodes = client.nodes().await.context("asking for the cluster's nodes")?;
    of_all(answering, &nodes).map_err(|why| anyhow::anyhow!("{why}"))
}

/// The minor version of all API servers, if there is only one. A server has the minor version of its node's kubelet, or a newer
/// one while that node is upgraded. `answering` is that of the one that answers.
fn of_all(answering: Minor, nodes: &[NodeSeen]) -> Result<Minor, Reason> {
    let of_nodes = nodes.iter().filter(|node| node.control).filter_map(NodeSeen::minor);
    let all: BTreeSet<Minor> = of_nodes.chain([answering]).collect();
    if all.len() > 1 {
        let all = all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
        let words =
            format!("the control-plane nodes run Kubernetes {all}: workers are made once their upgrade has ended");
        return Err(Reason::new(reason::SKEW, words));
    }
    Ok(answering)
}

/// The newest minor version of an image with which a kubelet may join a cluster. It is not newer than the cluster's, and at most
/// three older (version skew policy, "kubelet").
fn kubelet_minor(carried: &[String], cluster: Minor) -> Result<Minor, Reason> {
    let joins = |minor: &Minor| minor.may_speak_to(cluster);
    carried.iter().filter_map(|minor| minor.parse().ok()).filter(joins).max().ok_or_else(|| {
        let carried = carried.join(", ");
        let words = format!(
            "the image carries Kubernetes {carried}; a worker of a cluster of {cluster} runs that or up to three minor versions less"
        );
        Reason::new(reason::SKEW, words)
    })
}

/// The minor version that workers run whose image carries these: the newest with which a kubelet may join the cluster. `expected`
/// is the operator's expectation, and is not sent to workers.
///
/// # Errors
/// If there is no such minor version, or another one is expected.
pub fn worker_minor(carried: &[String], cluster: Minor, expected: Option<Minor>) -> Result<Minor, Reason> {
    let newest = kubelet_minor(carried, cluster)?;
    let Some(expected) = expected.filter(|expected| *expected != newest) else { return Ok(newest) };
    let words = if expected > cluster {
        format!(
            "the control-plane nodes run Kubernetes {cluster}, and no worker runs a newer one: take them to {expected} first"
        )
    } else {
        let carried = carried.join(" and ");
        format!(
            "the image carries Kubernetes {carried}: in a cluster of {cluster} its workers run {newest}, and not {expected}"
        )
    };
    Err(Reason::new(reason::SKEW, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minor_version_that_workers_lack_is_refused() {
        let carried = ["1.35".to_owned(), "1.36".to_owned()];
        let of = |cluster: &str, expected: Option<&str>| {
            let expected = expected.map(|minor| minor.parse().unwrap());
            worker_minor(&carried, cluster.parse().unwrap(), expected).map(|minor| minor.to_string())
        };
        assert_eq!(of("1.36", None).unwrap(), "1.36");
        assert_eq!(of("1.36", Some("1.36")).unwrap(), "1.36");
        assert_eq!(of("1.37", Some("1.36")).unwrap(), "1.36", "one less than the control nodes' is allowed");
        for (cluster, expected, words) in [
            ("1.35", "1.36", "the control-plane nodes run Kubernetes 1.35, and no worker runs a newer one"),
            ("1.36", "1.35", "its workers run 1.36, and not 1.35"),
            ("1.34", "1.34", "the image carries Kubernetes 1.35, 1.36"),
        ] {
            let why = of(cluster, Some(expected)).unwrap_err();
            assert!(why.code == "workers.skew" && why.words.contains(words), "{why}");
        }
    }

    #[test]
    fn two_server_versions_give_no_worker_version() {
        let node = |kubelet: &str, control: bool| NodeSeen {
            name: "n".to_owned(),
            uid: "u".to_owned(),
            provider: String::new(),
            ready: true,
            cordoned: false,
            excluded: false,
            control,
            kubelet: kubelet.to_owned(),
            address: None,
            heard: String::new(),
        };
        let of = |answering: &str, nodes: &[NodeSeen]| of_all(answering.parse().unwrap(), nodes);
        let worker = node("v1.34.1", false);
        assert_eq!(of("1.36", &[node("v1.36.2", true), worker.clone()]).unwrap().to_string(), "1.36");
        let between = of("1.36", &[node("v1.36.2", true), node("v1.35.4", true), worker]).unwrap_err();
        assert_eq!(between.code, "workers.skew");
        assert!(between.words.contains("1.35 and 1.36"), "{between}");
        // With one control-plane node its API server is newer than its kubelet for a while.
        assert!(of("1.36", &[node("v1.35.4", true)]).is_err());
    }

    #[test]
    fn a_kubelet_is_at_most_three_versions_older() {
        let of = |carried: &[&str], cluster: &str| {
            let carried: Vec<String> = carried.iter().map(|minor| (*minor).to_owned()).collect();
            kubelet_minor(&carried, cluster.parse().unwrap()).ok().map(|minor| minor.to_string())
        };
        assert_eq!(of(&["1.35", "1.36"], "1.36"), Some("1.36".to_owned()));
        assert_eq!(of(&["1.35", "1.36"], "1.35"), Some("1.35".to_owned()));
        assert_eq!(of(&["1.36", "1.37"], "1.35"), None);
        assert_eq!(of(&["1.33"], "1.36"), Some("1.33".to_owned()));
        assert_eq!(of(&["1.32", "no"], "1.36"), None);
        let why = kubelet_minor(&["1.37".to_owned()], "1.36".parse().unwrap()).unwrap_err();
        assert_eq!(why.code, "workers.skew");
    }
}
