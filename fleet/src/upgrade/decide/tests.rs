use super::*;
use crate::hypervisor::{ErrorKind, PowerState, VmRef, VmSize};
use crate::upgrade::entry::{Direction, Outcome};
use crate::upgrade::tests::command::wait;
use crate::upgrade::tests::fake::fault::{At, Fault};
use crate::upgrade::tests::fake::{DEPLOYMENT, Ill, NODES, SMALL, World, data, disk, new, old, old_vm, options};
use crate::upgrade::{DescribedPublisher, DiskCopy, Earlier, KeptCopy};
use contract::node::Node;
use contract::swap::{self, Stage, VmImage};

/// The image, with the same name in every plan.
fn target() -> Target {
    Target {
        ova: "/images/kaas-control-plane-0.2.0.ova".into(),
        digest: "d".repeat(64),
        name: "kaas-control-plane".into(),
        image: new(),
        upgrades_from: Some(">=0.1.0".parse().unwrap()),
        etcd: Some("3.6".parse().unwrap()),
        kubernetes: vec!["1.36".into(), "1.35".into()],
        signer: Some("SHA256:publisher".into()),
    }
}

fn inventory(nodes: usize) -> Inventory {
    let mut world = World::of(nodes, Mode::Rolling, Ill::Well);
    world.publisher = target().signer;
    wait(world.inventory())
}

fn decided(nodes: usize, mode: Mode) -> Plan {
    plan(&inventory(nodes), &target(), &options(mode), Uuid::from_u128(1)).unwrap()
}

/// The steps with the nodes' numbers.
fn steps(plan: &Plan) -> String {
    let step = |step: &Step| match step.node {
        Some(node) => format!("{:?} {node}", step.action),
        None => format!("{:?}", step.action),
    };
    plan.steps.iter().map(step).collect::<Vec<_>>().join(", ")
}

#[test]
fn steps_are_rolling_or_at_once() {
    const ONE: &str =
        "Verify, Snapshot, CloneVm 0, Prepare 0, ShutDown 0, Fence 0, Detach 0, Attach 0, PowerOn 0, Gate 0";
    let swap = |node: usize| ONE.replace("Verify, Snapshot, ", "").replace('0', &node.to_string());
    assert_eq!(steps(&decided(1, Mode::Rolling)), ONE);
    assert_eq!(steps(&decided(3, Mode::Rolling)), format!("{ONE}, {}, {}", swap(1), swap(2)));
    let each = |action: &str| (0..3).map(|node| format!("{action} {node}")).collect::<Vec<_>>().join(", ");
    let actions = ["CloneVm", "ShutDown", "Fence", "Detach", "Attach", "PowerOn", "Gate"].map(each);
    assert_eq!(steps(&decided(3, Mode::AllAtOnce)), format!("Verify, Snapshot, {}", actions.join(", ")));
}

#[test]
fn requested_copies_are_made_between_two_vms() {
    let steps_of = |mode| {
        let options = Options { copy_disks: true, ..options(mode) };
        steps(&plan(&inventory(3), &target(), &options, Uuid::from_u128(1)).unwrap())
    };
    let rolling = steps_of(Mode::Rolling);
    for node in 0..3 {
        assert!(rolling.contains(&format!("Detach {node}, Copy {node}, Attach {node}")), "{rolling}");
    }
    assert!(steps_of(Mode::AllAtOnce).contains("Detach 2, Copy 0, Copy 1, Copy 2, Attach 0"));
}

#[test]
fn the_plan_names_all_that_will_be_touched() {
    let plan = decided(3, Mode::Rolling);
    assert_eq!((plan.deployment, plan.members.len()), (DEPLOYMENT, 3));
    let node = &plan.nodes[0];
    assert_eq!((&*node.name, &*node.old_name, &*node.new_name), ("cp2", "cp2", "cp2-bbbbbbb"));
    assert_eq!((node.old, &node.disk), (old_vm("cp2"), &disk("cp2")));
    assert_eq!(node.adapters, ["4000"], "the other one was not connected");
    assert_eq!((&*node.member, &node.from), ("e1", &old()));
    let swaps: std::collections::BTreeSet<Uuid> = plan.nodes.iter().map(|node| node.swap).collect();
    assert_eq!(swaps.len(), 3);
}

#[test]
fn plan_survives_a_journal_round_trip() {
    let plan = decided(3, Mode::Rolling);
    assert_eq!(serde_json::from_str::<Plan>(&serde_json::to_string(&plan).unwrap()).unwrap(), plan);
}

#[test]
fn leader_and_virtual_ip_holder_come_last() {
    let names = |plan: Plan| plan.nodes.into_iter().map(|node| node.name).collect::<Vec<_>>();
    assert_eq!(names(decided(3, Mode::Rolling)), ["cp2", "cp3", "cp1"]);
    let mut inventory = inventory(3);
    let facts = inventory.cluster.nodes.iter_mut().map(|node| node.facts.as_mut().unwrap());
    for (facts, (leads, holds)) in facts.zip([(false, true), (true, false), (false, false)]) {
        facts.etcd.as_mut().unwrap().leader = leads;
        facts.virtual_address.as_mut().unwrap().held = holds;
    }
    let decided = plan(&inventory, &target(), &options(Mode::Rolling), Uuid::from_u128(1)).unwrap();
    assert_eq!(names(decided), ["cp3", "cp1", "cp2"]);
}

#[test]
fn node_on_the_image_is_left_alone() {
    let mut inventory = inventory(3);
    inventory.cluster.nodes[1].facts.as_mut().unwrap().image.build = new().build;
    inventory.cluster.nodes[1].facts.as_mut().unwrap().image.version = new().version;
    let decided = plan(&inventory, &target(), &options(Mode::Rolling), Uuid::from_u128(1)).unwrap();
    let names: Vec<_> = decided.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["cp3", "cp1"]);
}

/// No other record has them, neither for the power-on of one that is off, nor for the removal of the cluster.
#[test]
fn plan_notes_unchanged_and_earlier_vms_and_disks() {
    let mut seen = inventory(3);
    let noted = |inventory: &Inventory| {
        let plan = plan(inventory, &target(), &options(Mode::Rolling), Uuid::from_u128(1)).unwrap();
        (plan.other_vms, plan.other_disks)
    };
    assert_eq!(noted(&seen), (BTreeSet::new(), Vec::new()), "all are planned");
    let image = &mut seen.cluster.nodes[1].facts.as_mut().unwrap().image;
    (image.build, image.version) = (new().build, new().version);
    assert_eq!(noted(&seen), (BTreeSet::from([old_vm("cp2")]), vec![disk("cp2")]));
    let (left, gone) = (Uuid::from_u128(0xf1), Uuid::from_u128(0xf2));
    let reference = VmRef { uuid: left, id: "vm-left".to_owned() };
    seen.vms.push(Vm { reference, name: "cp1-ccccccc".to_owned(), disks: Vec::new(), ..seen.vms[0].clone() });
    let unheld = DiskRef { uuid: Uuid::from_u128(0xd9), path: "[datastore1] cp9/data.vmdk".to_owned() };
    // Where the disk of a node was is not where it is.
    let moved = DiskRef { path: "[datastore2] cp2/data.vmdk".to_owned(), ..disk("cp2") };
    seen.cluster.earlier = Some(Earlier {
        vms: [left, gone, old_vm("cp1"), old_vm("cp2")].into(),
        disks: vec![disk("cp1"), moved, unheld.clone()],
        ..earlier_of(Uuid::from_u128(0xc0))
    });
    assert_eq!(noted(&seen), (BTreeSet::from([left, old_vm("cp2")]), vec![disk("cp2"), unheld]));
    // A VM that is out of sight is not gone.
    seen.moved.insert(gone, "cp1-ddddddd is in another folder".to_owned());
    assert_eq!(noted(&seen).0, BTreeSet::from([left, gone, old_vm("cp2")]));
    // The deployment's cluster was another one then, as the operator says.
    seen.cluster.earlier.as_mut().unwrap().cluster = Uuid::from_u128(0xc1);
    seen.cluster.other_cluster = Some(seen.cluster.id);
    assert_eq!(noted(&seen), (BTreeSet::from([old_vm("cp2")]), vec![disk("cp2")]));
    // Copies are named all the same: nothing is done with them.
    let copy = KeptCopy { path: "[datastore1] cp1/data-before-1a2b3c4d.vmdk".to_owned(), uuid: None };
    let copies = vec![DiskCopy { node: "cp1".to_owned(), copy }];
    seen.cluster.earlier.as_mut().unwrap().copies.clone_from(&copies);
    let decided = plan(&seen, &target(), &options(Mode::Rolling), Uuid::from_u128(1)).unwrap();
    assert_eq!(decided.other_copies, copies);
    let read: Plan = serde_json::from_str(&serde_json::to_string(&decided).unwrap()).unwrap();
    assert_eq!(read.other_copies, copies, "the journal has them");
}

/// The image stays, and with it the names of VMs: the size tells them apart.
#[test]
fn other_vm_size_is_swapped_on_same_image() {
    let mut inventory = inventory(3);
    for (node, vm) in inventory.cluster.nodes.iter_mut().zip(&mut inventory.vms) {
        let image = &mut node.facts.as_mut().unwrap().image;
        (image.build, image.version) = (new().build, new().version);
        vm.name = format!("{}-bbbbbbb", node.name);
    }
    let large = VmSize { processors: 4, memory: 16384 };
    inventory.vms[1].size = Some(large);
    let decide = |inventory: &Inventory, size| {
        let options = Options { size, ..options(Mode::Rolling) };
        plan(inventory, &target(), &options, Uuid::from_u128(1))
    };
    let names = |plan: Plan| plan.nodes.into_iter().map(|node| node.new_name).collect::<Vec<_>>();
    let decided = decide(&inventory, Some(large)).unwrap();
    assert!(
        decided
            .grounds
            .iter()
            .any(|ground| ground.evidence.ends_with("the new one gets 4 processors and 16384 MiB of memory"))
    );
    assert_eq!(names(decided), ["cp3-bbbbbbb-4x16384", "cp1-bbbbbbb-4x16384"]);
    assert_eq!(decide(&inventory, None).unwrap_err().0[0].code, "upgrade.nothing-to-do", "no size is wanted");
    // From one size to the next one, and to another image.
    inventory.vms[0].name = "cp1-bbbbbbb-4x16384".to_owned();
    let larger = Some(VmSize { processors: 8, memory: 32768 });
    assert_eq!(names(decide(&inventory, larger).unwrap())[2], "cp1-bbbbbbb");
    inventory.vms[0].size = None;
    assert_eq!(
        names(decide(&inventory, Some(SMALL)).unwrap()),
        ["cp2-bbbbbbb-2x4096", "cp1-bbbbbbb"],
        "not known is not so"
    );
    inventory.vms[2].name = "cp1-bbbbbbb".to_owned();
    let taken = decide(&inventory, Some(SMALL)).unwrap_err();
    assert_eq!(taken.0[0].code, "upgrade.vm-name", "a name that is taken");
}

#[test]
fn disk_refusals_name_all_nodes_at_once() {
    let mut world = World::of(3, Mode::Rolling, Ill::Well);
    world.publisher = target().signer;
    world.lock().beside = NODES.map(old_vm).into();
    let refusals = plan(&wait(world.inventory()), &target(), &options(Mode::Rolling), Uuid::from_u128(1)).unwrap_err();
    let told: Vec<_> = refusals.0.iter().map(|one| (one.code, one.subject.as_str())).collect();
    assert_eq!(told, NODES.map(|node| ("upgrade.vm-beside", node)));
    assert!(refusals.0[0].reason.contains("lies beside another's"), "{refusals}");
}

/// The places of the disks may not be readable either: that would end the plan, and the missing privileges would not be
/// named.
#[test]
fn missing_privileges_are_reported_before_disk_places() {
    let mut world = World::of(3, Mode::Rolling, Ill::Well);
    world.publisher = target().signer;
    world.lock().beside = NODES.map(old_vm).into();
    wait(world.inventory());
    let call = 1 + world.calls().iter().position(|call| call.name == "preflight").expect("it is asked");
    world.fault(Some(At { call, fault: Fault::Error(ErrorKind::Denied), lasting: false }));
    let inventory = wait(world.inventory());
    assert_eq!(world.called("may_be_replaced"), 0);
    let refusals = plan(&inventory, &target(), &options(Mode::Rolling), Uuid::from_u128(1)).unwrap_err();
    let told: Vec<_> = refusals.0.iter().map(|one| one.code).collect();
    assert_eq!(told, ["upgrade.denied"]);
}

/// As if no host can be read: the missing privileges are still asked for.
#[test]
fn missing_privileges_are_reported_without_a_place() {
    let mut world = World::of(3, Mode::Rolling, Ill::Well);
    world.publisher = target().signer;
    world.options.placement.datastore = Some("no such one".to_owned());
    world.lock().own_denied = true;
    let inventory = wait(world.inventory());
    assert_eq!(world.called("may_be_replaced"), 0);
    let refusals = plan(&inventory, &target(), &options(Mode::Rolling), Uuid::from_u128(1)).unwrap_err();
    let told: Vec<_> = refusals.0.iter().map(|one| one.code).collect();
    assert_eq!(told, ["upgrade.denied", "upgrade.placement"]);
}

/// The codes of the refusals after a change of the inventory.
fn codes(change: impl FnOnce(&mut Inventory, &mut Target, &mut Options)) -> Vec<&'static str> {
    let (mut inventory, mut target, mut options) = (inventory(3), target(), options(Mode::Rolling));
    change(&mut inventory, &mut target, &mut options);
    let refused = plan(&inventory, &target, &options, Uuid::from_u128(1)).err();
    let mut codes: Vec<_> = refused.map(|refused| refused.0).unwrap_or_default().iter().map(|one| one.code).collect();
    codes.dedup();
    codes
}

fn with_facts(change: impl FnOnce(&mut Node)) -> Vec<&'static str> {
    codes(|inventory, _, _| change(inventory.cluster.nodes[1].facts.as_mut().unwrap()))
}

#[test]
fn forbidden_state_is_refused_with_its_code() {
    assert!(codes(|_, _, _| {}).is_empty());
    assert_eq!(
        codes(|inventory, _, _| inventory.cluster.nodes[1].facts = Err("no route".into())),
        ["upgrade.node-silent"]
    );
    assert_eq!(with_facts(|facts| facts.ready = false), ["upgrade.node-not-ready"]);
    assert_eq!(with_facts(|facts| facts.healthy = None), ["upgrade.node-not-ready"]);
    assert_eq!(with_facts(|facts| facts.etcd = None), ["upgrade.member-unhealthy"]);
    let members = |facts: &mut Node| facts.etcd.as_mut().unwrap().members.clone();
    assert_eq!(
        with_facts(|facts| facts.etcd.as_mut().unwrap().members[2].healthy = false),
        ["upgrade.member-unhealthy"]
    );
    assert_eq!(
        with_facts(|facts| facts.etcd.as_mut().unwrap().members[2].learner = true),
        ["upgrade.member-unhealthy"]
    );
    let lost = |facts: &mut Node| facts.etcd.as_mut().unwrap().members = members(facts)[..2].to_vec();
    assert_eq!(with_facts(lost), ["upgrade.members-differ"]);
    let from = VmImage { vm: None, version: old().version, build: old().build };
    let losses = swap::Losses::default();
    let id = Uuid::from_u128(9);
    let swap = swap::SwapState { id, stage: Stage::Taken, error: None, code: None, losses, from, to: None };
    assert_eq!(with_facts(|facts| facts.swap = Some(swap)), ["upgrade.swap-open"]);
    assert_eq!(
        with_facts(|facts| facts.holder = Some(contract::bios_uuid::BiosUuid::from_u128(9))),
        ["upgrade.vm-unknown"]
    );
    assert_eq!(with_facts(|facts| facts.image.name = "kaas-tenant".into()), ["upgrade.product"]);
    assert_eq!(with_facts(|facts| facts.kubernetes.version = "1.34.9".into()), ["upgrade.kubernetes"]);
    assert_eq!(codes(|inventory, _, _| inventory.vms[1].power = PowerState::Off), ["upgrade.vm-power"]);
    assert_eq!(codes(|inventory, _, _| inventory.vms[1].disks.clear()), ["upgrade.vm-disks"]);
    let twice = |inventory: &mut Inventory| inventory.vms[1].disks.push(data(disk("cp3")));
    assert_eq!(codes(|inventory, _, _| twice(inventory)), ["upgrade.vm-disks"]);
    assert_eq!(codes(|inventory, _, _| inventory.denied = Some("a privilege is missing".into())), ["upgrade.denied"]);
    assert_eq!(codes(|inventory, _, _| inventory.vms[1].name = "cp2-bbbbbbb".into()), ["upgrade.vm-name"]);
    assert_eq!(codes(|inventory, _, _| inventory.cluster.held_by = Some("somebody".into())), ["upgrade.locked"]);
    assert_eq!(
        codes(|inventory, target, _| {
            for node in &mut inventory.cluster.nodes {
                node.facts.as_mut().unwrap().image.build = target.image.build.clone();
            }
        }),
        ["upgrade.nothing-to-do"]
    );
}

#[test]
fn an_earlier_upgrade_must_have_ended() {
    let earlier = |direction, outcome| {
        codes(|inventory, _, _| {
            inventory.cluster.earlier = Some(Earlier { direction, outcome, ..earlier_of(Uuid::from_u128(0xc0)) })
        })
    };
    assert_eq!(earlier(Direction::Forward, None), ["upgrade.unfinished"]);
    assert_eq!(earlier(Direction::Commit, None), ["upgrade.unfinished"]);
    assert_eq!(earlier(Direction::Forward, Some(Outcome::Upgraded)), ["upgrade.uncommitted"]);
    assert!(earlier(Direction::Back, Some(Outcome::RolledBack)).is_empty());
    assert!(earlier(Direction::Commit, Some(Outcome::Committed)).is_empty());
    assert!(earlier(Direction::Abandon, Some(Outcome::Abandoned)).is_empty());
    assert_eq!(earlier(Direction::Abandon, None), ["upgrade.unfinished"]);
    assert_eq!(codes(|inventory, _, _| of_cluster(inventory, 0xc1)), ["upgrade.other-cluster"]);
}

fn of_cluster(inventory: &mut Inventory, cluster: u128) {
    inventory.cluster.earlier = Some(earlier_of(Uuid::from_u128(cluster)));
}

fn earlier_of(cluster: Uuid) -> Earlier {
    let (id, direction, outcome) = (Uuid::from_u128(5), Direction::Back, Some(Outcome::RolledBack));
    let (vms, disks, copies) = (BTreeSet::new(), Vec::new(), Vec::new());
    Earlier { id, deployment: Uuid::from_u128(0xde), cluster, direction, outcome, vms, disks, copies }
}

#[test]
fn unknown_member_list_is_not_healthy() {
    let members = |count: usize| with_facts(|facts| facts.etcd.as_mut().unwrap().members.truncate(count));
    assert!(members(3).is_empty());
    for count in 0..3 {
        assert_eq!(members(count), ["upgrade.members-differ"], "{count}");
    }
    let fourth = |facts: &mut Node| {
        let members = &mut facts.etcd.as_mut().unwrap().members;
        members.push(members[0].clone());
    };
    assert_eq!(with_facts(fourth), ["upgrade.members-differ"]);
}

#[test]
fn other_etcd_minor_version_is_refused() {
    for etcd in [Some("3.5"), Some("3.7"), Some("4.6"), None] {
        let etcd = etcd.map(|etcd| etcd.parse().unwrap());
        assert_eq!(codes(|_, target, _| target.etcd = etcd), ["upgrade.etcd"], "{etcd:?}");
    }
    assert_eq!(with_facts(|facts| facts.etcd.as_mut().unwrap().version = "3.5.21".into()), ["upgrade.etcd"]);
    assert!(with_facts(|facts| facts.etcd.as_mut().unwrap().version = "3.6.99".into()).is_empty());
    assert_eq!(with_facts(|facts| facts.etcd.as_mut().unwrap().version = "new".into()), ["upgrade.etcd"]);
}

#[test]
fn older_image_is_explicit_and_rolling_only() {
    let older = |target: &mut Target| target.image.version = "0.0.9".into();
    assert_eq!(codes(|_, target, _| older(target)), ["upgrade.downgrade"]);
    assert!(codes(|_, target, options| (older(target), options.downgrade = true).1).is_empty());
    let at_once = |options: &mut Options| (options.downgrade, options.mode) = (true, Mode::AllAtOnce);
    assert_eq!(codes(|_, target, options| (older(target), at_once(options)).1), ["upgrade.downgrade"]);
    assert_eq!(codes(|_, target, _| target.image.version = "new".into()), ["upgrade.version"]);
    // Numbers, not texts; and what comes before a release is older than it.
    assert!(codes(|_, target, _| target.image.version = "0.10.0".into()).is_empty());
    assert_eq!(codes(|_, target, _| target.image.version = "0.1.0-rc.1".into()), ["upgrade.downgrade"]);
}

#[test]
fn an_image_follows_only_those_that_it_allows() {
    let from = |text: &str| Some(text.parse().unwrap());
    assert_eq!(codes(|_, target, _| target.upgrades_from = from(">=0.1.5")), ["upgrade.from-version"]);
    assert!(codes(|_, target, _| target.upgrades_from = None).is_empty());
    // An older image has its own rule, and another build of the same version needs none.
    let older = |target: &mut Target| (target.upgrades_from, target.image.version) = (from(">=0.1.5"), "0.0.9".into());
    assert!(codes(|_, target, options| (older(target), options.downgrade = true).1).is_empty());
    let same = |target: &mut Target| (target.upgrades_from, target.image.version) = (from(">=0.1.5"), "0.1.0".into());
    assert!(codes(|_, target, _| same(target)).is_empty());
    let (inventory, mut target) = (inventory(1), target());
    target.upgrades_from = from(">=0.1.5");
    let refused = plan(&inventory, &target, &options(Mode::Rolling), Uuid::from_u128(1)).unwrap_err().to_string();
    for words in ["0.2.0 (bbbbbbb)", "0.1.0 (aaaaaaa)", ">=0.1.5"] {
        assert!(refused.contains(words), "{refused}");
    }
}

#[test]
fn only_the_trusted_publishers_images_are_taken() {
    let publisher = |key: &str| Some(format!("SHA256:{key}"));
    assert_eq!(codes(|_, target, _| target.signer = None), ["upgrade.unsigned"]);
    assert_eq!(codes(|_, target, _| target.signer = publisher("other")), ["upgrade.publisher"]);
    let given = |_: &mut Inventory, target: &mut Target, options: &mut Options| {
        target.signer = publisher("other");
        options.publisher = publisher("other");
    };
    assert!(codes(given).is_empty());
    assert_eq!(codes(|_, _, options| options.publisher = publisher("other")), ["upgrade.publisher"]);
    let at_once = |inventory: &mut Inventory, target: &mut Target, options: &mut Options| {
        given(inventory, target, options);
        options.mode = Mode::AllAtOnce;
    };
    assert_eq!(codes(at_once), ["upgrade.publisher"]);
    let nothing_pinned = |inventory: &mut Inventory| pin(inventory, &[None, None, None]);
    assert!(codes(|inventory, target, _| (nothing_pinned(inventory), target.signer = None).1).is_empty());
    assert!(codes(|inventory, _, _| nothing_pinned(inventory)).is_empty());
    // The signer of the running image decides nothing.
    assert!(
        codes(|inventory, _, _| inventory.cluster.nodes[0].facts.as_mut().unwrap().image.publisher = None).is_empty()
    );
}

/// Nothing is pinned, so any image would do: the description of the cluster forbids it.
#[test]
fn unsigned_by_described_publisher_is_refused() {
    let described = |key: &str| Some(DescribedPublisher { key: key.to_owned(), by: "cluster.toml:13".to_owned() });
    let with = |signer: Option<&str>, given: Option<&str>| {
        let (mut inventory, mut target) = (inventory(3), target());
        pin(&mut inventory, &[None, None, None]);
        target.signer = signer.map(str::to_owned);
        let options = Options {
            described_publisher: described("SHA256:publisher"),
            publisher: given.map(str::to_owned),
            ..options(Mode::Rolling)
        };
        plan(&inventory, &target, &options, Uuid::from_u128(1))
    };
    for (signer, code, words) in [
        (None, "upgrade.unsigned", "it is not signed, and cluster.toml:13 names"),
        (Some("SHA256:other"), "upgrade.publisher", "it is signed with SHA256:other, and cluster.toml:13 names"),
    ] {
        let refused = with(signer, None).unwrap_err().0;
        assert_eq!((refused.len(), refused[0].code), (1, code));
        assert!(refused[0].reason.contains(words) && refused[0].reason.contains("SHA256:publisher"), "{refused:?}");
    }
    let decided = with(Some("SHA256:publisher"), None).unwrap();
    assert_eq!(decided.options.publisher, None);
    let says = |words: &str| decided.grounds.iter().any(|ground| ground.evidence.contains(words));
    assert!(says("the key that cluster.toml:13 names") && !says("pins") && !says("any would do"));
    // The operator's word goes first.
    assert!(with(Some("SHA256:other"), Some("SHA256:other")).is_ok());
}

fn pin(inventory: &mut Inventory, keys: &[Option<&str>]) {
    for (node, key) in inventory.cluster.nodes.iter_mut().zip(keys) {
        node.facts.as_mut().unwrap().pinned = key.map(str::to_owned);
    }
}

#[test]
fn nodes_that_have_pinned_different_keys_are_named() {
    let (mut inventory, mut options) = (inventory(3), options(Mode::Rolling));
    pin(&mut inventory, &[Some("SHA256:publisher"), None, Some("SHA256:publisher")]);
    let decide = |inventory: &Inventory, options: &Options| plan(inventory, &target(), options, Uuid::from_u128(1));
    let refused = decide(&inventory, &options).unwrap_err().0;
    assert_eq!((refused.len(), refused[0].code), (1, "upgrade.pins-differ"));
    assert!(refused[0].reason.contains("cp2: none, cp1 and cp3: SHA256:publisher"), "{}", refused[0].reason);
    // Named explicitly, it is pinned where it is not.
    options.publisher = target().signer;
    let grounds = decide(&inventory, &options).unwrap().grounds;
    let changes: Vec<_> = grounds.iter().filter(|ground| ground.evidence.contains("the commit pins")).collect();
    assert_eq!((changes.len(), changes[0].subject.as_str()), (1, "cp2"));
}

#[test]
fn changed_publisher_reaches_node_and_journal() {
    let mut inventory = inventory(1);
    pin(&mut inventory, &[Some("SHA256:former")]);
    let options = Options { publisher: target().signer, ..options(Mode::Rolling) };
    let decided = plan(&inventory, &target(), &options, Uuid::from_u128(1)).unwrap();
    assert_eq!(decided.nodes[0].pinned.as_deref(), Some("SHA256:former"));
    let words = "the commit pins SHA256:publisher in place of SHA256:former, as was asked for";
    assert!(decided.grounds.iter().any(|ground| ground.evidence == words), "{:?}", decided.grounds);
    let journal = serde_json::to_value(&decided).unwrap();
    assert_eq!(journal["options"]["publisher"], "SHA256:publisher");
}

#[test]
fn all_reasons_are_said_at_once() {
    let refused = codes(|inventory, target, _| {
        inventory.cluster.nodes[0].facts = Err("no route".into());
        inventory.cluster.nodes[1].facts.as_mut().unwrap().ready = false;
        target.signer = None;
    });
    assert_eq!(refused, ["upgrade.unsigned", "upgrade.node-silent", "upgrade.node-not-ready"]);
}

#[tokio::test(start_paused = true)]
async fn plan_names_pods_that_a_drain_deletes() {
    let world = World::of(3, Mode::Rolling, Ill::Well);
    let says = |inventory: &Inventory, mode| {
        let plan = plan(inventory, &world.target, &options(mode), Uuid::from_u128(1)).unwrap();
        let grounds = plan.grounds.into_iter().filter(|ground| ground.subject == "cp2");
        grounds.map(|ground| ground.evidence).collect::<Vec<_>>().join("\n")
    };
    let inventory = world.inventory().await;
    assert!(!says(&inventory, Mode::Rolling).contains("drain"));
    let many: Vec<String> = (0..200).map(|number| format!("web/bare-{number}")).collect();
    world.lock().losses =
        contract::swap::Losses { bare_pods: many.clone(), empty_dirs: vec!["shop/cache-0".to_owned()] };
    let inventory = world.inventory().await;
    let text = says(&inventory, Mode::Rolling);
    assert!(many[..50].iter().all(|pod| text.contains(pod)) && text.contains("shop/cache-0"), "{text}");
    assert!(text.contains("web/bare-49 and 150 more"), "{text}");
    assert!(text.contains("when it is drained, these pods have no controller and are deleted: web/bare-0,"), "{text}");
    // All at once nothing is drained.
    assert!(!says(&inventory, Mode::AllAtOnce).contains("web/bare-0"));
    let mut unknown = inventory.clone();
    for node in &mut unknown.cluster.nodes {
        node.facts.as_mut().unwrap().pods = None;
    }
    assert!(says(&unknown, Mode::Rolling).contains("cannot be known now"));
}
