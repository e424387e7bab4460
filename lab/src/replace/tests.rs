//! A lost node is only removed after another node has admitted the new VM, and never while another command holds the
//! lease.

use std::cell::RefCell;

use fleet::lease::TakeOver;
use fleet::upgrade::Journal;
use serde_json::json;
use tempfile::TempDir;

use super::super::process::ProcessId;
use super::super::{EngineRecord, Hardware, fixture};
use super::*;

const SWAP: Uuid = Uuid::from_u128(7);

/// A lab of three nodes of which the third is off. The others have another image than the lab.
fn lab() -> (TempDir, Lab) {
    let state = tempfile::tempdir().unwrap();
    let newer = fixture::source(&state.path().join("new"));
    let lab = fixture::lab(state.path(), 3, fixture::source(&state.path().join("old")));
    for (node, number) in lab.plan().nodes.iter().zip(1..) {
        let stamp = Stamp { deployment: lab.deployment(), node: node.name.clone(), swap: None };
        add(&lab, &node.name, stamp, Some(number));
        let mut vm = lab.directory.load_vm(&node.name).unwrap();
        if number != 3 {
            // The lab sees it as on.
            vm.engine = EngineRecord::Container;
            vm.process = ProcessId::of(std::process::id().try_into().unwrap());
            vm.source = newer.clone();
        }
        lab.directory.save_vm(&vm).unwrap();
    }
    (state, lab)
}

/// Creates a VM, with a disk of this number of bytes.
fn add(lab: &Lab, name: &str, stamp: Stamp, disk: Option<u64>) {
    let new = NewVm {
        memory: 3072,
        processors: 4,
        engine: EngineRecord::Qemu { kvm: false, hardware: Hardware::Quick },
        ..fixture::vm(name, Some(stamp))
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

/// Replaces cp3 with these answers of the nodes. Returns the result and the nodes that were asked.
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
fn a_node_without_admission_keeps_vm_and_disk() {
    let (_state, lab) = lab();
    let before = all(&lab);
    let (done, asked) = replace(&lab, &BlankVm::default(), |_| bail!("etcd here has no quorum"));
    let why = done.unwrap_err().to_string();
    assert!(why.contains("no node admits cp3") && why.contains("cp2: etcd here has no quorum"), "{why}");
    assert_eq!(asked, ["cp1", "cp2"]);
    assert_eq!(all(&lab), before);
    // Properties that vCenter would refuse are refused before any node is asked.
    let wrong = BlankVm { properties: [("no-such-key".to_owned(), "x".to_owned())].into(), ..BlankVm::default() };
    assert_eq!(replace(&lab, &wrong, |_| bail!("asked")).1, [""; 0]);
}

#[test]
fn the_first_agreeing_node_admits_the_vm() {
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
    // No program can write its CD-ROM, which is the step after its record.
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
fn nothing_changes_while_another_command_holds_the_lease() {
    let (_state, lab) = lab();
    let before = all(&lab);
    let (done, asked) = lab.with_lease(&asking(), async |_| Ok(replace_elsewhere(&lab))).unwrap();
    let why = done.unwrap_err();
    assert!(why.is::<fleet::lease::Held>(), "{why:#}");
    assert_eq!((asked, all(&lab)), (Vec::<String>::new(), before));
}

/// Replaces cp3 on another thread, as another command does: a runtime cannot run inside another one.
fn replace_elsewhere(lab: &Lab) -> (anyhow::Result<ReplacedNode>, Vec<String>) {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| replace(lab, &BlankVm::default(), |_| bail!("asked")));
        other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[test]
fn vms_of_an_open_swap_are_left_unchanged() {
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
