//! The objects to reconcile when another object has changed. Only the reconcilers of a Machine's cluster and pool write its
//! status. Their own writes must not start them again: one that waits would run in a loop.

use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;

use crate::decisions::is_leaving;
use crate::objects::{Machine, NodePool, TenantCluster};

/// The cluster of a control-plane node that is being deleted.
pub fn cluster_of_machine(machine: &Machine) -> Option<ObjectRef<TenantCluster>> {
    let is_its_own = machine.spec.pool_ref.is_none() && machine.metadata.deletion_timestamp.is_some();
    is_its_own.then(|| in_namespace(&machine.spec.cluster_ref.name, machine))
}

/// The pool of a worker that is being deleted.
pub fn pool_of_machine(machine: &Machine) -> Option<ObjectRef<NodePool>> {
    let pool = machine.spec.pool_ref.as_ref().filter(|_| machine.metadata.deletion_timestamp.is_some())?;
    Some(in_namespace(&pool.name, machine))
}

/// The cluster of a pool: its status depends on its pools, and its deletion waits for theirs.
pub fn cluster_of_pool(pool: &NodePool) -> ObjectRef<TenantCluster> {
    in_namespace(&pool.spec.cluster_ref.name, pool)
}

/// Whether a change of the cluster concerns a pool: the pool is deleted with it, and begins once the cluster serves.
pub fn concerns(cluster: &TenantCluster, pool: &NodePool) -> bool {
    let is_its_own = pool.spec.cluster_ref.name == cluster.name_any() && pool.namespace() == cluster.namespace();
    let is_waiting = pool.status.as_ref().is_none_or(|status| status.last_index == 0);
    is_its_own && (is_leaving(cluster) || is_waiting)
}

fn in_namespace<K: kube::Resource<DynamicType = ()>>(name: &str, beside: &impl ResourceExt) -> ObjectRef<K> {
    let reference = ObjectRef::new(name);
    match beside.namespace() {
        Some(namespace) => reference.within(&namespace),
        None => reference,
    }
}

#[cfg(test)]
mod tests {
    use kube::Resource;
    use serde_json::json;

    use super::*;
    use crate::objects::NodePoolStatus;
    use crate::term::Clock;

    fn leaving<K: Resource<DynamicType = ()> + Clone>(object: &K) -> K {
        let mut object = object.clone();
        object.meta_mut().deletion_timestamp = Some(Clock::of_tests().time());
        object
    }

    fn machine(pool: Option<&str>) -> Machine {
        let mut machine = Machine::new("shop-cp1", crate::objects::fixture::worker());
        machine.metadata.namespace = Some("team-blue".to_owned());
        machine.spec.pool_ref = pool.map(crate::objects::Reference::to);
        machine
    }

    fn pool() -> NodePool {
        let spec = json!({"clusterRef": {"name": "shop"}, "vmClass": "small", "replicas": 1});
        let mut pool = NodePool::new("shop-general", serde_json::from_value(spec).unwrap());
        pool.metadata.namespace = Some("team-blue".to_owned());
        pool
    }

    #[test]
    fn a_deleted_machine_triggers_its_owner() {
        let [control, worker] = [machine(None), machine(Some("shop-general"))];
        let cluster = ObjectRef::new("shop").within("team-blue");
        assert_eq!(cluster_of_machine(&leaving(&control)), Some(cluster.clone()));
        assert_eq!(pool_of_machine(&leaving(&control)), None);
        assert_eq!(cluster_of_machine(&leaving(&worker)), None, "its pool's status says what there is of it");
        assert_eq!(pool_of_machine(&leaving(&worker)), Some(ObjectRef::new("shop-general").within("team-blue")));
        for machine in [control, worker] {
            assert_eq!((cluster_of_machine(&machine), pool_of_machine(&machine)), (None, None), "its status is theirs");
        }
        assert_eq!(cluster_of_pool(&pool()), cluster);
    }

    #[test]
    fn waiting_or_leaving_pools_follow_their_cluster() {
        let (cluster, waiting) = (crate::decisions::fixture::cluster(), pool());
        let mut works = waiting.clone();
        works.status = Some(NodePoolStatus { last_index: 1, ..Default::default() });
        assert!(concerns(&cluster, &waiting));
        assert!(!concerns(&cluster, &works), "a status of its cluster is nothing to it");
        assert!(concerns(&leaving(&cluster), &works));
        let mut other = waiting;
        other.metadata.namespace = Some("team-red".to_owned());
        assert!(!concerns(&leaving(&cluster), &other));
    }
}
