//! The condition of a cluster's add-ons: whether those of its spec run. The appliance decides which add-ons exist.

use contract::properties as keys;
use fleet::nodes::AddOnSeen;

use super::health::ClusterCondition;
use crate::objects::{TenantClusterReason, TenantClusterSpec};

/// The condition of the spec's add-ons. `seen` has the workloads that run, or why they are unknown.
pub fn add_ons(spec: &TenantClusterSpec, seen: Result<&[AddOnSeen], String>) -> ClusterCondition {
    use TenantClusterReason::{AddonsMissing, AddonsNotReached, AddonsRun};
    let seen = match seen {
        Ok(seen) => seen,
        Err(words) => return (AddonsNotReached, words),
    };
    let lacking = |name: &&str| {
        let own: Vec<&AddOnSeen> = seen.iter().filter(|workload| workload.add_on == **name).collect();
        if own.is_empty() {
            return Some(format!("{name} is missing"));
        }
        let lacking = own.into_iter().find(|workload| workload.running < workload.wanted)?;
        let AddOnSeen { workload, wanted, running, .. } = lacking;
        Some(format!("{name}: {running} of {wanted} pods of {workload} run"))
    };
    let lacking: Vec<String> = wanted(spec).iter().filter_map(lacking).collect();
    if lacking.is_empty() { (AddonsRun, String::new()) } else { (AddonsMissing, lacking.join("; ")) }
}

/// The add-ons of a spec, by the properties that choose them.
pub fn wanted(spec: &TenantClusterSpec) -> Vec<&'static str> {
    let chosen = &spec.add_ons;
    let all = [
        (chosen.cluster_dns, keys::CLUSTER_DNS),
        (chosen.cluster_metrics, keys::CLUSTER_METRICS),
        (chosen.local_volumes, keys::LOCAL_VOLUMES),
        (spec.network.service_vips.is_some(), keys::SERVICE_VIPS),
    ];
    all.into_iter().filter(|(chosen, _)| *chosen).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixture::cluster;
    use super::*;
    use TenantClusterReason::{AddonsMissing, AddonsNotReached, AddonsRun};

    fn seen(names: &[&str], running: u64) -> Vec<AddOnSeen> {
        let of = |name: &&str| AddOnSeen {
            add_on: (*name).to_owned(),
            workload: format!("kube-system/{name}"),
            wanted: 2,
            running,
        };
        names.iter().map(of).collect()
    }

    #[test]
    fn condition_covers_only_add_ons_of_the_spec() {
        let spec = cluster().spec;
        let all = ["cluster-dns", "cluster-metrics", "local-volumes", "service-vips"];
        assert_eq!(wanted(&spec), all);
        assert_eq!(add_ons(&spec, Ok(&seen(&all, 2))), (AddonsRun, String::new()));
        let (reason, words) = add_ons(&spec, Ok(&seen(&all[..3], 2)));
        assert_eq!((reason, words.as_str()), (AddonsMissing, "service-vips is missing"));
        let mut some = seen(&all, 2);
        some.extend(seen(&["cluster-dns"], 1));
        let (reason, words) = add_ons(&spec, Ok(&some));
        let said = "cluster-dns: 1 of 2 pods of kube-system/cluster-dns run";
        assert_eq!((reason, words.as_str()), (AddonsMissing, said), "all of its workloads are to run");
        assert_eq!(add_ons(&spec, Err("x".to_owned())), (AddonsNotReached, "x".to_owned()));
        let mut bare = spec;
        (bare.add_ons.cluster_dns, bare.add_ons.cluster_metrics, bare.add_ons.local_volumes) = (false, false, false);
        bare.network.service_vips = None;
        // Pods of an add-on that was removed do not count.
        assert_eq!(add_ons(&bare, Ok(&seen(&all, 0))), (AddonsRun, String::new()));
    }
}
