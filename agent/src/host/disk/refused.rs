//! Why this VM may not take a data disk, and the operator's options. Decides nothing.

use std::path::Path;

use contract::codes::{self, Code};
use contract::finding::Finding;

use super::identity::Identity;
use crate::host::disk::ownership::{Claimant, Refusal};

/// The findings of [`not_ours`], which the operator may override with a forced adoption.
pub const OVERRULED: [&Code; 5] = [
    &codes::DISK_HELD_ELSEWHERE,
    &codes::DISK_OTHER_IMAGE,
    &codes::IMAGE_DOWNGRADE,
    &codes::IMAGE_FROM_VERSION,
    &codes::IMAGE_PUBLISHER,
];

pub fn beside_worker(disk: &Path) -> Finding {
    codes::DISK_BESIDE_WORKER.finding(
        disk.display().to_string(),
        "it is the data disk of a control-plane node, and this VM is a worker",
        "Detach the disk, and attach it to another VM; or reset this VM first",
    )
}

pub(super) fn words_of_worker(identity: &Identity) -> String {
    format!("the local volumes of worker {} of cluster {}", identity.node, identity.cluster)
}

pub(super) fn of_worker(disk: &Path, identity: &Identity) -> Finding {
    codes::DISK_OF_WORKER.finding(
        disk.display().to_string(),
        format!("it holds {}, and this VM is not that worker; nothing was changed", words_of_worker(identity)),
        format!(
            "Detach it. A VM that joins that cluster as {} finds its volumes on it; elsewhere its fourth partition can be \
             mounted to copy them: mount -o ro,noload",
            identity.node
        ),
    )
}

pub(super) fn not_ours(name: &str, identity: &Identity, refusal: &Refusal, claimant: &Claimant) -> Finding {
    let (Identity { node, cluster, .. }, own) = (identity, &claimant.own);
    let whose = format!("it is the data disk of node {node} of cluster {cluster}");
    match refusal {
        Refusal::Held(holder) => codes::DISK_HELD_ELSEWHERE.finding(
            name,
            format!(
                "{whose}, held by the VM with BIOS UUID {}, which has not released it; this VM is {}",
                holder.for_search(),
                own.vm.map_or("without a BIOS UUID".to_owned(), |own| own.to_string())
            ),
            format!(
                "Attach it to that VM again and shut that down cleanly, which releases it; if that VM is proved off for \
                 good: {}",
                by_hand(node, "")
            ),
        ),
        Refusal::OtherImage(image) => codes::DISK_OTHER_IMAGE.finding(
            name,
            format!(
                "{whose}, which was released for image {} (build {}); this VM runs {} (build {})",
                image.version, image.build, own.version, own.build
            ),
            format!(
                "Attach it to a VM of that image, or to the node's former VM; if neither is available: {}",
                by_hand(node, "")
            ),
        ),
        Refusal::Older(last) => codes::IMAGE_DOWNGRADE.finding(
            name,
            format!("{whose}, last used by image {last}, and this VM's image is {}, which is older", own.version),
            format!(
                "Attach it to a VM of image {last} or newer; to go back nevertheless, at your own risk: {}",
                by_hand(node, " --downgrade")
            ),
        ),
        Refusal::FromVersion { last, allowed } => codes::IMAGE_FROM_VERSION.finding(
            name,
            format!(
                "{whose}, last used by image {last}, and this VM's image, {}, may take the place of {allowed} only",
                own.version
            ),
            format!(
                "Attach it to a VM of an image that may follow {last}, or to the node's former VM; to go on with this one \
                 nevertheless, at your own risk: {}",
                by_hand(node, " --any-version")
            ),
        ),
        Refusal::Publisher(pinned) => codes::IMAGE_PUBLISHER.finding(
            name,
            format!(
                "{whose}, where the publisher's key {pinned} is pinned, and this VM's image is {}",
                match &claimant.publisher {
                    Some(key) => format!("signed with {key}"),
                    None => "a development image, which is not signed".to_owned(),
                }
            ),
            format!(
                "Attach it to a VM of an image of that publisher, or to the node's former VM; if this image is to be \
                 trusted nevertheless: {}",
                by_hand(node, " --publisher-changed")
            ),
        ),
    }
}

/// The override, on the console: without the data disk no login is possible.
fn by_hand(node: &str, option: &str) -> String {
    format!(
        "\"Force-adopt the data disk\" on this VM's console, or as root `kaas-agent force-adopt --confirm {node}{option}` here"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::disk::fixture;
    use contract::swap::{Image, VmImage};

    #[test]
    fn each_refusal_has_its_code_and_option() {
        let own = VmImage { vm: None, version: "2.0.0".into(), build: "b".into() };
        let image = Image { version: "2.0.0".into(), build: "c".into() };
        let claimant = Claimant { own, publisher: None, upgrades_from: None };
        let from = Refusal::FromVersion { last: "1.0.0".into(), allowed: ">=1.1.0".parse().unwrap() };
        for (refusal, code, option) in [
            (Refusal::Held(contract::bios_uuid::BiosUuid::from_u128(0)), "disk.held-elsewhere", "cp-1`"),
            (Refusal::OtherImage(image), "disk.other-image", "cp-1`"),
            (Refusal::Older("3.0.0".into()), "image.downgrade", "cp-1 --downgrade`"),
            (from, "image.from-version", "cp-1 --any-version`"),
            (Refusal::Publisher("key".into()), "image.publisher", "cp-1 --publisher-changed`"),
        ] {
            let finding = not_ours("/dev/sdb", &fixture::identity(), &refusal, &claimant);
            assert_eq!(finding.code, code);
            assert!(finding.action.contains(option), "{finding}");
            assert!(OVERRULED.iter().any(|one| one.code == code), "{code}");
        }
    }
}
