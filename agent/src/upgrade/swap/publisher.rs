//! The publisher whose images a cluster accepts. The key that has signed the image of the first node is pinned once, in the
//! cluster's store and on each node's data disk. Only an explicit change of publisher pins another key, at the commit of the
//! swap, whatever image is admitted later.

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::cluster::etcd::client::EtcdClient;

/// The cluster's record, next to those of its nodes.
const KEY: &str = "/kaas/publisher";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Pinned {
    /// The key's fingerprint. `None` in a cluster that a development image has formed.
    key: Option<String>,
}

/// Pins the `publisher` of this node's image, or `None` if it is unsigned, unless the cluster has pinned before.
pub fn pin(etcd: &EtcdClient, publisher: Option<&str>) -> anyhow::Result<()> {
    let own = Pinned { key: publisher.map(str::to_owned) };
    etcd.put_new(KEY, &serde_json::to_vec(&own)?).context("pinning the publisher's key")
}

/// The pinned key. Also `None` if the cluster was formed before keys were pinned.
pub fn pinned(etcd: &EtcdClient) -> anyhow::Result<Option<String>> {
    let Some(text) = etcd.get(KEY).context("reading the pinned key")? else { return Ok(None) };
    understand(&text)
}

/// Pins another key. Without a quorum the former key stays pinned.
pub fn change(etcd: &EtcdClient, key: &str) -> anyhow::Result<()> {
    let text = serde_json::to_vec(&Pinned { key: Some(key.to_owned()) })?;
    etcd.put(KEY, &text).context("pinning another publisher's key")
}

fn understand(text: &[u8]) -> anyhow::Result<Option<String>> {
    let pinned: Pinned = serde_json::from_slice(text).with_context(|| format!("understanding {KEY}"))?;
    Ok(pinned.key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::etcd::fake::FakeEtcd;
    use std::time::Duration;

    #[test]
    fn first_key_stays_pinned_until_a_change() {
        for first in [Some("SHA256:a"), None] {
            let root = tempfile::tempdir().unwrap();
            let mut config = crate::intake::config::fixture::three_nodes();
            let _etcd = FakeEtcd::start(&mut config, root.path());
            let nodes = config.cluster.control_nodes.iter();
            let members: Vec<_> =
                nodes.map(|node| EtcdClient::new(node, root.path(), Duration::from_secs(5)).unwrap()).collect();
            assert_eq!(pinned(&members[0]).unwrap(), None);
            pin(&members[0], first).unwrap();
            pin(&members[1], Some("SHA256:b")).unwrap();
            assert_eq!(pinned(&members[2]).unwrap().as_deref(), first);
            change(&members[2], "SHA256:c").unwrap();
            assert_eq!(pinned(&members[0]).unwrap().as_deref(), Some("SHA256:c"));
        }
    }

    #[test]
    fn the_record_is_as_documented() {
        let written = |key: Option<&str>| serde_json::to_string(&Pinned { key: key.map(str::to_owned) }).unwrap();
        assert_eq!(written(Some("SHA256:a")), r#"{"key":"SHA256:a"}"#);
        assert_eq!(understand(written(None).as_bytes()).unwrap(), None);
        assert_eq!(understand(br#"{"key":"SHA256:a"}"#).unwrap().as_deref(), Some("SHA256:a"));
        // A damaged record must not count as no key.
        assert!(understand(b"").is_err() && understand(b"{").is_err());
    }
}
