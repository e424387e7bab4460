use std::fs;

use contract::bios_uuid::BiosUuid;
use contract::node::HealthySince;
use contract::swap::{Image, VmImage};

use super::*;
use crate::cluster::etcd::fake;
use crate::host::disk::Swap;
use crate::host::disk::ownership::Claimant;
use crate::host::disk::{DiskState, fixture, slots};
use crate::host::files;
use crate::intake::config::fixture::{image, one_node};
use crate::status::{Reporter, Status};
use crate::upgrade::swap::context::AnnouncementLock;
use crate::upgrade::swap::{adopt, node_record};

const A: BiosUuid = BiosUuid::from_u128(0xa);
const B: BiosUuid = BiosUuid::from_u128(0xb);

fn user(vm: BiosUuid, version: &str) -> VmImage {
    VmImage { vm: Some(vm), version: version.into(), build: image().build }
}

/// A cluster of one node whose disk is a file.
pub(crate) fn context(root: &std::path::Path, swap: Option<Swap>) -> SwapContext {
    let disk = root.join("disk");
    if !disk.exists() {
        fs::File::create(&disk).unwrap().set_len(8 << 20).unwrap();
    }
    let whose = Identity {
        node: "node1".into(),
        generation: 2,
        holder: Some(B),
        state: DiskState::Formed,
        publisher: None,
        swap,
        ..fixture::identity()
    };
    slots::write(&disk, &whose).unwrap();
    let config = one_node();
    fs::create_dir_all(root.join("data/kaas")).unwrap();
    SwapContext {
        announcer: node_record::Announcer::new(&config, root, root, &disk, "b").unwrap(),
        config,
        root: root.to_owned(),
        pki: root.to_owned(),
        image: image(),
        disk,
        own: user(B, "0.1.0"),
        reporter: Reporter::new(root, Status::default()),
        announcement_lock: AnnouncementLock::default(),
    }
}

/// The same, with keys for an etcd that is off.
fn without_etcd(root: &std::path::Path, swap: Option<Swap>) -> SwapContext {
    let mut context = context(root, swap);
    fake::off(&mut context.config, root);
    context.announcer = node_record::Announcer::new(&context.config, root, root, &context.disk, "b").unwrap();
    context
}

pub(crate) fn claimant(context: &SwapContext) -> Claimant {
    let (publisher, upgrades_from) = (context.image.publisher.clone(), context.image.upgrades_from.clone());
    Claimant { own: context.own.clone(), publisher, upgrades_from }
}

pub(crate) fn request(id: u128) -> Request {
    let to = Image { version: "0.2.0".into(), build: "c".repeat(32) };
    Request { id: Uuid::from_u128(id), to, drain_seconds: 1, downgrade: false, publisher: None }
}

pub(crate) fn taken() -> Option<Swap> {
    Some(Swap {
        id: Uuid::from_u128(7),
        from: user(A, "0.0.9"),
        to: None,
        released: None,
        forced: false,
        publisher: None,
    })
}

pub(crate) fn evacuation(id: u128) -> EvacuationRequest {
    EvacuationRequest { id: Uuid::from_u128(id), drain_seconds: 1 }
}

/// Returns nothing, as kubectl without a cluster.
pub(crate) struct Nothing;

impl Runner for Nothing {
    fn run(&self, _: &crate::host::command::Command) -> Result<Vec<u8>, crate::host::command::Error> {
        Ok(Vec::new())
    }
}

#[test]
fn closed_manager_refuses_requests() {
    let manager = SwapManager::default();
    assert_eq!(manager.begin(request(1)).unwrap_err().code, "swap.not-ready");
    assert_eq!(manager.commit(None).unwrap_err().code, "swap.not-ready");
    assert_eq!(manager.cancel(Uuid::from_u128(1), &Nothing), Ok(true));
    assert_eq!(manager.state(), None);
}

#[test]
fn node_that_is_not_ready_refuses_swaps() {
    let root = tempfile::tempdir().unwrap();
    let manager = SwapManager::default();
    manager.open(context(root.path(), None)).unwrap();
    assert_eq!(manager.begin(request(1)).unwrap_err().code, "swap.not-ready");
    assert_eq!(manager.evacuate(evacuation(1)).unwrap_err().code, "swap.not-ready");
    assert_eq!((manager.state(), manager.evacuation(), manager.under_way()), (None, None, None));
}

#[test]
fn cancelled_request_never_begins() {
    let root = tempfile::tempdir().unwrap();
    let manager = SwapManager::default();
    manager.open(context(root.path(), None)).unwrap();
    // The first client has gone. Another one withdraws the request while the members are still being asked.
    let begun = manager.leave_if(Purpose::Swap(request(3)), |_| {
        assert_eq!(manager.cancel(Uuid::from_u128(3), &Nothing), Ok(true));
        Ok(())
    });
    assert_eq!(begun.unwrap_err().code, "swap.withdrawn");
    // The same for a request that arrives even later.
    let late = manager.leave_if(Purpose::Evacuation(evacuation(3)), |_| panic!("it is judged"));
    assert_eq!(late.unwrap_err().code, "swap.withdrawn");
    assert_eq!((manager.state(), manager.evacuation(), manager.under_way()), (None, None, None));
    // Another one begins. There is no etcd here to announce it to.
    assert_eq!(manager.leave_if(Purpose::Swap(request(4)), |_| Ok(())), Ok(Stage::Judging));
}

#[test]
fn taken_disk_is_committed_after_a_healthy_boot() {
    let root = tempfile::tempdir().unwrap();
    let context = context(root.path(), taken());
    let (manager, reporter) = (SwapManager::default(), context.reporter.clone());
    manager.open(context.clone()).unwrap();
    assert_eq!(manager.state().map(|state| state.stage), Some(Stage::Taken));
    assert!(reporter.status().page().contains("taken over from image 0.0.9, not committed yet"));
    assert_eq!(manager.begin(request(1)).unwrap_err().code, "swap.taken");
    assert_eq!(manager.cancel(Uuid::from_u128(7), &Nothing).unwrap_err().code, "swap.taken");
    assert_eq!(manager.commit(None).unwrap_err().code, "swap.not-good");
    assert!(context.identity().unwrap().swap.is_some());
    let good = files::below(root.path(), boot_health::HEALTHY_FILE);
    files::write_atomically(&good, &serde_json::to_vec(&HealthySince { since: 1 }).unwrap(), 0o644).unwrap();
    let swap = manager.state().unwrap().id;
    let refused = manager.commit(Some(Uuid::from_u128(!swap.as_u128()))).unwrap_err();
    assert!(refused.code == "swap.another" && refused.reason.contains(&swap.to_string()), "{refused}");
    assert!(context.identity().unwrap().swap.is_some());
    assert_eq!(manager.commit(Some(swap)), Ok(true));
    assert_eq!(context.identity().unwrap().swap, None);
    assert_eq!(manager.commit(Some(swap)), Ok(false));
    assert_eq!(manager.commit(None), Ok(false));
    assert_eq!(reporter.status().swap, None);
    let log = fs::read_to_string(root.path().join("data/kaas/swaps.log")).unwrap();
    assert!(log.contains("is committed: image 0.1.0 stays"), "{log}");
}

#[test]
fn disk_is_not_reported_taken_too_early() {
    let root = tempfile::tempdir().unwrap();
    let context = context(root.path(), taken());
    let held = context.identity().unwrap();
    slots::write(&context.disk, &Identity { holder: None, ..held.clone() }).unwrap();
    let manager = SwapManager::default();
    manager.taken().unwrap();
    manager.open(context.clone()).unwrap();
    manager.taken().unwrap();
    assert_eq!(manager.state(), None);
    slots::write(&context.disk, &held).unwrap();
    manager.taken().unwrap();
    assert_eq!(manager.state().map(|state| (state.stage, state.id)), Some((Stage::Taken, Uuid::from_u128(7))));
}

#[test]
fn commit_pins_the_named_key_of_the_image() {
    let good = |root: &std::path::Path| {
        let good = files::below(root, boot_health::HEALTHY_FILE);
        files::write_atomically(&good, &serde_json::to_vec(&HealthySince { since: 1 }).unwrap(), 0o644).unwrap();
    };
    let named = |key: &str| taken().map(|swap| Swap { publisher: Some(key.into()), ..swap });
    // The named publisher has not signed the running image: nothing changes.
    let root = tempfile::tempdir().unwrap();
    let other = context(root.path(), named("SHA256:named"));
    other.write(&Identity { publisher: Some("SHA256:pinned".into()), ..other.identity().unwrap() }).unwrap();
    let manager = SwapManager::default();
    manager.open(other.clone()).unwrap();
    good(root.path());
    assert_eq!(manager.commit(None), Ok(true));
    let kept = other.identity().unwrap();
    assert_eq!((kept.publisher.as_deref(), kept.swap), (Some("SHA256:pinned"), None));
    // The cluster's record is written first. etcd is off here, so nothing is committed.
    let root = tempfile::tempdir().unwrap();
    let mut signed = without_etcd(root.path(), named("SHA256:named"));
    signed.image.publisher = Some("SHA256:named".into());
    assert_eq!(signed.next_publisher(&signed.identity().unwrap()).as_deref(), Some("SHA256:named"));
    let manager = SwapManager::default();
    manager.open(signed.clone()).unwrap();
    good(root.path());
    let refused = manager.commit(None).unwrap_err();
    assert_eq!(refused.code, "swap.failed");
    fake::is_off(&signed.config, &refused.reason);
    assert!(signed.identity().unwrap().swap.is_some());
}

#[test]
fn preparation_survives_a_restart_of_the_agent() {
    let root = tempfile::tempdir().unwrap();
    let prepared = |id| Swap {
        id: Uuid::from_u128(id),
        from: user(B, "0.1.0"),
        to: Some(request(id).to),
        released: None,
        forced: false,
        publisher: None,
    };
    let context = without_etcd(root.path(), None);
    adopt::take(root.path(), &context.disk, &claimant(&context)).unwrap();
    context.set_swap(Some(prepared(3))).unwrap();
    let saved = PreparationRecord { stage: Stage::Prepared, ..PreparationRecord::begun(Purpose::Swap(request(3))) };
    saved.save(root.path()).unwrap();
    let manager = SwapManager::default();
    manager.open(context.clone()).unwrap();
    assert_eq!(manager.under_way(), Some(Uuid::from_u128(3)));
    assert_eq!(manager.begin(request(3)), Ok(Stage::Prepared));
    assert_eq!(manager.begin(request(4)).unwrap_err().code, "swap.another");
    // Withdrawing another one does not withdraw it.
    assert_eq!(manager.cancel(Uuid::from_u128(4), &Nothing), Ok(true));
    assert!(context.identity().unwrap().swap.is_some());
    // The cluster cannot be informed, but the disk is as before.
    let refused = manager.cancel(Uuid::from_u128(3), &Nothing).unwrap_err();
    assert_eq!(refused.code, "swap.failed");
    fake::is_off(&context.config, &refused.reason);
    assert_eq!(context.identity().unwrap().swap, None);
}

#[test]
fn evacuated_node_refuses_commit() {
    let root = tempfile::tempdir().unwrap();
    let context = context(root.path(), taken());
    let saved =
        PreparationRecord { stage: Stage::Prepared, ..PreparationRecord::begun(Purpose::Evacuation(evacuation(5))) };
    saved.save(root.path()).unwrap();
    let good = files::below(root.path(), boot_health::HEALTHY_FILE);
    files::write_atomically(&good, &serde_json::to_vec(&HealthySince { since: 1 }).unwrap(), 0o644).unwrap();
    let (manager, reporter) = (SwapManager::default(), context.reporter.clone());
    manager.open(context.clone()).unwrap();
    assert_eq!(manager.state().map(|state| state.stage), Some(Stage::Taken));
    assert_eq!(manager.under_way(), Some(Uuid::from_u128(5)));
    assert_eq!(manager.evacuate(evacuation(5)), Ok(Stage::Prepared));
    assert!(reporter.status().page().contains("evacuated: shut this VM down"));
    assert_eq!(manager.evacuate(evacuation(6)).unwrap_err().code, "swap.another");
    assert_eq!(manager.begin(request(1)).unwrap_err().code, "swap.another");
    let refused = manager.commit(None).unwrap_err();
    assert!(refused.code == "swap.another" && refused.reason.contains("the evacuation 0"), "{refused}");
    assert_eq!(context.identity().unwrap().swap, taken());
}

#[test]
fn node_without_a_record_has_no_swap() {
    let root = tempfile::tempdir().unwrap();
    let manager = SwapManager::default();
    manager.open(context(root.path(), None)).unwrap();
    assert_eq!(manager.state(), None);
    assert_eq!(manager.commit(None), Ok(false));
}
