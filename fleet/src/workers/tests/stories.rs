//! Goals of operators, and their results.

use std::time::Duration;

use contract::bios_uuid::BiosUuid;
use tokio::sync::watch;
use uuid::Uuid;

use super::fake::{
    ANOTHER, Does, Fault, Machine, PODS, VOLUMES, World, node_on, pool, rejoin, remove, remove_with, replace, template,
    vm, with_later,
};
use crate::hypervisor::{Disk, DiskKind, DiskRef, PowerState, Size, Vm, VmRef};
use crate::lease::TakeOver;
use crate::testing::data_disk;
use crate::workers::missing::Missing;
use crate::workers::{Changes, Discards, Goal, Inventory, NodeSeen, Pool, RunOutcome, State, Wait, WorkerRecord};

pub fn codes(arrived: &RunOutcome) -> Vec<&str> {
    match arrived {
        RunOutcome::Paused(waits) | RunOutcome::Stopped(waits) => {
            waits.iter().map(|wait| wait.reason.code.as_str()).collect()
        }
        RunOutcome::Done | RunOutcome::Cancelled => Vec::new(),
    }
}

/// The workers and the codes of what a command waits for.
fn named(waits: &[Wait]) -> Vec<(Option<&str>, &str)> {
    waits.iter().map(|wait| (wait.worker.as_deref(), wait.reason.code.as_str())).collect()
}

#[tokio::test(start_paused = true)]
async fn workers_join_and_leave_no_token() {
    let world = World::new();
    let status = world.give(Goal::Create(Box::new(pool(2)))).await.done();
    assert_eq!((status.wanted, status.available), (2, 2));
    let names: Vec<_> = status.workers.iter().map(|worker| (worker.name.as_str(), worker.state)).collect();
    assert_eq!(names, [("t-w1", State::Running), ("t-w2", State::Running)]);
    assert_eq!(status.workers[1].address, Some([10, 0, 0, 21].into()));
    assert!(status.workers.iter().all(|worker| worker.joined_seconds.is_some_and(|took| (5..60).contains(&took))));
    assert!(world.lock().tokens.is_empty());
    world.give(Goal::Create(Box::new(pool(2)))).await.fails("there are workers already");
}

/// All other stories have guests that report the other order.
#[tokio::test(start_paused = true)]
async fn workers_join_in_either_order_of_uuids() {
    let world = World::new();
    world.lock().in_order_uuids = true;
    let status = world.give(Goal::Create(Box::new(pool(2)))).await.done();
    assert_eq!(status.available, 2);
    assert_eq!(world.give(replace("two", Changes::default())).await.done().available, 2);
    // Images up to 0.1 made nodes in one order, and later ones read the other one: the nodes stay what they are.
    world.lock().in_order_uuids = false;
    for node in &mut world.lock().nodes {
        let vm = BiosUuid::of_provider_id(&node.provider).unwrap();
        node.provider = vm.swapped().provider_id();
    }
    assert_eq!(world.give(Goal::GoOn).await.done().available, 2);
    assert_eq!(world.give(remove("t-w4")).await.done().available, 1);
}

#[test]
fn a_node_of_two_vms_is_neithers() {
    let id = Uuid::from_u128(0x420f_1a2b_0003_4000_8000_0000_0000_0001);
    let machine = WorkerRecord { bios_uuid: Some(id), ..WorkerRecord::new(&pool(1), Uuid::from_u128(2), None, 0) };
    let other = BiosUuid::from(id).orders()[1];
    for reported in BiosUuid::from(id).orders() {
        let nodes = vec![node_on(&machine.name, &BiosUuid::from(reported).provider_id())];
        let seen = Inventory { nodes, vms: vec![vm("a", id, None)], ..Inventory::default() };
        assert!(seen.node(&machine).own().is_some());
        let seen = Inventory { vms: vec![vm("a", id, None), vm("b", other, None)], ..seen };
        assert!(seen.node(&machine).own().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_of_workers_by_dhcp_report_their_addresses() {
    let world = World::new();
    let status = world.give(Goal::Create(Box::new(Pool { addresses: None, ..pool(12) }))).await.done();
    assert_eq!(status.available, 12);
    assert!(world.kept().await.unwrap().machines.iter().all(|machine| machine.address.is_none()));
    let mut addresses: Vec<_> = status.workers.iter().map(|worker| worker.address.unwrap()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), 12);
}

#[tokio::test(start_paused = true)]
async fn a_worker_comes_and_another_one_goes() {
    let world = World::with(2).await;
    assert_eq!(world.give(Goal::Add(1)).await.done().available, 3);
    let status = world.give(remove("t-w2")).await.done();
    let left: Vec<_> = status.workers.iter().map(|worker| worker.name.as_str()).collect();
    assert_eq!(left, ["t-w1", "t-w3"]);
    assert_eq!(world.own(), left);
    assert_eq!(world.lock().nodes.len(), 2);
    world.give(remove("t-w2")).await.fails("there is no worker t-w2");
    // A name is never used again.
    let status = world.give(Goal::Add(1)).await.done();
    assert_eq!(status.workers.last().unwrap().name, "t-w4");
}

#[tokio::test(start_paused = true)]
async fn an_unrecorded_vm_keeps_its_name() {
    let world = World::with(1).await;
    world.lock().leave_vm("t-w2");
    // A second VM of the same name panics in the fake.
    assert_eq!(world.give(Goal::Add(1)).await.done().available, 2);
    assert_eq!(world.own(), ["t-w1", "t-w2", "t-w3"]);
}

#[tokio::test(start_paused = true)]
async fn a_replacement_keeps_the_number_of_available_workers() {
    let world = World::with(3).await;
    let status = world.give(replace("two", Changes::default())).await.done();
    assert!(status.workers.iter().all(|worker| worker.up_to_date && worker.available), "{status:?}");
    assert_eq!((world.fewest(), world.most()), (3, 4));
    assert_eq!(world.own().len(), 3);
    // The same again is nothing to do.
    let made = world.kept().await.unwrap().pool.last_index;
    world.give(replace("two", Changes::default())).await.done();
    assert_eq!(world.kept().await.unwrap().pool.last_index, made);
}

#[tokio::test(start_paused = true)]
async fn another_image_changes_nothing_else_of_workers() {
    let world = World::new();
    let mut edge = pool(2);
    edge.template.size = Size { processors: 4, memory: 8192, data_disk: Some(1 << 30) };
    edge.template.taints.insert("edge=true:NoSchedule".to_owned());
    (edge.rollout.max_surge, edge.rollout.drain_seconds) = (2, 900);
    world.give(Goal::Create(Box::new(edge.clone()))).await.done();
    world.give(replace("two", Changes::default())).await.done();
    let kept = world.kept().await.unwrap();
    edge.template.image = template("two").image;
    assert_eq!((&kept.pool.template, &kept.pool.rollout), (&edge.template, &edge.rollout));
    assert!(kept.machines.iter().all(|machine| machine.template == edge.template), "{kept:?}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_counts_by_its_first_kubelet() {
    let world = World::with(2).await;
    // Root on the node writes what it reports later: each of its successors could report the same.
    for claim in ["v1.20.0", "v1.37.0", ""] {
        world.lock().nodes[0].kubelet = claim.to_owned();
        world.give(Goal::GoOn).await.done();
        assert_eq!((world.own(), world.kept().await.unwrap().pool.last_index), (vec!["t-w1".into(), "t-w2".into()], 2));
    }
    // It has joined between two minor versions of its control plane: an older one is replaced, a newer one is not.
    for (version, own) in [("1.37", ["t-w1", "t-w2"]), ("1.35", ["t-w2", "t-w3"])] {
        let mut kept = world.kept().await.unwrap();
        kept.machines[0].template.kubernetes = version.to_owned();
        world.keep(kept).await;
        world.give(Goal::GoOn).await.done();
        assert_eq!(world.own(), own);
    }
    // A successor that would be behind again is created once only.
    world.lock().kubelet = "v1.35.4".to_owned();
    let waits = world.give(replace("two", Changes::default())).await.stopped();
    assert!(waits.len() == 1 && waits[0].reason.code == "workers.skew", "{waits:?}");
    assert_eq!(world.kept().await.unwrap().pool.last_index, 4);
}

#[tokio::test(start_paused = true)]
async fn a_version_outside_the_image_is_ignored() {
    for claim in ["v1.99.0", "v1.20.0"] {
        let world = World::with(1).await;
        if claim == "v1.99.0" {
            world.lock().kubelet = claim.to_owned();
            world.give(Goal::Add(1)).await.done();
        } else {
            // It is healthy, and the operator asks it to join again.
            world.lock().nodes[0].kubelet = claim.to_owned();
            world.give(rejoin("t-w1")).await.done();
        }
        let kept = world.kept().await.unwrap();
        assert!(kept.machines.iter().all(|machine| machine.template.kubernetes == "1.36"), "{claim}: {kept:?}");
        let own = world.own();
        world.give(Goal::GoOn).await.done();
        assert_eq!(world.own(), own, "{claim}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_surge_the_permitted_number_is_missing() {
    let world = World::with(3).await;
    let changes = Changes { max_surge: Some(0), max_unavailable: Some(1), ..Changes::default() };
    world.give(replace("two", changes)).await.done();
    assert_eq!((world.fewest(), world.most()), (2, 3));
    let changes = Changes { max_surge: Some(0), max_unavailable: Some(0), ..Changes::default() };
    let refused = world.give(replace("three", changes)).await;
    world
        .give(replace("three", Changes { join_seconds: Some(1501), ..Changes::default() }))
        .await
        .fails("at most 1500 s to join");
    refused.fails("none can be replaced");
}

#[tokio::test(start_paused = true)]
async fn an_image_that_never_joins_stops_at_once() {
    let world = World::with(2).await;
    world.lock().ill.insert("two".to_owned());
    let (arrived, status) = world.give(replace("two", Changes::default())).await.arrived();
    assert_eq!(codes(&arrived), ["workers.not-joined"]);
    assert!(matches!(arrived, RunOutcome::Stopped(_)));
    assert_eq!((status.available, world.fewest()), (2, 2));
    // It stays as it is, for the operator to inspect. Its token no longer admits anything.
    let failed = &status.workers[2];
    assert_eq!((failed.state, failed.power), (State::Failed, Some(PowerState::On)));
    assert!(world.lock().tokens.is_empty());
    world.give(Goal::Continue).await.stopped();
    assert_eq!(world.own(), ["t-w1", "t-w2", "t-w3"], "no operator asked to create it again");
    world.give(Goal::GoOn).await.stopped();
    assert_eq!(world.own(), ["t-w1", "t-w2", "t-w4"], "the failed one is created again");
    // Back to the image that works: the failed one goes.
    world.give(replace("one", Changes::default())).await.done();
    assert_eq!(world.own(), ["t-w1", "t-w2"]);
}

#[tokio::test(start_paused = true)]
async fn a_blocked_drain_names_its_pod() {
    let world = World::with(2).await;
    world.lock().blocked.insert("t-w1".to_owned());
    let waits = world.give(remove("t-w1")).await.paused();
    assert_eq!(waits[0].to_string(), "t-w1: web/of-t-w1: its disruption budget [workers.drain-blocked]");
    assert_eq!(world.own(), ["t-w1", "t-w2"]);
    // Asked for twice, one goes.
    world.give(remove("t-w1")).await.arrived();
    assert_eq!(world.kept().await.unwrap().pool.count, 1);
    world.lock().blocked.clear();
    assert_eq!(world.give(Goal::GoOn).await.done().wanted, 1);
    assert_eq!(world.own(), ["t-w2"]);
}

#[tokio::test(start_paused = true)]
async fn an_unevictable_pod_is_named_alone() {
    let world = World::with(2).await;
    world.lock().add_pod("t-w1", "stuck");
    world.lock().unevictable.insert("stuck".to_owned());
    let (given, told) = with_later(world.give(remove("t-w1")), 60, async || {
        world.status().await.unwrap().unwrap().waits[0].to_string()
    })
    .await;
    assert_eq!(told, "t-w1: not moved away from it yet: web/stuck [workers.draining]");
    assert_eq!(given.paused()[0].to_string(), "t-w1: web/stuck: a webhook denies it [workers.drain-blocked]");
    world.lock().unevictable.clear();
    world.give(Goal::GoOn).await.done();
    assert_eq!(world.own(), ["t-w2"]);
}

#[tokio::test(start_paused = true)]
async fn a_drain_of_returning_pods_pauses_once_late() {
    let world = World::with(2).await;
    world.lock().coming_back.insert("t-w1".to_owned());
    world.lock().evicting = Duration::from_secs(1);
    let before = world.now();
    let given = tokio::time::timeout(Duration::from_secs(3600), world.give(remove("t-w1"))).await;
    assert_eq!(named(&given.expect("it goes on forever").paused()), [(Some("t-w1"), "workers.draining")]);
    let took = world.now() - before;
    assert!((300..360).contains(&took), "it took {took} s");
    world.lock().coming_back.clear();
    world.give(Goal::GoOn).await.done();
    assert_eq!(world.own(), ["t-w2"]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_drain_ends_in_time() {
    let world = World::with(2).await;
    for number in 0..1000 {
        let name = format!("stuck{number}");
        world.lock().add_pod("t-w1", &name);
        world.lock().unevictable.insert(name);
    }
    world.lock().evicting = Duration::from_secs(15);
    let before = world.now();
    assert_eq!(world.give_for_a_minute(remove("t-w1")).await.arrived().0, RunOutcome::Cancelled);
    let took = world.now() - before;
    assert!(took < 120, "it took {took} s to end");
    let before = world.now();
    let waits = world.give(Goal::Continue).await.paused();
    let took = world.now() - before;
    assert!(took < 450 && waits[0].reason.code == "workers.drain-blocked", "{took} s: {waits:?}");
    // Some are named.
    let named = waits[0].reason.words.split("; ").take(3);
    assert!(named.clone().count() == 3 && named.clone().all(|one| one.ends_with(": a webhook denies it")), "{waits:?}");
    assert_eq!(world.lock().pods_on("t-w1").len(), 1000, "the one that nothing keeps is there");
}

#[tokio::test(start_paused = true)]
async fn slow_evictions_keep_no_other_pod() {
    let world = World::with(2).await;
    for number in 0..6 {
        let name = format!("a-slow{number}");
        world.lock().add_pod("t-w1", &name);
        world.lock().unevictable.insert(name);
    }
    world.lock().evicting = Duration::from_secs(10);
    let (given, left) = with_later(world.give(remove("t-w1")), 150, async || world.lock().pods_on("t-w1")).await;
    assert!(left.len() == 6 && left.iter().all(|pod| pod.starts_with("a-slow")), "{left:?}");
    assert_eq!(codes(&given.arrived().0), ["workers.drain-blocked"]);
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_eviction_delays_no_other_pod() {
    let world = World::with(2).await;
    for name in ["a-silent", "b-stuck"] {
        world.lock().add_pod("t-w1", name);
    }
    world.lock().unanswered.insert("a-silent".to_owned());
    world.lock().unevictable.insert("b-stuck".to_owned());
    let waits = world.give(remove("t-w1")).await.paused();
    assert_eq!(
        waits[0].to_string(),
        "t-w1: web/a-silent: it was not answered: no answer for a-silent; web/b-stuck: a webhook denies it \
         [workers.drain-blocked]"
    );
    assert_eq!(world.lock().pods_on("t-w1").len(), 2, "the one that nothing keeps is there");
    // If no eviction is answered at all, the command waits for that.
    world.lock().unevictable.clear();
    let (given, ()) = with_later(world.give(Goal::GoOn), 60, async || {
        world.lock().unanswered.clear();
    })
    .await;
    given.done();
    assert_eq!(world.own(), ["t-w2"]);
}

#[tokio::test(start_paused = true)]
async fn a_cordoned_worker_hands_over_its_services_first() {
    let world = World::with(2).await;
    world.lock().nodes[0].cordoned = true;
    // A forbidden call panics in the fake.
    world.give(remove("t-w1")).await.done();
    assert_eq!(world.own(), ["t-w2"]);
}

#[tokio::test(start_paused = true)]
async fn local_data_keeps_a_worker_until_discarded() {
    for (discards, code, data) in
        [(VOLUMES, "workers.local-volumes", "web/data"), (PODS, "workers.bare-pods", "web/of-t-w1")]
    {
        let world = World::with(2).await;
        if discards == PODS {
            world.lock().bare("t-w1");
        } else {
            world.lock().claims.insert("t-w1".to_owned(), vec!["web/data".to_owned()]);
            world.lock().add_disk("t-w1");
        }
        let waits = world.give(remove("t-w1")).await.paused();
        assert_eq!(named(&waits), [(Some("t-w1"), code)]);
        assert!(waits[0].to_string().contains(data));
        assert!(!world.lock().nodes[0].cordoned, "it does its part until then");
        world.give(remove_with("t-w1", discards)).await.done();
        assert_eq!(world.own(), ["t-w2"]);
    }
}

#[tokio::test(start_paused = true)]
async fn unmanaged_pods_keep_a_worker_that_went_off() {
    let world = World::with(2).await;
    world.lock().bare("t-w1");
    world.give(remove("t-w1")).await.arrived();
    world.lock().lose_power("t-w1");
    assert_eq!(world.give(Goal::Add(1)).await.codes(), ["workers.bare-pods"]);
    assert!(world.lock().nodes.iter().any(|node| node.name == "t-w1"), "its pods went with its node");
    world.give(remove_with("t-w1", PODS)).await.done();
    assert_eq!(world.own(), ["t-w2", "t-w3"]);
}

#[tokio::test(start_paused = true)]
async fn a_discard_counts_for_outdated_workers_only() {
    let world = World::with(2).await;
    let claim = |worker: &str| world.lock().claims.insert(worker.to_owned(), vec!["web/data".to_owned()]);
    let discarding = |image: &str| {
        let mut goal = replace(image, Changes::default());
        if let Goal::Replace { discards, .. } = &mut goal {
            *discards = VOLUMES;
        }
        goal
    };
    claim("t-w1");
    let status = world.give(discarding("two")).await.done();
    assert!(status.workers.iter().all(|worker| worker.drain == Discards::default()), "{status:?}");
    claim("t-w3");
    assert_eq!(world.give(remove("t-w3")).await.codes(), ["workers.local-volumes"]);
    world.lock().claims.clear();
    world.give(Goal::GoOn).await.done();

    // It counts while they are outdated, and not for one that the operator names without it.
    world.give(Goal::Pause).await.done();
    let discards_of_first = async || world.kept().await.unwrap().machines[0].drain.delete_local_volumes;
    world.give(discarding("three")).await.arrived();
    assert!(discards_of_first().await);
    world.give(replace("two", Changes::default())).await.done();
    assert!(!discards_of_first().await);
    world.give(discarding("three")).await.arrived();
    claim("t-w4");
    assert_eq!(world.give(remove("t-w4")).await.codes(), ["workers.local-volumes"]);
}

#[tokio::test(start_paused = true)]
async fn a_paused_rollout_resumes_only_on_request() {
    let world = World::with(2).await;
    world.give(Goal::Pause).await.done();
    // An operator who asks for another image does not lift the pause of another operator.
    let (arrived, status) = world.give(replace("two", Changes::default())).await.arrived();
    assert_eq!(codes(&arrived), ["workers.paused"]);
    assert!(status.paused && status.workers.iter().all(|worker| !worker.up_to_date));
    let (_, status) = world.give(Goal::Add(1)).await.arrived();
    assert_eq!((status.available, status.workers[2].up_to_date), (3, true));
    // Starting a tenant again does not lift it either, and still powers on VMs that are off.
    world.lock().lose_power("t-w1");
    let (arrived, status) = world.give(Goal::Continue).await.arrived();
    assert_eq!((codes(&arrived), status.available), (vec!["workers.paused"], 3));
    let status = world.give(Goal::GoOn).await.done();
    assert!(!status.paused && status.workers.iter().all(|worker| worker.up_to_date));
}

#[tokio::test(start_paused = true)]
async fn too_few_available_workers_block_a_replacement() {
    let world = World::with(2).await;
    world.lock().silence("t-w1");
    world.lock().silence("t-w2");
    let (arrived, status) = world.give(replace("two", Changes::default())).await.arrived();
    // A network that is cut off makes all of them look alike: none goes.
    assert_eq!(codes(&arrived), ["workers.not-ready", "workers.not-ready", "workers.too-few"]);
    assert_eq!(status.workers.len(), 3, "{status:?}");
    for node in &mut world.lock().nodes {
        node.ready = true;
    }
    world.give(Goal::GoOn).await.done();
    assert_eq!(world.own().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_silent_worker_can_be_removed() {
    let world = World::with(2).await;
    world.lock().silence("t-w1");
    // Its pod is evicted, and no kubelet confirms the end.
    world.give(remove("t-w1")).await.done();
    assert_eq!(world.own(), ["t-w2"]);
    assert_eq!(world.lock().nodes.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_removed_vm_is_replaced() {
    let world = World::with(2).await;
    world.lock().lose_vm("t-w1");
    let status = world.give(Goal::GoOn).await.done();
    let names: Vec<_> = status.workers.iter().map(|worker| worker.name.as_str()).collect();
    assert_eq!((names, status.available), (vec!["t-w2", "t-w3"], 2));
}

#[tokio::test(start_paused = true)]
async fn giving_up_lost_volumes_removes_no_other_worker() {
    let world = World::with(2).await;
    for worker in ["t-w1", "t-w2"] {
        world.lock().claims.insert(worker.to_owned(), vec![format!("web/of-{worker}")]);
    }
    world.lock().lose_vm("t-w1");
    let (arrived, status) = world.give(Goal::GoOn).await.arrived();
    assert_eq!((codes(&arrived), status.available), (vec!["workers.local-volumes"], 2));
    assert_eq!(world.give(remove_with("t-w1", VOLUMES)).await.done().wanted, 2);
    assert_eq!(world.own(), ["t-w2", "t-w3"]);
}

#[tokio::test(start_paused = true)]
async fn giving_up_lost_volumes_spares_a_failed_worker() {
    let world = World::with(3).await;
    world.lock().claims.insert("t-w1".to_owned(), vec!["web/data".to_owned()]);
    world.lock().lose_vm("t-w1");
    assert_eq!(world.give(Goal::GoOn).await.codes(), ["workers.local-volumes"]);
    world.lock().expire("t-w2");
    world.lock().refusing.insert("t-w2".to_owned(), ("join.token-refused", true));
    world.give(rejoin("t-w2")).await.stopped();
    world.give(remove_with("t-w1", VOLUMES)).await.arrived();
    world.lock().refusing.clear();
    assert_eq!(world.give(Goal::GoOn).await.done().wanted, 3);
    assert_eq!(world.own(), ["t-w2", "t-w3", "t-w4"]);
}

#[tokio::test(start_paused = true)]
async fn workers_without_power_are_named_until_resumed() {
    let world = World::with(2).await;
    world.lock().lose_power("t-w1");
    // Another operator may have shut it down: a command for another worker reports it, and leaves it off.
    let (arrived, status) = world.give(Goal::Add(1)).await.arrived();
    assert_eq!((codes(&arrived), status.available), (vec!["workers.vm-state"], 2));
    assert!(matches!(&arrived, RunOutcome::Paused(waits) if waits[0].worker.as_deref() == Some("t-w1")));
    world.lock().lose_power("t-w2");
    assert_eq!(world.give(Goal::GoOn).await.done().available, 3);
}

#[tokio::test(start_paused = true)]
async fn a_refused_power_on_is_named_at_once() {
    let world = World::with(2).await;
    world.lock().lose_power("t-w1");
    world.lock().stay_off = true;
    let before = world.now();
    let waits = world.give(Goal::GoOn).await.paused();
    assert_eq!(named(&waits), [(Some("t-w1"), "hypervisor.refused")]);
    assert!(world.now() - before < 60, "it took {} s", world.now() - before);
    world.lock().stay_off = false;
    assert_eq!(world.give(Goal::GoOn).await.done().available, 2);
}

#[tokio::test(start_paused = true)]
async fn workers_after_a_power_cut_must_report_ready() {
    let world = World::with(3).await;
    // Kubernetes has not seen yet that they are silent.
    world.lock().unnoticed = true;
    for worker in ["t-w1", "t-w2", "t-w3"] {
        world.lock().lose_power(worker);
    }
    assert!(world.lock().nodes.iter().all(|node| node.ready));
    let before = world.now();
    let status = world.give(Goal::GoOn).await.done();
    let is_on = |power: Option<PowerState>| power == Some(PowerState::On);
    assert!(status.workers.iter().all(|worker| worker.available && is_on(worker.power)), "{status:?}");
    assert!(world.lock().nodes.iter().all(|node| node.heard.parse::<u64>().unwrap() > before), "they were believed");
    assert_eq!((world.own(), status.wanted), (vec!["t-w1".into(), "t-w2".into(), "t-w3".into()], 3));
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_a_ready_node_is_named() {
    let world = World::with(2).await;
    world.lock().nodes.retain(|node| node.name != "t-w1");
    world.lock().silence("t-w2");
    let waits = world.give(Goal::GoOn).await.paused();
    assert_eq!(named(&waits), [(Some("t-w1"), "workers.not-ready"), (Some("t-w2"), "workers.not-ready")]);
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_a_node_is_not_restarted() {
    let world = World::with(2).await;
    world.lock().nodes.retain(|node| node.name != "t-w1");
    world.set_fault(None);
    let before = world.now();
    let (arrived, status) = world.give(rejoin("t-w1")).await.arrived();
    let RunOutcome::Stopped(why) = &arrived else { panic!("{arrived:?}") };
    assert!(why[0].reason.code == "workers.not-ready" && why[0].reason.words.ends_with("remove the worker"), "{why:?}");
    assert!(world.now() - before < 60, "it took {} s", world.now() - before);
    let power = ["shut_down", "cut_power", "power_on", "give"];
    assert!(!world.lock().calls.iter().any(|(name, _)| power.contains(name)), "its VM was touched");
    assert_eq!(status.workers[0].power, Some(PowerState::On));
    world.give(Goal::GoOn).await.stopped();
    assert_eq!(world.give(remove("t-w1")).await.done().wanted, 1);
    assert_eq!(world.own(), ["t-w2"]);
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_a_node_gets_its_token() {
    let world = World::with(2).await;
    world.lock().nodes.retain(|node| node.name != "t-w1");
    world.lock().refusing.insert("t-w1".to_owned(), ("join.certificate-expired", true));
    let rejoins = async {
        while world.called("give") == 0 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        world.lock().refusing.clear();
    };
    world.set_fault(None);
    let (given, ()) = tokio::join!(world.give(rejoin("t-w1")), rejoins);
    assert_eq!(given.done().available, 2);
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_a_node_may_ask_first() {
    let world = World::with(2).await;
    world.lock().nodes.retain(|node| node.name != "t-w1");
    world.lock().refusing.insert("t-w1".to_owned(), ("join.certificate-expired", true));
    let waits = world.status().await.unwrap().unwrap().waits;
    assert!(waits.len() == 1 && waits[0].token && waits[0].reason.code == "join.certificate-expired", "{waits:?}");
    let words = &waits[0].reason.words;
    assert!(words.starts_with("its node is gone: ") && words.contains("to be rid of this worker, remove"), "{words}");
    // After a power cut it has said nothing yet.
    world.lock().lose_power("t-w1");
    world.set_fault(None);
    let rejoins = async {
        while world.called("give") == 0 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        world.lock().refusing.clear();
    };
    let given = async {
        let given = world.give(rejoin("t-w1"));
        tokio::time::timeout(Duration::from_secs(3600), given).await.expect("it waits forever")
    };
    let (given, _) = tokio::join!(given, tokio::time::timeout(Duration::from_secs(3600), rejoins));
    assert_eq!(given.done().available, 2);
}

#[tokio::test(start_paused = true)]
async fn volumes_keep_a_worker_whose_node_was_removed() {
    let world = World::with(2).await;
    world.lock().claims.insert("t-w1".to_owned(), vec!["web/data".to_owned()]);
    world.lock().nodes.retain(|node| node.name != "t-w1");
    let (arrived, status) = world.give(remove("t-w1")).await.arrived();
    assert_eq!(codes(&arrived), ["workers.local-volumes"]);
    assert_eq!((world.own().len(), status.workers[0].power), (2, Some(PowerState::On)));
    world.lock().lose_power("t-w1");
    assert_eq!(world.give(Goal::GoOn).await.codes(), ["workers.local-volumes"]);
    assert_eq!(world.own().len(), 2);
    world.give(remove_with("t-w1", VOLUMES)).await.done();
    assert_eq!(world.own(), ["t-w2"]);
}

#[tokio::test(start_paused = true)]
async fn unseen_vms_with_ready_nodes_are_not_gone() {
    let world = World::with(2).await;
    let all = std::mem::take(&mut world.lock().machines);
    world.set_fault(None);
    let (arrived, status) = world.give(Goal::GoOn).await.arrived();
    assert_eq!(codes(&arrived), ["workers.vm-unseen"; 2]);
    assert!(status.workers.iter().all(|worker| worker.state == State::Running), "{status:?}");
    // The node of a worker that the operator removes stays, too.
    assert_eq!(world.give(remove("t-w1")).await.codes(), ["workers.vm-unseen"; 2]);
    let changed = |(_, does): &(&str, Does)| matches!(does, Does::ChangesCluster);
    assert!(!world.lock().calls.iter().any(changed) && world.lock().nodes.len() == 2);
    world.lock().machines = all;
    world.give(Goal::GoOn).await.done();
    assert_eq!(world.own(), ["t-w2"]);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_may_run_has_no_successor() {
    let world = World::with(2).await;
    let is_its = |machine: &&Machine| machine.vm.name == "t-w1" && machine.vm.uuid().as_u128() >= 0xe00;
    let lost = world.lock().machines.iter().find(is_its).unwrap().vm.uuid();
    world.lock().lose_vm("t-w1");
    world.lock().may_run.insert(lost);
    assert_eq!(world.give(Goal::GoOn).await.codes(), ["workers.vm-unseen"]);
    assert_eq!(world.own(), ["t-w2"]);
    world.lock().may_run.clear();
    world.give(Goal::GoOn).await.done();
    assert_eq!(world.own(), ["t-w2", "t-w3"]);
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_not_mistaken_for_its_worker() {
    let world = World::with(1).await;
    // Another one's VM is called as it is, too.
    let is_its = |machine: &Machine| machine.vm.uuid().as_u128() >= 0xe00;
    {
        let mut state = world.lock();
        let at = state.machines.iter().position(is_its).unwrap();
        let mut copy = state.machines[at].clone();
        copy.vm.reference.id.push_str("-copy");
        copy.vm.power = PowerState::Off;
        // It is only found by its BIOS UUID.
        state.machines[at].vm.stamp = None;
        state.machines.push(copy);
    }
    let powers = |world: &World| {
        let state = world.lock();
        let its = state.machines.iter().filter(|machine| is_its(machine));
        its.map(|machine| machine.vm.power).collect::<Vec<_>>()
    };
    for wish in [Goal::GoOn, remove("t-w1")] {
        assert_eq!(world.give(wish).await.codes(), ["workers.vm-odd"]);
        assert_eq!(powers(&world), [PowerState::On, PowerState::Off]);
    }
}

/// Backup software keeps it in a folder that is not searched, with the worker's BIOS UUID.
#[tokio::test(start_paused = true)]
async fn a_replica_that_is_off_blocks_no_removal() {
    let world = World::with(2).await;
    {
        let mut state = world.lock();
        let its = |machine: &&Machine| machine.vm.name == "t-w1" && machine.vm.uuid().as_u128() >= 0xe00;
        let mut replica = state.machines.iter().find(its).unwrap().clone();
        replica.vm.reference.id.push_str("-replica");
        (replica.vm.power, replica.vm.stamp) = (PowerState::Off, None);
        state.machines.push(replica);
    }
    world.give(remove("t-w1")).await.arrived();
    assert_eq!(world.own(), ["t-w2"]);
}

/// Two workers. The VM of one has a data disk, and backup software keeps its replica in a folder that is not searched.
async fn with_replica(is_stamped: bool) -> (World, VmRef) {
    let world = World::with(2).await;
    let replica = {
        let mut state = world.lock();
        let replica = state.copy_vm("t-w1");
        replica.stamp = replica.stamp.take().filter(|_| is_stamped);
        let replica = replica.reference.clone();
        state.away.insert(replica.id.clone());
        state.add_disk("t-w1");
        replica
    };
    (world, replica)
}

/// The same after the removal of that worker was killed at the first call of this name. The operator has removed the rest of its VM.
async fn killed_with_replica(is_stamped: bool, call: &str) -> (World, VmRef) {
    let (world, _) = with_replica(is_stamped).await;
    world.set_fault(None);
    world.give(remove("t-w1")).await.done();
    let at = world.first_call(call);
    let (world, replica) = with_replica(is_stamped).await;
    world.dies((at, Fault::KilledAfter), world.give(remove("t-w1"))).await;
    world.lock().machines.retain(|machine| machine.vm.name != "t-w1");
    (world, replica)
}

fn power_of(world: &World, vm: &VmRef) -> Option<PowerState> {
    let state = world.lock();
    state.machines.iter().find(|machine| machine.vm.reference == *vm).map(|machine| machine.vm.power)
}

#[tokio::test(start_paused = true)]
async fn a_replica_stays_where_its_worker_has_gone() {
    for is_stamped in [true, false] {
        let (world, replica) = with_replica(is_stamped).await;
        world.give(remove("t-w1")).await.done();
        assert_eq!(power_of(&world, &replica), Some(PowerState::Off), "stamped {is_stamped}");
        for call in ["detach", "destroy"] {
            let told = format!("stamped {is_stamped}, killed after {call}");
            let (world, replica) = killed_with_replica(is_stamped, call).await;
            let status = world.status().await.unwrap().unwrap();
            assert_eq!(status.workers[0].left, [format!("t-w1-copy ({})", replica.uuid)], "{told}");
            world.give_over(Goal::GoOn).await.done();
            assert!(world.kept().await.unwrap().machine("t-w1").is_none(), "{told}");
            assert_eq!(power_of(&world, &replica), Some(PowerState::Off), "{told}");
        }
    }
}

/// The operator has powered it on since: a running replica is not shut down with its worker.
#[tokio::test(start_paused = true)]
async fn a_running_replica_of_a_removed_worker_stays() {
    let (world, replica) = killed_with_replica(true, "destroy").await;
    let set = |power: PowerState| {
        let mut state = world.lock();
        let its = state.machines.iter_mut().find(|machine| machine.vm.reference == replica);
        its.expect("the replica").vm.power = power;
    };
    set(PowerState::On);
    assert_eq!(world.give_over(Goal::GoOn).await.codes(), ["workers.vm-odd"]);
    assert_eq!(power_of(&world, &replica), Some(PowerState::On));
    set(PowerState::Off);
    world.give(Goal::GoOn).await.done();
    assert!(world.kept().await.unwrap().machine("t-w1").is_none());
    assert_eq!(power_of(&world, &replica), Some(PowerState::Off));
}

/// Its host was removed from the inventory and added again during the removal. Its system disk shows that it is no replica.
#[test]
fn its_own_system_disk_is_no_replica() {
    let mut own = vm("t-w1", Uuid::from_u128(7), None);
    let reference = DiskRef { uuid: Uuid::from_u128(8), path: "a".to_owned() };
    own.disks.push(Disk { kind: DiskKind::System, ..data_disk(reference) });
    let going = WorkerRecord::new(&pool(1), Uuid::from_u128(1), None, 0).taking_apart(&own);
    let again = Vm { reference: VmRef { id: "another".to_owned(), ..own.reference.clone() }, ..own };
    assert!(!going.has_replica(&again));
    assert!(going.has_replica(&Vm { disks: Vec::new(), ..again.clone() }));
    // So many of its disks are noted as a Machine's status takes, that one among them.
    let data = |number: u32| {
        data_disk(DiskRef { uuid: Uuid::from_u128(100 + u128::from(number)), path: format!("b{number}") })
    };
    let many = Vm { disks: (0..70).map(data).chain(again.disks.iter().cloned()).collect(), ..again };
    let going = WorkerRecord::new(&pool(1), Uuid::from_u128(1), None, 0).taking_apart(&many);
    assert_eq!(going.deleting_disks.len(), 64);
    assert!(going.deleting_disks.contains(&Uuid::from_u128(8)));
    assert_eq!(going.taking_apart(&many), going);
}

/// A snapshot of the storage is registered elsewhere, off, with the stamp and the disks.
#[tokio::test(start_paused = true)]
async fn a_copy_that_holds_a_disk_stays() {
    let world = World::with(2).await;
    let copy = {
        let mut state = world.lock();
        state.add_disk("t-w1");
        let copy = state.copy_vm("t-w1").reference.clone();
        state.away.insert(copy.id.clone());
        copy
    };
    let (arrived, _) = world.give(remove("t-w1")).await.arrived();
    assert_eq!((codes(&arrived), power_of(&world, &copy)), (vec!["workers.vm-odd"], Some(PowerState::Off)));
    let state = world.lock();
    let held = state.machines.iter().find(|machine| machine.vm.reference == copy).map(|machine| machine.vm.disks.len());
    assert_eq!(held, Some(1), "it was taken apart");
}

#[tokio::test(start_paused = true)]
async fn vms_unseen_for_a_moment_are_not_gone() {
    let world = World::with(2).await;
    let all = std::mem::take(&mut world.lock().machines);
    for node in &mut world.lock().nodes {
        node.ready = false;
    }
    let before = world.kept().await.unwrap();
    let (given, ()) = with_later(world.give(Goal::GoOn), 30, async || {
        let mut state = world.lock();
        state.machines = all;
        state.nodes.iter_mut().for_each(|node| node.ready = true);
    })
    .await;
    assert_eq!(given.done().available, 2);
    let kept = world.kept().await.unwrap();
    assert!(kept.pool.last_index == 2, "{kept:?}");
    assert!(kept.machines.iter().all(|machine| machine.state == State::Running), "{kept:?}");
    assert_eq!(kept.machines[0].bios_uuid, before.machines[0].bios_uuid);
}

#[tokio::test(start_paused = true)]
async fn setting_the_clock_makes_no_vm_gone() {
    let world = World::with(1).await;
    world.lock().silence("t-w1");
    let clock = std::cell::Cell::new(world.now());
    let kept = world.kept().await.unwrap();
    let mut missing = Missing::default();
    let mut look = || {
        let mut seen = Inventory { now: clock.get(), nodes: world.lock().nodes.clone(), ..Inventory::default() };
        missing.note(&kept.machines, &mut seen);
        seen.gone.contains("t-w1")
    };
    assert!(!look());
    // The host learns the time.
    clock.set(clock.get() + 3600);
    assert!(!look());
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert!(look());
}

#[tokio::test(start_paused = true)]
async fn a_failed_worker_without_a_vm_delays_nothing() {
    let world = World::with(1).await;
    world.lock().ill.insert("one".to_owned());
    world.give(Goal::Add(1)).await.stopped();
    let of_failed = |machine: &Machine| machine.vm.name != "t-w2";
    world.lock().machines.retain(of_failed);
    let status = world.status().await.unwrap().unwrap();
    assert!(status.waits.is_empty() && status.stopped.len() == 1, "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn a_restamped_vm_is_not_changed() {
    let world = World::with(2).await;
    let of_first = |machine: &&mut Machine| machine.vm.uuid().as_u128() >= 0xe00;
    world.lock().machines.iter_mut().find(of_first).unwrap().vm.stamp = None;
    assert_eq!(world.give(remove("t-w1")).await.codes(), ["workers.vm-odd"]);
    assert_eq!(world.lock().machines.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn no_worker_is_created_without_a_control_plane() {
    let world = World::with(2).await;
    world.lock().is_without_control = true;
    assert_eq!(world.status().await.unwrap().unwrap().workers.len(), 2);
    assert_eq!(named(&world.give(Goal::Add(1)).await.paused()), [(Some("t-w3"), "workers.no-control-node")]);
    assert!(world.lock().tokens.is_empty() && world.own().len() == 2);
    world.give(Goal::Scale(2)).await.done();
}

#[tokio::test(start_paused = true)]
async fn a_command_waits_for_the_api() {
    let world = World::with(2).await;
    world.lock().cut = true;
    assert_eq!(world.give(Goal::Add(1)).await.codes(), ["workers.api-silent"]);
    assert_eq!(world.own().len(), 2);
    world.lock().cut = false;
    assert_eq!(world.give(Goal::GoOn).await.done().available, 3);
}

#[tokio::test(start_paused = true)]
async fn a_pause_without_the_api_is_recorded() {
    let world = World::with(2).await;
    world.lock().cut = true;
    let before = world.now();
    let (arrived, status) = world.give(Goal::Pause).await.arrived();
    assert!(world.now() - before < 5, "it waits for the cluster");
    assert_eq!((codes(&arrived), status.paused), (vec!["workers.api-silent"], true));
    assert!(world.kept().await.unwrap().pool.rollout.paused);
    let told = world.status().await.unwrap().unwrap();
    assert_eq!(told, status);
    let why: Vec<_> = told.waits.iter().map(|wait| wait.reason.code.as_str()).collect();
    assert_eq!((told.looked, told.done, why), (false, false, vec!["workers.api-silent"]));
    let names: Vec<_> = told.workers.iter().map(|worker| (worker.name.as_str(), worker.state)).collect();
    assert_eq!(names, [("t-w1", State::Running), ("t-w2", State::Running)]);
}

#[tokio::test(start_paused = true)]
async fn slowly_created_workers_are_created_once_each() {
    let world = World::new();
    world.lock().making = Duration::from_secs(60);
    let mut many = Pool { addresses: None, ..pool(20) };
    many.rollout.join_seconds = 1500;
    world.set_fault(None);
    assert_eq!(world.give(Goal::Create(Box::new(many))).await.done().available, 20);
    let made = world.called("add");
    assert_eq!(made, 20);
}

#[tokio::test(start_paused = true)]
async fn a_vm_slower_than_its_token_stops() {
    let world = World::new();
    world.lock().making = Duration::from_secs(1000);
    let (arrived, status) = world.give(Goal::Create(Box::new(pool(1)))).await.arrived();
    assert_eq!(codes(&arrived), ["workers.too-slow"]);
    assert!(matches!(arrived, RunOutcome::Stopped(_)) && world.lock().tokens.is_empty(), "{status:?}");
    world.lock().making = Duration::ZERO;
    world.give(Goal::GoOn).await.done();
    assert_eq!(world.own(), ["t-w2"]);
}

#[tokio::test(start_paused = true)]
async fn an_incomplete_or_late_worker_gets_another_name() {
    // A VM that is incomplete, and one whose token has expired before it was powered on.
    for (call, seconds) in [("add.end", 0), ("power_on", 7200)] {
        let world = World::killed_while_adding(call, Fault::KilledBefore).await;
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        assert_eq!(world.give_over(Goal::GoOn).await.done().available, 2);
        assert_eq!(world.own(), ["t-w1", "t-w3"], "an intruder with its token is t-w2");
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_token_is_replaced_at_once() {
    let killed = async |seconds| {
        let world = World::killed_while_adding("power_on", Fault::KilledAfter).await;
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        world
    };
    let world = killed(7200).await;
    let before = world.now();
    assert_eq!(world.give_over(Goal::GoOn).await.done().available, 2);
    assert!(world.now() - before < 300, "it is waited for");
    assert_eq!(world.own(), ["t-w1", "t-w3"], "an intruder with its token is t-w2");
    // A worker that has joined meanwhile stays.
    let world = killed(1200).await;
    assert_eq!(world.give_over(Goal::GoOn).await.done().available, 2);
    assert_eq!(world.own(), ["t-w1", "t-w2"]);
    // Another command does not wait for it either.
    let world = killed(7200).await;
    let before = world.now();
    assert_eq!(
        world.give_with(Goal::Add(1), TakeOver::FromAnyone, watch::channel(false).1).await.codes(),
        ["workers.not-joined"]
    );
    assert!(world.now() - before < 300, "it is waited for");
}

#[tokio::test(start_paused = true)]
async fn an_intruder_loses_a_removed_name() {
    let world = World::with(1).await;
    world.lock().ill.insert("one".to_owned());
    world.give(Goal::Add(1)).await.stopped();
    // An intruder that has read its form was admitted, and waits.
    world.lock().let_in.insert("t-w2".to_owned(), ANOTHER.to_owned());
    world.lock().ill.clear();
    world.give(Goal::GoOn).await.done();
    let let_in = world.lock().let_in.keys().cloned().collect::<Vec<_>>();
    assert_eq!((world.own(), let_in), (vec!["t-w1".into(), "t-w3".into()], vec!["t-w1".into(), "t-w3".into()]));
}

#[tokio::test(start_paused = true)]
async fn a_removed_failed_worker_is_not_recreated() {
    let world = World::with(1).await;
    world.lock().ill.insert("one".to_owned());
    world.give(Goal::Add(1)).await.stopped();
    // The command is cancelled once that is recorded.
    let (cancel, cancelled) = watch::channel(false);
    let noting = || {
        cancel.send_replace(true);
        Ok(())
    };
    let gone = world
        .acting(cancelled, async |workers| workers.go_with(&Goal::GoOn, TakeOver::FromTheDead, &noting).await)
        .await;
    assert_eq!(gone.unwrap().0, RunOutcome::Cancelled);
    assert_eq!(world.kept().await.unwrap().machines[1].state, State::Deleting);
    assert_eq!(world.give(remove("t-w2")).await.done().wanted, 1);
    assert_eq!(world.own(), ["t-w1"]);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_node_with_a_workers_name_stays() {
    for provider in ["vsphere://00000000-0000-0000-0000-000000000bad", ""] {
        let world = World::with(1).await;
        let other = NodeSeen { uid: "other".to_owned(), ..node_on("t-w2", provider) };
        world.lock().nodes.push(other.clone());
        // It used the worker's token, as control-plane nodes have recorded.
        world.lock().let_in.insert("t-w2".to_owned(), ANOTHER.to_owned());
        let why = world.give(Goal::Add(1)).await.stopped();
        assert!(why.len() == 1 && why[0].reason.code == "workers.name-in-use", "{provider:?}: {why:?}");
        assert!(why[0].reason.words.contains("delete that node"), "{why:?}");
        let status = world.give(Goal::GoOn).await.done();
        assert_eq!(status.workers.last().unwrap().name, "t-w3");
        assert!(world.lock().nodes.contains(&other), "it was changed");
        assert!(!world.lock().let_in.contains_key("t-w2"), "control-plane nodes still know it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_older_than_the_token_stays_admitted() {
    let world = World::with(1).await;
    let node = NodeSeen { name: "t-w2".to_owned(), uid: "other".to_owned(), ..world.lock().nodes[0].clone() };
    world.lock().nodes.push(NodeSeen { provider: String::new(), ..node });
    world.lock().let_in.insert("t-w2".to_owned(), "its own".to_owned());
    // The operator reduces the pool before its token exists.
    let mut kept = world.kept().await.unwrap();
    kept.pool.last_index += 1;
    let mut new = WorkerRecord::new(&kept.pool, Uuid::from_u128(9), None, world.now());
    new.state = State::Deleting;
    kept.machines.push(new);
    world.keep(kept).await;
    world.give(Goal::GoOn).await.done();
    assert!(world.kept().await.unwrap().machines.len() == 1 && world.lock().let_in.contains_key("t-w2"));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_command_can_be_continued() {
    let world = World::with(2).await;
    world.lock().ill.insert("two".to_owned());
    assert_eq!(world.give_for_a_minute(replace("two", Changes::default())).await.arrived().0, RunOutcome::Cancelled);
    world.lock().ill.clear();
    world.give(Goal::GoOn).await.done();
}

#[tokio::test(start_paused = true)]
async fn a_second_operator_learns_of_the_first() {
    let world = World::with(2).await;
    world.lock().ill.insert("two".to_owned());
    let second = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        world.give(Goal::Add(1)).await
    };
    let status = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        world.status().await.unwrap().unwrap().held_by
    };
    let (first, second, held_by) = tokio::join!(world.give(replace("two", Changes::default())), second, status);
    assert!(held_by.is_some_and(|holder| holder.contains("a test")));
    assert_eq!(world.status().await.unwrap().unwrap().held_by, None);
    assert!(matches!(first.arrived().0, RunOutcome::Stopped(_)));
    second.fails("holds the lease");
    assert_eq!(world.kept().await.unwrap().pool.count, 2);
}

#[tokio::test(start_paused = true)]
async fn a_refused_goal_records_nothing() {
    let world = World::with(2).await;
    world.lock().ill.insert("two".to_owned());
    let noted = std::cell::Cell::new(0);
    let go = async || {
        let note = || {
            noted.set(noted.get() + 1);
            Ok(())
        };
        world
            .acting(watch::channel(false).1, async |workers| {
                workers.go_with(&Goal::Add(1), TakeOver::FromTheDead, &note).await
            })
            .await
    };
    let second = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        go().await
    };
    let (_, second) = tokio::join!(world.give(replace("two", Changes::default())), second);
    assert!(second.is_err() && noted.get() == 0, "it was refused, and noted");
    world.lock().ill.clear();
    world.give(Goal::GoOn).await.done();
    go().await.unwrap();
    assert_eq!((noted.get(), world.own().len()), (1, 3));
}

#[tokio::test(start_paused = true)]
async fn an_expired_worker_rejoins_in_its_vm() {
    let world = World::with(2).await;
    let (vm, took) = {
        let kept = world.kept().await.unwrap();
        (kept.machines[0].bios_uuid, kept.machines[0].joined_seconds)
    };
    world.lock().expire("t-w1");
    let status = world.give(rejoin("t-w1")).await.done();
    assert_eq!((status.available, world.own().len()), (2, 2));
    let kept = world.kept().await.unwrap();
    assert_eq!((kept.machines[0].bios_uuid, kept.machines[0].joined_seconds), (vm, took), "it is the same VM");
    assert!(world.lock().tokens.is_empty());
    // One that does its part goes on with it.
    let powered = |world: &World| world.called("power_on");
    let before = powered(&world);
    world.give(rejoin("t-w2")).await.done();
    assert_eq!((powered(&world), world.fewest()), (before, 1));
    world.give(rejoin("t-w9")).await.fails("there is no worker t-w9");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_never_joined_cannot_rejoin() {
    let world = World::new();
    world.lock().ill.insert("one".to_owned());
    world.give(Goal::Create(Box::new(pool(1)))).await.arrived();
    world.give(rejoin("t-w1")).await.fails("has never joined");
}

#[tokio::test(start_paused = true)]
async fn the_timeout_factor_extends_the_time_to_join() {
    let world = World::new();
    world.lock().ill.insert("one".to_owned());
    world.lock().timeout_factor = 5;
    assert_eq!(
        world.give(Goal::Create(Box::new(pool(1)))).await.codes(),
        ["workers.joining"],
        "after 1200 s without a change it still has time"
    );
    let expires = *world.lock().tokens.values().next().expect("its token");
    assert!(expires - world.now() > 6000, "its token is good for {} s", expires - world.now());
    world.lock().ill.clear();
    world.give(Goal::Continue).await.done();
}
