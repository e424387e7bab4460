//! What a worker is made like, and when it is outdated: by an explicit list of fields, and by nothing else. A new version of the
//! controller that knows further fields finds no worker outdated for them, as long as they say what was so before.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::objects::{MachineSpec, Taint};

/// All that makes a worker outdated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// The digest of the image. What it is called makes no difference.
    pub image: String,
    /// The minor of Kubernetes. An older one than is wanted is outdated, a newer one is not.
    pub kubernetes: String,
    /// The network of the Provider.
    pub network: String,
    /// Virtual processors.
    pub processors: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Data disk in GiB; none without one.
    pub data_disk_gib: Option<u32>,
    /// Labels of the node when it joins.
    pub labels: BTreeMap<String, String>,
    /// Taints of the node when it joins, in whichever order.
    pub taints: BTreeSet<Taint>,
}

impl Made {
    /// What a Machine was made like.
    pub fn of(machine: &MachineSpec) -> Self {
        Self {
            image: machine.image.digest.clone(),
            kubernetes: machine.kubernetes.clone(),
            network: machine.network.clone(),
            processors: machine.processors,
            memory_mib: machine.memory_mib,
            data_disk_gib: machine.data_disk_gib,
            labels: machine.labels.clone(),
            taints: machine.taints.iter().cloned().collect(),
        }
    }

    /// Its hash, as `status.template` has it: `sha256:` and hexadecimal digits. A field that comes later is written only where it
    /// is not what it was before it came.
    pub fn hash(&self) -> String {
        let Self { image, kubernetes, network, processors, memory_mib, data_disk_gib, labels, taints } = self;
        let mut text = format!(
            "image {image:?}\nkubernetes {kubernetes:?}\nnetwork {network:?}\nprocessors {processors}\nmemory {memory_mib}\n"
        );
        if let Some(size) = data_disk_gib {
            let _ = writeln!(text, "data-disk {size}");
        }
        for (key, value) in labels {
            let _ = writeln!(text, "label {key:?} {value:?}");
        }
        for Taint { key, value, effect } in taints {
            let _ = writeln!(text, "taint {key:?} {value:?} {effect:?}");
        }
        let digest = Sha256::digest(text.as_bytes());
        digest.iter().fold("sha256:".to_owned(), |mut hash, byte| {
            let _ = write!(hash, "{byte:02x}");
            hash
        })
    }

    /// Whether a worker that was made like this is outdated by what is wanted.
    pub fn is_outdated_by(&self, wanted: &Self) -> bool {
        // The kinds take no other major than 1, and no text that is no minor.
        let minor = |made: &Self| made.kubernetes.strip_prefix("1.").and_then(|minor| minor.parse::<u16>().ok());
        let is_older = match (minor(self), minor(wanted)) {
            (Some(made), Some(wanted)) => made < wanted,
            _ => self.kubernetes != wanted.kubernetes,
        };
        let with_minor_of = |made: &Self| Self { kubernetes: wanted.kubernetes.clone(), ..made.clone() };
        is_older || with_minor_of(self) != *wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Removal;
    use crate::objects::fixture::worker;

    /// A hash that is another one for what an earlier version has made would have every worker of every cluster replaced.
    #[test]
    fn a_new_version_of_the_controller_replaces_nobody() {
        let kept = [
            (Made::of(&worker()).hash(), WHOLE),
            (
                Made { data_disk_gib: None, labels: BTreeMap::new(), taints: BTreeSet::new(), ..Made::of(&worker()) }
                    .hash(),
                BARE,
            ),
        ];
        for (hash, kept) in kept {
            assert_eq!(hash, kept, "what version 0.1 has made is outdated");
        }
    }

    /// As version 0.1 has written them. They never change.
    const WHOLE: &str = "sha256:23707b792d4f6f8ac48d2fa15b4b2e76cdcc148f409df8e4b6d423a5d9f915ea";
    const BARE: &str = "sha256:faa0aff6fe732f343b142072ef4f2fecfeeeaa6d73ccf7d487f31a3bc506c770";

    #[test]
    fn what_makes_a_worker_outdated_is_listed_and_all_else_does_not() {
        let made = Made::of(&worker());
        let outdates = |change: &dyn Fn(&mut MachineSpec)| {
            let mut wanted = worker();
            change(&mut wanted);
            let wanted = Made::of(&wanted);
            assert_eq!(made.hash() != wanted.hash(), made != wanted, "the hash is of the same fields");
            made.is_outdated_by(&wanted)
        };
        let listed: [&dyn Fn(&mut MachineSpec); 8] = [
            &|wanted| wanted.image.digest = format!("sha256:{}", "0b".repeat(32)),
            &|wanted| wanted.kubernetes = "1.37".to_owned(),
            &|wanted| wanted.network = "green".to_owned(),
            &|wanted| wanted.processors = 8,
            &|wanted| wanted.memory_mib = 8192,
            &|wanted| wanted.data_disk_gib = None,
            &|wanted| drop(wanted.labels.insert("a".to_owned(), String::new())),
            &|wanted| drop(wanted.taints.pop()),
        ];
        for (place, change) in listed.iter().enumerate() {
            assert!(outdates(*change), "the change at {place}");
        }
        let others: [&dyn Fn(&mut MachineSpec); 6] = [
            &|_| (),
            &|wanted| wanted.image.name = "another word for it".to_owned(),
            &|wanted| wanted.kubernetes = "1.9".to_owned(),
            &|wanted| wanted.zone = "b".to_owned(),
            &|wanted| wanted.taints.reverse(),
            &|wanted| (wanted.removal, wanted.discards.bare_pods) = (Removal::KeepVm, true),
        ];
        for (place, change) in others.iter().enumerate() {
            assert!(!outdates(*change), "the change at {place}");
        }
    }
}
