//! Which Kubernetes a worker of an image would run in a cluster, if any.

use anyhow::Context;
use contract::minor::Minor;
use serde_json::Value;

use super::reason;
use crate::node::{Client, Method};
use crate::upgrade::Reason;

/// The minor of a cluster's API servers.
///
/// # Errors
/// When the API does not answer.
pub async fn cluster_minor(client: &Client) -> anyhow::Result<Minor> {
    let answer = client.ask_api(Method::GET, "/version", None).await.context("asking for the cluster's version")?;
    let said: Value = answer.json()?;
    let version = said["gitVersion"].as_str().unwrap_or_default().trim_start_matches('v');
    Minor::of(version).with_context(|| format!("the cluster's version is {version:?}"))
}

/// The newest of the minors that an image carries with which a kubelet may join a cluster: not newer than the cluster's,
/// and three older at most (version skew policy, "kubelet").
///
/// # Errors
/// When it carries none.
pub fn kubelet_minor(carried: &[String], cluster: Minor) -> Result<Minor, Reason> {
    let joins = |minor: &Minor| *minor <= cluster && minor.next().next().next() >= cluster;
    carried.iter().filter_map(|minor| minor.parse().ok()).filter(joins).max().ok_or_else(|| {
        let carried = carried.join(", ");
        let words = format!(
            "the image carries Kubernetes {carried}; a worker of a cluster of {cluster} runs that or up to three minors less"
        );
        Reason::new(reason::SKEW, words)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubelet_is_never_newer_than_its_cluster_and_three_minors_older_at_most() {
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
