//! What a NodePool wants of `fleet`: wishes by which what is kept of its workers becomes what is wanted. Given again when all of
//! them are noted, there is none. Which address a worker gets is no part of it: IPAddresses decide that.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use contract::minor::Minor;
use contract::properties::Problem;
use contract::properties::parse::labels;
use fleet::hypervisor::Size;
use fleet::upgrade::Reason;
use fleet::workers::{
    Addresses, Changes, Discards, Image, Kept, OvaImage, Pool, Rollout, Template, Wish, worker_minor,
};

use super::addresses::{Malformed, subnet};
use crate::objects::{IPPoolSpec, NodePoolSpec, VMClassSpec};
use crate::records::{as_on_form, digits_of};

/// A NodePool, with what it names.
#[derive(Clone, Copy, Debug)]
pub struct WantedPool<'a> {
    /// Its name, which names of Machines begin with.
    pub name: &'a str,
    /// What it wants.
    pub spec: &'a NodePoolSpec,
    /// Its class.
    pub class: &'a VMClassSpec,
    /// The name of the NodeImage that its cluster is on: of an upgrade the one before, until it is committed.
    pub image: &'a str,
    /// The digest of that.
    pub digest: &'a str,
    /// The minors of Kubernetes that it carries.
    pub carries: &'a [String],
    /// The minor of all API servers of the cluster.
    pub cluster: Minor,
    /// The pool of its network's addresses; none where nodes ask for one by DHCP.
    pub addresses: Option<&'a IPPoolSpec>,
}

/// Why no worker can be made as a NodePool has it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// A label or a taint that a node would not take from its form.
    #[error("{0} is no {1} of a node: {2}")]
    Refused(String, &'static str, String),
    /// No Kubernetes of the image runs in the cluster.
    #[error("{0}")]
    Skew(Reason),
    /// The addresses of its network cannot be read.
    #[error("{0}")]
    Addresses(#[from] Malformed),
    /// The image is named by no SHA-256.
    #[error("{0:?} is no digest of an image")]
    Digest(String),
}

/// What is to be wished, in this order. `kept` is what is kept of the pool's workers; none where nothing was begun.
///
/// # Errors
/// When no worker can be made like that: nothing is wished then, and what there is stays as it is.
pub fn wishes(wanted: &WantedPool<'_>, kept: Option<&Kept>) -> Result<Vec<Wish>, Unfit> {
    let pool = pool(wanted)?;
    let Some(Kept { pool: before, .. }) = kept else { return Ok(vec![Wish::Create(Box::new(pool))]) };
    let mut wishes = Vec::new();
    let is_other_image = before.template.image != pool.template.image || before.carries != pool.carries;
    if is_other_image || before.template != pool.template || before.rollout != pool.rollout {
        let Pool { template: Template { image, size, labels, taints, .. }, rollout, carries, ova, .. } = pool.clone();
        let changes = Changes {
            processors: Some(size.processors),
            memory: Some(size.memory),
            data_disk: Some(size.data_disk.unwrap_or_default()),
            labels: Some(labels),
            taints: Some(taints),
            max_surge: Some(rollout.max_surge),
            max_unavailable: Some(rollout.max_unavailable),
            drain_seconds: Some(rollout.drain_seconds),
            join_seconds: Some(rollout.join_seconds),
            paused: Some(rollout.paused),
        };
        wishes.push(Wish::Replace {
            image: is_other_image.then_some(OvaImage { image, ova, carries }),
            cluster: wanted.cluster,
            kubernetes: None,
            changes: Box::new(changes),
            // What may be lost with a worker stands in its Machine.
            discards: Discards::default(),
        });
    }
    if before.count != pool.count {
        wishes.push(Wish::Scale(pool.count));
    }
    Ok(wishes)
}

/// What is wanted, in `fleet`'s words.
fn pool(wanted: &WantedPool<'_>) -> Result<Pool, Unfit> {
    let WantedPool { name, spec, class, image, digest, carries, cluster, addresses } = *wanted;
    let NodePoolSpec {
        cluster_ref,
        replicas,
        vm_class: _,
        zones: _,
        network: _,
        labels: _,
        taints: _,
        rollout,
        repair: _,
    } = spec;
    let minor = worker_minor(carries, cluster, None).map_err(Unfit::Skew)?;
    let template = Template {
        image: Image {
            digest: digits_of(digest).ok_or_else(|| Unfit::Digest(digest.to_owned()))?,
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
    let within = |prefix: &str| name.strip_prefix(prefix)?.strip_prefix('-');
    Ok(Pool {
        name: within(&cluster_ref.name).unwrap_or(name).to_owned(),
        prefix: name.to_owned(),
        count: *replicas as usize,
        template,
        // It is in the vCenter already.
        ova: PathBuf::new(),
        carries: carries.to_vec(),
        addresses: addresses.map(hosts).transpose()?,
        rollout: Rollout {
            max_surge: rollout.max_surge as usize,
            max_unavailable: rollout.max_unavailable as usize,
            drain_seconds: rollout.drain_seconds.into(),
            join_seconds: rollout.join_seconds.into(),
            paused: rollout.paused,
        },
        made: 0,
        powers_on: false,
        // By how many are ill it is decided when another one takes its place.
        keeps_lost: true,
    })
}

/// The addresses that hosts of a subnet can have.
fn hosts(pool: &IPPoolSpec) -> Result<Addresses, Malformed> {
    let (first, last, prefix) = subnet(pool)?;
    Ok(Addresses { first: Ipv4Addr::from(first + 1), last: Ipv4Addr::from(last - 1), prefix })
}

/// Holds labels and taints against what a node takes from its form: otherwise each would be refused there, after its VM was made.
fn is_taken_by_nodes(template: &Template) -> Result<(), Unfit> {
    let why = |problems: Vec<Problem>| problems.into_iter().map(|problem| problem.seen).collect::<Vec<_>>().join("; ");
    for (key, value) in &template.labels {
        let text = format!("{key}={value}");
        let refused = |why: String| Unfit::Refused(text.clone(), "label", why);
        match labels::labels(&text).map_err(|problems| refused(why(problems)))?.as_slice() {
            [label] if label.key == *key && label.value == *value => {}
            _ => return Err(refused("it reads as something else".to_owned())),
        }
    }
    for taint in &template.taints {
        let refused = |why: String| Unfit::Refused(taint.clone(), "taint", why);
        match labels::taints(taint).map_err(|problems| refused(why(problems)))?.as_slice() {
            [read] if read.to_string() == *taint => {}
            _ => return Err(refused("it reads as something else".to_owned())),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use fleet::workers::{Machine, State};
    use uuid::Uuid;

    use super::*;
    use crate::objects::{AddressRange, Effect, Reference, Repair, Taint};

    /// What a NodePool names, to be changed.
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
                gateway: None,
                dns_servers: Vec::new(),
                search_domains: Vec::new(),
            }),
        }
    }

    impl Case {
        fn wishes(&self, kept: Option<&Kept>) -> Result<Vec<Wish>, Unfit> {
            wishes(&self.wanted(), kept)
        }

        fn wanted(&self) -> WantedPool<'_> {
            WantedPool {
                name: "shop-general",
                spec: &self.spec,
                class: &self.class,
                image: "kaas-tenant-0.2.0",
                digest: &self.digest,
                carries: &self.carries,
                cluster: self.cluster,
                addresses: self.addresses.as_ref(),
            }
        }

        /// What is kept once all of it is wished.
        fn applied(&self, kept: Option<Kept>) -> Kept {
            let wishes = self.wishes(kept.as_ref()).unwrap();
            let kept = wishes.iter().fold(kept, |kept, wish| Some(wish.applied(kept, 9).unwrap()));
            kept.expect("a pool that is there, or was made")
        }
    }

    #[test]
    fn a_new_pool_is_made_as_its_object_has_it() {
        let kept = case().applied(None);
        let pool = &kept.pool;
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
        assert_eq!(Case { addresses: None, ..case() }.applied(None).pool.addresses, None);
    }

    /// From each of these to each other one, over workers that are there: in the end it is as if it had been made so.
    #[test]
    fn whatever_was_wanted_before_what_is_wanted_now_is_kept_and_wished_once() {
        let changes: [&dyn Fn(&mut Case); 11] = [
            &|_| (),
            &|case| case.spec.replicas = 0,
            &|case| case.spec.labels.clear(),
            &|case| case.spec.taints.clear(),
            &|case| case.spec.rollout.paused = true,
            &|case| (case.spec.rollout.max_surge, case.spec.rollout.max_unavailable) = (0, 2),
            &|case| (case.spec.rollout.drain_seconds, case.spec.rollout.join_seconds) = (0, 60),
            &|case| (case.class.processors, case.class.memory_mib, case.class.data_disk_gib) = (2, 4096, None),
            &|case| (case.digest, case.spec.replicas) = (format!("sha256:{}", "0b".repeat(32)), 5),
            &|case| {
                (case.carries, case.cluster) = (vec!["1.36".to_owned(), "1.37".to_owned()], "1.37".parse().unwrap())
            },
            &|case| case.cluster = "1.35".parse().unwrap(),
        ];
        let changed = |change: &dyn Fn(&mut Case)| {
            let mut case = case();
            change(&mut case);
            case
        };
        for (from, before) in changes.iter().enumerate() {
            for (to, after) in changes.iter().enumerate() {
                let kept = changed(*before).applied(None);
                let made = Machine { state: State::Failed, ..machine(&kept.pool) };
                let kept = Kept { machines: vec![made.clone()], ..kept };
                let (after, count) = (changed(*after), changed(*after).wishes(Some(&kept)).unwrap().len());
                assert_eq!(count == 0, from == to, "from {from} to {to}");
                let now = after.applied(Some(kept));
                assert_eq!(now.pool, after.applied(None).pool, "from {from} to {to}");
                assert_eq!(after.wishes(Some(&now)).unwrap(), [], "from {from} to {to}");
                // What has failed is looked at by a person, unless there are fewer wanted than there are.
                assert!(now.machines == [made] || after.spec.replicas == 0, "from {from} to {to}");
            }
        }
    }

    fn machine(pool: &Pool) -> Machine {
        let id = Uuid::from_u128(1);
        let machine = serde_json::json!({
            "name": pool.machine_name(1), "id": id, "template": pool.template, "address": null, "state": "member", "since": 1,
        });
        serde_json::from_value(machine).unwrap()
    }

    #[test]
    fn what_a_node_would_refuse_is_refused_before_its_vm_is_made() {
        let labels = include_str!("../../../contract/testdata/node-label-keys.txt");
        let mut seen = 0;
        for line in labels.lines().filter(|line| !line.starts_with('#')) {
            let (judged, key) = line.split_once(' ').unwrap();
            let mut case = case();
            case.spec.labels = [(key.to_owned(), "x".to_owned())].into();
            assert_eq!(case.wishes(None).is_ok(), judged == "own", "{key:?}");
            seen += 1;
        }
        assert!(seen > 40);
        let refused = |change: &dyn Fn(&mut Case)| {
            let mut case = case();
            change(&mut case);
            case.wishes(None).unwrap_err().to_string()
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
