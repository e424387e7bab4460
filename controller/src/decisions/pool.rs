//! The desired state of a NodePool for `fleet`, independent of former ones: the records of its workers are compared with it.
//! Addresses of workers are not part of it: PoolAddresses decide these.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use contract::minor::Minor;
use contract::properties::Problem;
use contract::properties::parse::labels;
use fleet::hypervisor::Size;
use fleet::upgrade::Reason;
use fleet::workers::{Addresses, Image, Pool, Rollout, Template, worker_minor};
use kube::ResourceExt;

use super::addresses::{Malformed, subnet};
use crate::objects::{self, IPPoolSpec, Machine, NodePool, NodePoolSpec, VMClassSpec};
use crate::records::{Mismatch, as_on_form, digits_of, worker_of};

/// Maximum number of pools of a cluster: each one queries its Provider and its API as often as a large one.
pub const MOST_POOLS: usize = 16;

/// Whether so many of a cluster's pools are older that no worker is created for this one.
pub fn is_one_too_many(pool: &NodePool, of_cluster: &[NodePool]) -> bool {
    let age = |pool: &NodePool| (pool.metadata.creation_timestamp.clone(), pool.name_any());
    let own = age(pool);
    of_cluster.iter().filter(|other| age(other) < own).count() >= MOST_POOLS
}

/// A NodePool, with the objects that it names.
#[derive(Clone, Copy, Debug)]
pub struct WantedPool<'a> {
    /// Name of the pool, with which names of Machines begin.
    pub name: &'a str,
    pub spec: &'a NodePoolSpec,
    pub class: &'a VMClassSpec,
    /// Name of the NodeImage of its cluster: until the commit of an upgrade, the former one.
    pub image: &'a str,
    pub digest: &'a str,
    /// The minor versions of Kubernetes that the image carries.
    pub carries: &'a [String],
    /// The minor version of all API servers of the cluster.
    pub cluster: Minor,
    /// The pool of its network's addresses. `None` if nodes use DHCP.
    pub addresses: Option<&'a IPPoolSpec>,
}

/// Why no worker can be created from a NodePool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPool {
    /// A label or a taint that a node would reject.
    #[error("{0} is no {1} of a node: {2}")]
    Refused(String, &'static str, String),
    /// No Kubernetes version of the image runs in the cluster.
    #[error("{0}")]
    Skew(Reason),
    /// The addresses of its network cannot be read.
    #[error("{0}")]
    Addresses(#[from] Malformed),
    /// The digest of the image is not a SHA-256.
    #[error("{0:?} is no digest of an image")]
    Digest(String),
}

/// The desired state in `fleet`'s words, as if no worker existed.
///
/// # Errors
/// No worker can be created like that: existing workers stay as they are then.
pub fn wanted_pool(wanted: &WantedPool<'_>) -> Result<Pool, InvalidPool> {
    let WantedPool { name, spec, class, image, digest, carries, cluster, addresses } = *wanted;
    let NodePoolSpec {
        cluster_ref,
        replicas,
        remove_first,
        vm_class: _,
        zones: _,
        network: _,
        labels: _,
        taints: _,
        rollout,
        repair: _,
    } = spec;
    let minor = worker_minor(carries, cluster, None).map_err(InvalidPool::Skew)?;
    let template = Template {
        image: Image {
            digest: digits_of(digest).ok_or_else(|| InvalidPool::Digest(digest.to_owned()))?,
            name: image.to_owned(),
        },
        kubernetes: minor.to_string(),
        size: Size {
            processors: class.processors,
            memory: class.memory_mib,
            data_disk: class.data_disk_gib.map(|size| u64::from(size) << 30),
        },
        labels: spec.labels.clone(),
        taints: spec.taints.iter().map(as_on_form).collect(),
    };
    is_taken_by_nodes(&template)?;
    Ok(Pool {
        name: name_within(&cluster_ref.name, name).to_owned(),
        prefix: name.to_owned(),
        count: *replicas as usize,
        template,
        // The image is in the vCenter already.
        ova: PathBuf::new(),
        carries: carries.to_vec(),
        addresses: addresses.map(hosts).transpose()?,
        rollout: rollout_of(rollout),
        last_index: 0,
        powers_on: false,
        // The number of unhealthy workers decides when one is replaced.
        keeps_lost: true,
        failed_joins: Some(0),
        remove_first: remove_first.iter().cloned().collect(),
    })
}

/// The desired state of a pool without workers, for its deletion. `first` is one of its existing workers.
///
/// # Errors
/// The Machine of that worker does not match its form.
pub fn emptied_pool(pool: &NodePool, first: &Machine) -> Result<Pool, Mismatch> {
    let (name, status) = (pool.name_any(), pool.status.clone().unwrap_or_default());
    Ok(Pool {
        name: name_within(&pool.spec.cluster_ref.name, &name).to_owned(),
        prefix: name,
        count: 0,
        template: worker_of(first)?.template,
        ova: PathBuf::new(),
        carries: Vec::new(),
        addresses: None,
        rollout: Rollout { paused: false, ..rollout_of(&pool.spec.rollout) },
        last_index: u64::try_from(status.last_index).unwrap_or_default(),
        powers_on: false,
        keeps_lost: true,
        failed_joins: Some(status.failed_joins),
        remove_first: BTreeSet::new(),
    })
}

fn name_within<'n>(cluster: &str, pool: &'n str) -> &'n str {
    pool.strip_prefix(cluster).and_then(|rest| rest.strip_prefix('-')).unwrap_or(pool)
}

fn rollout_of(rollout: &objects::Rollout) -> Rollout {
    let objects::Rollout { max_surge, max_unavailable, drain_seconds, join_seconds, paused } = *rollout;
    Rollout {
        max_surge: max_surge as usize,
        max_unavailable: max_unavailable as usize,
        drain_seconds: drain_seconds.into(),
        join_seconds: join_seconds.into(),
        paused,
    }
}

/// The addresses that hosts of a subnet can have.
fn hosts(pool: &IPPoolSpec) -> Result<Addresses, Malformed> {
    let (first, last, prefix) = subnet(pool)?;
    Ok(Addresses { first: Ipv4Addr::from(first + 1), last: Ipv4Addr::from(last - 1), prefix })
}

/// Checks labels and taints as a node does. Otherwise the node would reject them after its VM was created.
fn is_taken_by_nodes(template: &Template) -> Result<(), InvalidPool> {
    let why = |problems: Vec<Problem>| problems.into_iter().map(|problem| problem.seen).collect::<Vec<_>>().join("; ");
    for (key, value) in &template.labels {
        let text = format!("{key}={value}");
        let refused = |why: String| InvalidPool::Refused(text.clone(), "label", why);
        match labels::labels(&text).map_err(|problems| refused(why(problems)))?.as_slice() {
            [label] if label.key == *key && label.value == *value => {}
            _ => return Err(refused("it reads as something else".to_owned())),
        }
    }
    for taint in &template.taints {
        let refused = |why: String| InvalidPool::Refused(taint.clone(), "taint", why);
        match labels::taints(taint).map_err(|problems| refused(why(problems)))?.as_slice() {
            [read] if read.to_string() == *taint => {}
            _ => return Err(refused("it reads as something else".to_owned())),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{AddressRange, Effect, Reference, Repair, Taint, fixture};

    /// The inputs of a pool, to be changed.
    #[derive(Clone)]
    struct Case {
        spec: NodePoolSpec,
        class: VMClassSpec,
        digest: String,
        carries: Vec<String>,
        cluster: Minor,
        addresses: Option<IPPoolSpec>,
    }

    fn case() -> Case {
        let text = str::to_owned;
        Case {
            spec: NodePoolSpec {
                cluster_ref: Reference::to("shop"),
                replicas: 3,
                remove_first: Vec::new(),
                vm_class: text("medium"),
                zones: Vec::new(),
                network: None,
                labels: [(text("example.com/tier"), text("front"))].into(),
                taints: vec![Taint { key: text("edge"), value: text("true"), effect: Effect::NoSchedule }],
                rollout: Default::default(),
                repair: Repair::default(),
            },
            class: VMClassSpec { processors: 4, memory_mib: 16384, data_disk_gib: Some(40) },
            digest: format!("sha256:{}", "0a".repeat(32)),
            carries: vec![text("1.35"), text("1.36")],
            cluster: "1.36".parse().unwrap(),
            addresses: Some(IPPoolSpec {
                subnet: text("192.0.2.0/24"),
                ranges: vec![AddressRange { first: text("192.0.2.20"), last: text("192.0.2.99") }],
                reserved: Vec::new(),
                vips_per_namespace: None,
                gateway: None,
                dns_servers: Vec::new(),
                search_domains: Vec::new(),
            }),
        }
    }

    impl Case {
        fn pool(&self) -> Result<Pool, InvalidPool> {
            wanted_pool(&WantedPool {
                name: "shop-general",
                spec: &self.spec,
                class: &self.class,
                image: "kaas-tenant-0.2.0",
                digest: &self.digest,
                carries: &self.carries,
                cluster: self.cluster,
                addresses: self.addresses.as_ref(),
            })
        }
    }

    #[test]
    fn new_pool_matches_its_object() {
        let pool = case().pool().unwrap();
        assert_eq!((pool.name.as_str(), pool.machine_name(1).as_str(), pool.count), ("general", "shop-general-w1", 3));
        let Template { image, kubernetes, size, labels, taints } = &pool.template;
        assert_eq!((image.digest.as_str(), image.name.as_str()), ("0a".repeat(32).as_str(), "kaas-tenant-0.2.0"));
        assert_eq!((kubernetes.as_str(), size.processors, size.memory), ("1.36", 4, 16384));
        assert_eq!((size.data_disk, labels["example.com/tier"].as_str()), (Some(40 << 30), "front"));
        assert!(taints.contains("edge=true:NoSchedule"));
        let addresses = pool.addresses.as_ref().unwrap();
        assert_eq!((addresses.first.to_string().as_str(), addresses.prefix), ("192.0.2.1", 24));
        assert_eq!(addresses.last.to_string(), "192.0.2.254");
        assert_eq!(pool.rollout, Rollout::default());
        assert_eq!(Case { addresses: None, ..case() }.pool().unwrap().addresses, None);
    }

    /// Only changes of a NodePool, its class and its cluster replace workers.
    #[test]
    fn only_template_changes_outdate_workers() {
        type Edit = fn(&mut Case);
        let before = case().pool().unwrap();
        let edits: [(&str, bool, Edit); 13] = [
            ("replicas", false, |case| case.spec.replicas = 0),
            ("workers to remove", false, |case| case.spec.remove_first = vec!["shop-general-w1".to_owned()]),
            ("a pause", false, |case| case.spec.rollout.paused = true),
            ("surge", false, |case| (case.spec.rollout.max_surge, case.spec.rollout.max_unavailable) = (0, 2)),
            ("times", false, |case| (case.spec.rollout.drain_seconds, case.spec.rollout.join_seconds) = (0, 60)),
            ("labels", true, |case| case.spec.labels.clear()),
            ("taints", true, |case| case.spec.taints.clear()),
            ("processors", true, |case| case.class.processors = 2),
            ("memory", true, |case| case.class.memory_mib = 4096),
            ("a data disk", true, |case| case.class.data_disk_gib = None),
            ("an image", true, |case| case.digest = format!("sha256:{}", "0b".repeat(32))),
            ("a minor", true, |case| {
                (case.carries, case.cluster) = (vec!["1.36".to_owned(), "1.37".to_owned()], "1.37".parse().unwrap());
            }),
            ("a former minor", false, |case| case.cluster = "1.35".parse().unwrap()),
        ];
        for (what, outdates, edit) in edits {
            let mut case = case();
            edit(&mut case);
            let now = case.pool().unwrap();
            assert_ne!(now, before, "{what}");
            assert_eq!(now.template.outdates(&before.template), outdates, "{what}");
        }
    }

    #[test]
    fn deleted_pool_drains_all_workers() {
        let mut pool = NodePool::new("shop-general", case().spec);
        pool.spec.rollout.paused = true;
        let mut first = Machine::new("shop-general-w1", fixture::worker());
        assert!(emptied_pool(&pool, &first).is_err(), "the API server has not made it yet");
        first.metadata.uid = Some("0f5e2a30-7c1b-4d7e-9a55-0d6a1c5b7e21".to_owned());
        let going = emptied_pool(&pool, &first).unwrap();
        let wanted = case().pool().unwrap();
        assert_eq!((going.name, going.prefix, going.count), (wanted.name, wanted.prefix, 0));
        assert_eq!(going.rollout, wanted.rollout, "a pause keeps nobody");
        assert_eq!(going.template, worker_of(&first).unwrap().template);
    }

    #[test]
    fn invalid_labels_are_rejected_before_a_vm_exists() {
        let labels = include_str!("../../../contract/testdata/node-label-keys.txt");
        let mut seen = 0;
        for line in labels.lines().filter(|line| !line.starts_with('#')) {
            let (judged, key) = line.split_once(' ').unwrap();
            let mut case = case();
            case.spec.labels = [(key.to_owned(), "x".to_owned())].into();
            assert_eq!(case.pool().is_ok(), judged == "own", "{key:?}");
            seen += 1;
        }
        assert!(seen > 40);
        let refused = |change: &dyn Fn(&mut Case)| {
            let mut case = case();
            change(&mut case);
            case.pool().unwrap_err().to_string()
        };
        for (change, words) in [
            (
                &(|case: &mut Case| drop(case.spec.labels.insert("a=1,b".to_owned(), "2".to_owned())))
                    as &dyn Fn(&mut Case),
                "a=1,b=2 is no label of a node: it reads as something else",
            ),
            (&|case| case.spec.taints[0].key = "a b".to_owned(), "a b=true:NoSchedule is no taint of a node"),
            (&|case| case.carries = vec!["1.37".to_owned()], "the image carries Kubernetes 1.37"),
            (&|case| case.digest = "0a".repeat(32), "is no digest of an image"),
            (&|case| case.addresses.as_mut().unwrap().subnet = "192.0.2.0".to_owned(), "which is no IPv4 address"),
        ] {
            let said = refused(change);
            assert!(said.contains(words), "{words}: {said}");
        }
    }
}
