//! How many nodes the range of pods of a cluster holds. Each node takes a part of it, and the range cannot change.

use crate::objects::{Network, NodePool, TenantCluster};

/// The number of nodes that have room in the range of pods. `None` if the range cannot be read; its rules prevent this.
fn most_nodes(network: &Network) -> Option<u64> {
    let length: u8 = network.pods.split_once('/')?.1.parse().ok()?;
    1_u64.checked_shl(u32::from(network.node_prefix.saturating_sub(length)))
}

/// Why the range of pods does not hold the control-plane nodes and so many workers, if it does not.
pub fn exceeds_range(cluster: &TenantCluster, workers: u64) -> Option<String> {
    let (network, control) = (&cluster.spec.network, u64::from(cluster.spec.control_plane.replicas));
    let most = most_nodes(network).filter(|most| control + workers > *most)?;
    Some(format!(
        "network.pods {} has room for {most} nodes with a /{} each, and {} are wanted: {control} control-plane nodes and {workers} \
         workers",
        network.pods,
        network.node_prefix,
        control + workers
    ))
}

/// How many workers of a pool the range of pods holds, and the message about more. Older pools have all that they want, others
/// what they have. So two pools that grow at once do not take the same room. `None` if the range cannot be read.
pub fn workers_in_range(cluster: &TenantCluster, pool: &NodePool, all: &[NodePool]) -> Option<(usize, String)> {
    let age = |pool: &NodePool| (pool.metadata.creation_timestamp.clone(), pool.metadata.name.clone());
    let taken = |other: &NodePool| {
        let there = other.status.as_ref().map_or(0, |status| u64::try_from(status.replicas).unwrap_or_default());
        let is_first = other.metadata.deletion_timestamp.is_none() && age(other) < age(pool);
        if is_first { there.max(u64::from(other.spec.replicas)) } else { there }
    };
    let others: u64 = all.iter().filter(|other| other.metadata.name != pool.metadata.name).map(taken).sum();
    let (network, control) = (&cluster.spec.network, u64::from(cluster.spec.control_plane.replicas));
    let most = most_nodes(network)?;
    let words = format!(
        "network.pods {} has room for {most} nodes with a /{} each: {control} control-plane nodes, {others} workers of other pools, \
         and {} are wanted here. The range cannot change: ask for fewer workers, or create another cluster",
        network.pods, network.node_prefix, pool.spec.replicas
    );
    Some((usize::try_from(most.saturating_sub(control + others)).unwrap_or(usize::MAX), words))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decisions::fixture::cluster;
    use crate::objects::NodePoolStatus;

    fn ranged(pods: &str, prefix: u8) -> TenantCluster {
        let mut cluster = cluster();
        (cluster.spec.network.pods, cluster.spec.network.node_prefix) = (pods.to_owned(), prefix);
        cluster
    }

    fn pool(name: &str, wanted: u32, there: i32) -> NodePool {
        let spec = json!({"clusterRef": {"name": "shop"}, "vmClass": "medium", "replicas": wanted});
        let mut pool = NodePool::new(name, serde_json::from_value(spec).unwrap());
        pool.status = Some(NodePoolStatus { replicas: there, ..NodePoolStatus::default() });
        pool
    }

    /// Finding 7 of controller.md: the default holds 1,000 nodes.
    #[test]
    fn default_range_holds_a_thousand_nodes() {
        assert_eq!(exceeds_range(&cluster(), 1021), None);
        let words = exceeds_range(&cluster(), 1022).unwrap();
        assert!(
            words.starts_with("network.pods 10.244.0.0/14 has room for 1024 nodes with a /24 each, and 1025"),
            "{words}"
        );
    }

    #[test]
    fn smaller_parts_hold_twice_as_many_nodes() {
        assert_eq!([24, 25].map(|prefix| most_nodes(&ranged("10.0.0.0/22", prefix).spec.network)), [Some(4), Some(8)]);
        assert_eq!(most_nodes(&ranged("10.0.0.0", 24).spec.network), None);
        assert!(exceeds_range(&ranged("10.0.0.0/24", 24), 0).is_some(), "three control-plane nodes");
    }

    /// Otherwise two pools would take the same room, or a younger one would starve an older one.
    #[test]
    fn older_pools_come_first() {
        let cluster = ranged("10.0.0.0/20", 24);
        let all = [pool("shop-a", 9, 2), pool("shop-b", 9, 1)];
        let room = |pool: &NodePool| workers_in_range(&cluster, pool, &all).unwrap();
        assert_eq!(all.each_ref().map(|pool| room(pool).0), [16 - 3 - 1, 16 - 3 - 9]);
        let words =
            "has room for 16 nodes with a /24 each: 3 control-plane nodes, 9 workers of other pools, and 9 are wanted";
        assert!(room(&all[1]).1.contains(words), "{}", room(&all[1]).1);
    }
}
