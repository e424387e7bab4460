//! Nothing of a lost node is removed before somebody has let the new one in, nor while others are at work.

use std::cell::RefCell;

use fleet::lease::TakeOver;
use fleet::upgrade::Journal;
use serde_json::json;
use tempfile::TempDir;

use super::super::process::ProcessId;
use super::super::{EngineRecord, Hardware, fixture};
use super::*;

const SWAP: Uuid = Uuid::from_u128(7);

/// A lab of three nodes of which the third is off. The others have another image than it was made from.
fn lab() -> (TempDir, Lab) {
    let state = tempfile::tempdir().unwrap();
    let newer = fixture::source(&state.path().join("new"));
    let lab = fixture::lab(state.path(), 3, fixture::source(&state.path().join("old")));
    for (node, number) in lab.plan().nodes.iter().zip(1..) {
        let stamp = Stamp { deployment: lab.deployment(), node: node.name.clone(), swap: None };
        add(&lab, &node.name, stamp, Some(number));
        let mut vm = lab.directory.load_vm(&node.name).unwrap();
        if number != 3 {
            // It is on, as far as the lab can see.
            vm.engine = Some(EngineRecord::Container);
            vm.process = ProcessId::of(std::process::id().try_into().unwrap());
            vm.source = newer.clone();
        }
        lab.directory.save_vm(&vm).unwrap();
    }
    (state, lab)
}

/// A VM, with a disk of so many bytes.
fn add(lab: &Lab, name: &str, stamp: Stamp, disk: Option<u64>) {
    let new = NewVm {
        name: name.to_owned(),
        memory: 3072,
        processors: 4,
        data_disk: None,
        network_interface: true,
        properties: BTreeMap::new(),
        source: None,
        engine: EngineRecord::Qemu { kvm: false, hardware: Hardware::Quick },
        stamp: Some(stamp),
        in_order_uuid: false,
    };
    lab.make_vm(&new).unwrap();
    let Some(size) = disk else { return };
    let mut vm = lab.directory.load_vm(name).unwrap();
    vm.disks.push(Uuid::from_u128(size.into()));
    lab.directory.save_vm(&vm).unwrap();
    let file = lab.directory.disk(Uuid::from_u128(size.into()));
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::File::create(&file).unwrap().set_len(size).unwrap();
}

fn asking() -> LeaseRequest<'static> {
    LeaseRequest { what: "a test", over: TakeOver::FromTheDead, say: &|_| {} }
}

/// Replaces cp3 where the nodes answer so; says who was asked.
fn replace(
    lab: &Lab,
    by: &BlankVm,
    answer: impl Fn(&str) -> anyhow::Result<String>,
) -> (anyhow::Result<ReplacedNode>, Vec<String>) {
    let asked = RefCell::new(Vec::new());
    let ask = |vm: &str| {
        asked.borrow_mut().push(vm.to_owned());
        answer(vm)
    };
    let planned = lab.replaceable("cp3").unwrap();
    let done = lab.with_lease(&asking(), async |hold| lab.replace_under(hold, planned, by, &ask).await);
    (done, asked.into_inner())
}

fn all(lab: &Lab) -> Vec<VmRecord> {
    lab.directory.vms().unwrap().iter().map(|vm| lab.directory.load_vm(vm).unwrap()).collect()
}

#[test]
fn a_lost_node_that_nobody_lets_in_keeps_its_vm_and_its_disk() {
    let (_state, lab) = lab();
    let before = all(&lab);
    let (done, asked) = replace(&lab, &BlankVm::default(), |_| bail!("etcd here has no quorum"));
    let why = done.unwrap_err().to_string();
    assert!(why.contains("nobody lets cp3 in") && why.contains("cp2: etcd here has no quorum"), "{why}");
    assert_eq!(asked, ["cp1", "cp2"]);
    assert_eq!(all(&lab), before);
    // What vCenter would refuse is refused before anybody is asked.
    let wrong = BlankVm { properties: [("no-such-key".to_owned(), "x".to_owned())].into(), ..BlankVm::default() };
    assert_eq!(replace(&lab, &wrong, |_| bail!("asked")).1, [""; 0]);
}

#[test]
fn the_first_node_that_agrees_lets_in_a_vm_of_its_image_with_what_the_cluster_agrees_on() {
    let (_state, lab) = lab();
    let lost = lab.directory.load_vm("cp3").unwrap();
    let answer = |vm: &str| {
        if vm == "cp1" {
            bail!("it is hung");
        }
        let properties = json!({"pod-security": "privileged", "vxlan-port": "4790", "api-vip": "", "unknown": "x"});
        Ok(json!({"node": "cp3", "code": "c0de".repeat(8), "expires": "", "properties": properties}).to_string())
    };
    let by = BlankVm { properties: [("vxlan-port".to_owned(), "4791".to_owned())].into(), ..BlankVm::default() };
    // Nothing is there to burn its CD-ROM with, which comes after its record.
    let why = format!("{:#}", replace(&lab, &by, answer).0.unwrap_err());
    assert!(why.contains("making the CD-ROM"), "{why}");
    let new = lab.directory.load_vm("cp3").unwrap();
    let (like, environment) = (lab.directory.load_vm("cp2").unwrap(), lab.environment("cp3").unwrap());
    assert_ne!(new.uuid, lost.uuid);
    assert_eq!((new.source, new.memory, new.processors), (like.source, 3072, 4));
    for part in ["c0dec0de", "privileged", "4791"] {
        assert!(environment.contains(part), "{part}: {environment}");
    }
    assert!(!environment.contains("4790") && !environment.contains("192.168.77.10\""), "{environment}");
    assert!(lab.directory.disk(lost.disks[0]).exists());
}

#[test]
fn nothing_is_done_while_somebody_is_at_work_on_the_control_nodes() {
    let (_state, lab) = lab();
    let before = all(&lab);
    let (done, asked) = lab.with_lease(&asking(), async |_| Ok(replace_elsewhere(&lab))).unwrap();
    let why = done.unwrap_err();
    assert!(why.is::<fleet::lease::Held>(), "{why:#}");
    assert_eq!((asked, all(&lab)), (Vec::<String>::new(), before));
}

/// Replaces cp3 as another command does: on another thread, for a runtime has no other one inside.
fn replace_elsewhere(lab: &Lab) -> (anyhow::Result<ReplacedNode>, Vec<String>) {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| replace(lab, &BlankVm::default(), |_| bail!("asked")));
        other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[test]
fn a_vm_of_a_swap_that_has_not_ended_is_left_to_the_upgrade() {
    let (_state, lab) = lab();
    let stamp = Stamp { deployment: lab.deployment(), node: "cp3".to_owned(), swap: Some(SWAP) };
    add(&lab, "cp3-abcdef1", stamp, None);
    let node = json!({
        "name": "cp3", "address": "10.0.0.13", "old": Uuid::nil(), "old_name": "cp3", "new_name": "cp3-abcdef1",
        "disk": {"uuid": Uuid::nil(), "path": "p"}, "adapters": [], "identity": Uuid::nil(), "member": "e0",
        "from": {"version": "0.1.0", "build": "aaaaaaa"}, "swap": SWAP, "leads": false, "holds_address": false,
    });
    let plan = serde_json::from_value(json!({
        "id": Uuid::nil(), "deployment": lab.deployment(), "cluster": Uuid::nil(), "members": [],
        "target": {"ova": "/new.ova", "digest": "d", "name": "x", "image": {"version": "0.2.0", "build": "abcdef1"},
            "kubernetes": ["1.36"], "signer": null},
        "options": {"mode": "rolling", "gate_seconds": 1, "drain_seconds": 1, "on_failure": "node", "downgrade": false,
            "publisher": null},
        "grounds": [], "nodes": [node], "steps": [{"action": "verify"}],
    }))
    .unwrap();
    lab.with_lease(&asking(), async |hold| Journal::begin(hold, plan).await.map(drop)).unwrap();
    let before = all(&lab);
    let (done, asked) = replace(&lab, &BlankVm::default(), |_| bail!("asked"));
    let why = done.unwrap_err().to_string();
    assert!(why.starts_with("cp3-abcdef1 takes cp3's part in an upgrade that has not ended"), "{why}");
    assert_eq!((asked, all(&lab)), (Vec::<String>::new(), before));
}
