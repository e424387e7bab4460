//! What people want, and what becomes of it.

use std::time::Duration;

use contract::bios_uuid::BiosUuid;
use tokio::sync::watch;
use uuid::Uuid;

use super::fake::{ANOTHER, Does, Fault, Given, World, node_on, pool, remove, replace, template, vm};
use crate::hypervisor::{Disk, DiskKind, DiskRef, PowerState, Size, Vm, VmRef};
use crate::lease::TakeOver;
use crate::workers::missing::Missing;
use crate::workers::{Changes, Discards, Goal, Inventory, NodeSeen, Pool, RunOutcome, State, WorkerRecord};

pub fn codes(arrived: &RunOutcome) -> Vec<&str> {
    match arrived {
        RunOutcome::Paused(waits) | RunOutcome::Stopped(waits) => {
            waits.iter().map(|wait| wait.reason.code.as_str()).collect()
        }
        RunOutcome::Done | RunOutcome::Cancelled => Vec::new(),
    }
}

#[tokio::test(start_paused = true)]
async fn workers_join_with_a_token_each_and_nothing_of_it_is_left() {
    let world = World::new();
    let status = world.give(Goal::Create(Box::new(pool(2)))).await.done();
    assert_eq!((status.wanted, status.available), (2, 2));
    let names: Vec<_> = status.workers.iter().map(|worker| (worker.name.as_str(), worker.state)).collect();
    assert_eq!(names, [("t-w1", State::Running), ("t-w2", State::Running)]);
    assert_eq!(status.workers[1].address, Some([10, 0, 0, 21].into()));
    assert!(status.workers.iter().all(|worker| worker.joined_seconds.is_some_and(|took| (5..60).contains(&took))));
    assert!(world.lock().tokens.is_empty());
    let again = world.give(Goal::Create(Box::new(pool(2)))).await;
    assert!(
        matches!(&again, Given::Failed(error) if error.to_string().contains("there are workers already")),
        "{again:?}"
    );
}

/// All other stories have guests that report the other order.
#[tokio::test(start_paused = true)]
async fn workers_join_and_go_in_the_hypervisors_order_of_uuids() {
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
async fn workers_by_dhcp_are_as_many_as_are_wanted_and_their_nodes_say_their_addresses() {
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
async fn a_worker_comes_and_the_one_that_is_named_goes() {
    let world = World::with(2).await;
    assert_eq!(world.give(Goal::Add(1)).await.done().available, 3);
    let status = world.give(remove("t-w2")).await.done();
    let left: Vec<_> = status.workers.iter().map(|worker| worker.name.as_str()).collect();
    assert_eq!(left, ["t-w1", "t-w3"]);
    assert_eq!(world.own(), left);
    assert_eq!(world.lock().nodes.len(), 2);
    let missing = world.give(remove("t-w2")).await;
    assert!(matches!(&missing, Given::Failed(error) if error.to_string().contains("there is no worker t-w2")));
    // A name is never used again.
    let status = world.give(Goal::Add(1)).await.done();
    assert_eq!(status.workers.last().unwrap().name, "t-w4");
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_no_journal_knows_keeps_its_name() {
    let world = World::with(1).await;
    world.lock().leave_vm("t-w2");
    // What is made twice panics in the fake.
    assert_eq!(world.give(Goal::Add(1)).await.done().available, 2);
    assert_eq!(world.own(), ["t-w1", "t-w2", "t-w3"]);
}

#[tokio::test(start_paused = true)]
async fn all_are_replaced_and_never_fewer_do_their_part() {
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
async fn another_image_alone_leaves_workers_as_they_were_made_otherwise() {
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
async fn a_worker_counts_by_what_its_kubelet_ran_when_it_joined() {
    let world = World::with(2).await;
    // What its node says later, root on it has written: each of its successors could say that.
    for claim in ["v1.20.0", "v1.37.0", ""] {
        world.lock().nodes[0].kubelet = claim.to_owned();
        world.give(Goal::GoOn).await.done();
        assert_eq!((world.own(), world.kept().await.unwrap().pool.last_index), (vec!["t-w1".into(), "t-w2".into()], 2));
    }
    // It has joined between two minors of its control nodes: newer is no harm, older is.
    let mut kept = world.kept().await.unwrap();
    kept.machines[0].template.kubernetes = "1.37".to_owned();
    world.keep(kept).await;
    world.give(Goal::GoOn).await.done();
    assert_eq!(world.own(), ["t-w1", "t-w2"]);
    let mut kept = world.kept().await.unwrap();
    kept.machines[0].template.kubernetes = "1.35".to_owned();
    world.keep(kept).await;
    world.give(Goal::GoOn).await.done();
    assert_eq!(world.own(), ["t-w2", "t-w3"]);
    // One that would be behind again is the only one: nobody goes round in circles.
    world.lock().kubelet = "v1.35.4".to_owned();
    let (arrived, _) = world.give(replace("two", Changes::default())).await.arrived();
    assert_eq!(codes(&arrived), ["workers.skew"]);
    assert!(matches!(arrived, RunOutcome::Stopped(_)));
    assert_eq!(world.kept().await.unwrap().pool.last_index, 4);
}

#[tokio::test(start_paused = true)]
async fn what_a_node_says_as_it_joins_counts_if_its_image_carries_that() {
    for claim in ["v1.99.0", "v1.20.0"] {
        let world = World::with(1).await;
        if claim == "v1.99.0" {
            world.lock().kubelet = claim.to_owned();
            world.give(Goal::Add(1)).await.done();
        } else {
            // It is well, and somebody wants it to join again.
            world.lock().nodes[0].kubelet = claim.to_owned();
            world.give(Goal::Rejoin { worker: "t-w1".to_owned() }).await.done();
        }
        let kept = world.kept().await.unwrap();
        assert!(kept.machines.iter().all(|machine| machine.template.kubernetes == "1.36"), "{claim}: {kept:?}");
        let own = world.own();
        world.give(Goal::GoOn).await.done();
        assert_eq!(world.own(), own, "{claim}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_room_for_a_further_one_so_many_are_missing_as_may_be() {
    let world = World::with(3).await;
    let changes = Changes { max_surge: Some(0), max_unavailable: Some(1), ..Changes::default() };
    world.give(replace("two", changes)).await.done();
    assert_eq!((world.fewest(), world.most()), (2, 3));
    let changes = Changes { max_surge: Some(0), max_unavailable: Some(0), ..Changes::default() };
    let refused = world.give(replace("three", changes)).await;
    let late = world.give(replace("three", Changes { join_seconds: Some(1501), ..Changes::default() })).await;
    assert!(matches!(&late, Given::Failed(error) if error.to_string().contains("at most 1500 s to join")), "{late:?}");
    assert!(matches!(&refused, Given::Failed(error) if error.to_string().contains("none can be replaced")));
}

#[tokio::test(start_paused = true)]
async fn an_image_whose_workers_never_join_stops_at_the_first_and_a_person_goes_on() {
    let world = World::with(2).await;
    world.lock().ill.insert("two".to_owned());
    let (arrived, status) = world.give(replace("two", Changes::default())).await.arrived();
    assert_eq!(codes(&arrived), ["workers.not-joined"]);
    assert!(matches!(arrived, RunOutcome::Stopped(_)));
    assert_eq!((status.available, world.fewest()), (2, 2));
    // It stays as it is, for a person to look at; nobody joins with its token any more.
    let failed = &status.workers[2];
    assert_eq!((failed.state, failed.power), (State::Failed, Some(PowerState::On)));
    assert!(world.lock().tokens.is_empty());
    let (arrived, _) = world.give(Goal::Continue).await.arrived();
    assert!(matches!(arrived, RunOutcome::Stopped(_)));
    assert_eq!(world.own(), ["t-w1", "t-w2", "t-w3"], "nobody has said that it is made anew");
    let (arrived, _) = world.give(Goal::GoOn).await.arrived();
    assert!(matches!(arrived, RunOutcome::Stopped(_)));
    assert_eq!(world.own(), ["t-w1", "t-w2", "t-w4"], "the one that had failed is made anew");
    // Back to the image that works: the failed one goes.
    world.give(replace("one", Changes::default())).await.done();
    assert_eq!(world.own(), ["t-w1", "t-w2"]);
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_a_budget_blocks_is_named_by_pod_and_nothing_is_forced() {
    let world = World::with(2).await;
    world.lock().blocked.insert("t-w1".to_owned());
    let (arrived, _) = world.give(remove("t-w1")).await.arrived();
    let RunOutcome::Paused(waits) = &arrived else { panic!("{arrived:?}") };
    let words = waits[0].to_string();
    assert_eq!(words, "t-w1: web/of-t-w1: its disruption budget [workers.drain-blocked]");
    assert_eq!(world.own(), ["t-w1", "t-w2"]);
    // Asked for twice, one goes.
    world.give(remove("t-w1")).await.arrived();
    assert_eq!(world.kept().await.unwrap().pool.count, 1);
    world.lock().blocked.clear();
    assert_eq!(world.give(Goal::GoOn).await.done().wanted, 1);
    assert_eq!(world.own(), ["t-w2"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_nobody_may_evict_is_named_and_holds_up_no_other_one() {
    let world = World::with(2).await;
    world.lock().add_pod("t-w1", "stuck");
    world.lock().unevictable.insert("stuck".to_owned());
    let told = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        world.status().await.unwrap().unwrap().waits[0].to_string()
    };
    let (given, told) = tokio::join!(world.give(remove("t-w1")), told);
    assert_eq!(told, "t-w1: not moved away from it yet: web/stuck [workers.draining]");
    let (arrived, _) = given.arrived();
    let RunOutcome::Paused(waits) = &arrived else { panic!("{arrived:?}") };
    let words = waits[0].to_string();
    assert_eq!(words, "t-w1: web/stuck: a webhook denies it [workers.drain-blocked]");
    world.lock().unevictable.clear();
    world.give(Goal::GoOn).await.done();
    assert_eq!(world.own(), ["t-w2"]);
}

#[tokio::test(start_paused = true)]
async fn a_drain_whose_pods_come_back_ends_paused_once_it_is_late() {
    let world = World::with(2).await;
    world.lock().coming_back.insert("t-w1".to_owned());
    world.lock().evicting = Duration::from_secs(1);
    let before = world.now();
    let given = tokio::time::timeout(Duration::from_secs(3600), world.give(remove("t-w1"))).await;
    let (arrived, _) = given.expect("it goes on for ever").arrived();
    assert!(matches!(arrived, RunOutcome::Paused(_)) && codes(&arrived) == ["workers.draining"], "{arrived:?}");
    let took = world.now() - before;
    assert!((300..360).contains(&took), "it took {took} s");
    world.lock().coming_back.clear();
    world.give(Goal::GoOn).await.done();
    assert_eq!(world.own(), ["t-w2"]);
}

#[tokio::test(start_paused = true)]
async fn a_drain_of_many_pods_that_an_api_is_slow_to_keep_ends_when_it_is_late_and_when_it_is_to() {
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
    let (arrived, _) = world.give(Goal::Continue).await.arrived();
    let took = world.now() - before;
    let RunOutcome::Paused(waits) = &arrived else { panic!("{arrived:?}") };
    assert!(took < 450 && waits[0].reason.code == "workers.drain-blocked", "{took} s: {waits:?}");
    // Some are named.
    let named = waits[0].reason.words.split("; ").take(3);
    assert!(named.clone().count() == 3 && named.clone().all(|one| one.ends_with(": a webhook denies it")), "{waits:?}");
    assert_eq!(world.lock().pods_on("t-w1").len(), 1000, "the one that nothing keeps is there");
}

#[tokio::test(start_paused = true)]
async fn pods_that_take_all_of_a_rounds_time_keep_no_other_one() {
    let world = World::with(2).await;
    for number in 0..6 {
        let name = format!("a-slow{number}");
        world.lock().add_pod("t-w1", &name);
        world.lock().unevictable.insert(name);
    }
    world.lock().evicting = Duration::from_secs(10);
    let two_rounds = async {
        tokio::time::sleep(Duration::from_secs(150)).await;
        world.lock().pods_on("t-w1")
    };
    let (given, left) = tokio::join!(world.give(remove("t-w1")), two_rounds);
    assert!(left.len() == 6 && left.iter().all(|pod| pod.starts_with("a-slow")), "{left:?}");
    assert_eq!(codes(&given.arrived().0), ["workers.drain-blocked"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_eviction_nobody_answers_keeps_no_other_one_and_is_named() {
    let world = World::with(2).await;
    for name in ["a-silent", "b-stuck"] {
        world.lock().add_pod("t-w1", name);
    }
    world.lock().unanswered.insert("a-silent".to_owned());
    world.lock().unevictable.insert("b-stuck".to_owned());
    let (arrived, _) = world.give(remove("t-w1")).await.arrived();
    let RunOutcome::Paused(waits) = &arrived else { panic!("{arrived:?}") };
    let words = waits[0].to_string();
    assert_eq!(
        words,
        "t-w1: web/a-silent: it was not answered: nobody answers for a-silent; web/b-stuck: a webhook denies it \
         [workers.drain-blocked]"
    );
    assert_eq!(world.lock().pods_on("t-w1").len(), 2, "the one that nothing keeps is there");
    // Where nobody answers at all, that is what is waited for.
    world.lock().unevictable.clear();
    let mended = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        world.lock().unanswered.clear();
    };
    let (given, ()) = tokio::join!(world.give(Goal::GoOn), mended);
    given.done();
    assert_eq!(world.own(), ["t-w2"]);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_a_person_has_cordoned_leaves_its_services_addresses_to_others_first() {
    let world = World::with(2).await;
    world.lock().nodes[0].cordoned = true;
    // What it must not do panics in the fake.
    world.give(remove("t-w1")).await.done();
    assert_eq!(world.own(), ["t-w2"]);
}

#[tokio::test(start_paused = true)]
async fn volumes_that_are_nowhere_else_keep_a_worker_unless_they_are_discarded() {
    let world = World::with(2).await;
    world.lock().claims.insert("t-w1".to_owned(), vec!["web/data".to_owned()]);
    world.lock().add_disk("t-w1");
    let (arrived, _) = world.give(remove("t-w1")).await.arrived();
    assert_eq!(codes(&arrived), ["workers.local-volumes"]);
    let RunOutcome::Paused(waits) = &arrived else { panic!("{arrived:?}") };
    assert!(waits[0].to_string().contains("web/data"));
    assert!(!world.lock().nodes[0].cordoned, "it does its part until then");
    let discards = Discards { delete_local_volumes: true, ..Discards::default() };
    world.give(Goal::Remove { worker: "t-w1".to_owned(), discards }).await.done();
    assert_eq!(world.own(), ["t-w2"]);
}

#[tokio::test(start_paused = true)]
async fn pods_that_nobody_starts_elsewhere_keep_a_worker_unless_they_are_discarded() {
    let world = World::with(2).await;
    world.lock().bare("t-w1");
    let (arrived, _) = world.give(remove("t-w1")).await.arrived();
    assert_eq!(codes(&arrived), ["workers.bare-pods"]);
    let RunOutcome::Paused(waits) = &arrived else { panic!("{arrived:?}") };
    assert!(waits[0].to_string().contains("web/of-t-w1"));
    assert!(!world.lock().nodes[0].cordoned, "it does its part until then");
    let discards = Discards { delete_unmanaged_pods: true, ..Discards::default() };
    world.give(Goal::Remove { worker: "t-w1".to_owned(), discards }).await.done();
    assert_eq!(world.own(), ["t-w2"]);
}

#[tokio::test(start_paused = true)]
async fn pods_that_nobody_starts_elsewhere_keep_a_worker_whose_vm_went_off_meanwhile() {
    let world = World::with(2).await;
    world.lock().bare("t-w1");
    world.give(remove("t-w1")).await.arrived();
    world.lock().lose_power("t-w1");
    let (arrived, _) = world.give(Goal::Add(1)).await.arrived();
    assert_eq!(codes(&arrived), ["workers.bare-pods"]);
    assert!(world.lock().nodes.iter().any(|node| node.name == "t-w1"), "its pods went with its node");
    let discards = Discards { delete_unmanaged_pods: true, ..Discards::default() };
    world.give(Goal::Remove { worker: "t-w1".to_owned(), discards }).await.done();
    assert_eq!(world.own(), ["t-w2", "t-w3"]);
}

#[tokio::test(start_paused = true)]
async fn what_may_be_lost_was_said_of_the_workers_that_were_outdated_then_and_of_no_other() {
    let world = World::with(2).await;
    let claim = |worker: &str| world.lock().claims.insert(worker.to_owned(), vec!["web/data".to_owned()]);
    let discards = Discards { delete_local_volumes: true, ..Discards::default() };
    let discarding = |image: &str| match replace(image, Changes::default()) {
        Goal::Replace { image, cluster, kubernetes, changes, .. } => {
            Goal::Replace { image, cluster, kubernetes, changes, discards }
        }
        other => panic!("{other:?}"),
    };
    claim("t-w1");
    let status = world.give(discarding("two")).await.done();
    assert!(status.workers.iter().all(|worker| worker.drain == Discards::default()), "{status:?}");
    claim("t-w3");
    let (arrived, _) = world.give(remove("t-w3")).await.arrived();
    assert_eq!(codes(&arrived), ["workers.local-volumes"]);
    world.lock().claims.clear();
    world.give(Goal::GoOn).await.done();

    // It holds as long as they are outdated, and not for one that a person names without that word.
    world.give(Goal::Pause).await.done();
    let discards_of_first = async || world.kept().await.unwrap().machines[0].drain.delete_local_volumes;
    world.give(discarding("three")).await.arrived();
    assert!(discards_of_first().await);
    world.give(replace("two", Changes::default())).await.done();
    assert!(!discards_of_first().await);
    world.give(discarding("three")).await.arrived();
    claim("t-w4");
    let (arrived, _) = world.give(remove("t-w4")).await.arrived();
    assert_eq!(codes(&arrived), ["workers.local-volumes"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_paused_goes_on_when_a_person_says_so_and_workers_still_come() {
    let world = World::with(2).await;
    world.give(Goal::Pause).await.done();
    // Whoever wants another image does not lift the pause of somebody else.
    let (arrived, status) = world.give(replace("two", Changes::default())).await.arrived();
    assert_eq!(codes(&arrived), ["workers.paused"]);
    assert!(status.paused && status.workers.iter().all(|worker| !worker.up_to_date));
    let (_, status) = world.give(Goal::Add(1)).await.arrived();
    assert_eq!((status.available, status.workers[2].up_to_date), (3, true));
    // Who brings a tenant up again does not say that, and powers on what is off all the same.
    world.lock().lose_power("t-w1");
    let (arrived, status) = world.give(Goal::Continue).await.arrived();
    assert_eq!((codes(&arrived), status.available), (vec!["workers.paused"], 3));
    let status = world.give(Goal::GoOn).await.done();
    assert!(!status.paused && status.workers.iter().all(|worker| worker.up_to_date));
}

#[tokio::test(start_paused = true)]
async fn while_too_few_do_their_part_none_is_taken_away() {
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
async fn a_worker_that_is_cut_off_can_be_removed_and_its_node_goes_after_its_vm() {
    let world = World::with(2).await;
    world.lock().silence("t-w1");
    // Its pod is told to end, and nobody says that it has.
    world.give(remove("t-w1")).await.done();
    assert_eq!(world.own(), ["t-w2"]);
    assert_eq!(world.lock().nodes.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_somebody_has_removed_is_made_good() {
    let world = World::with(2).await;
    world.lock().lose_vm("t-w1");
    let status = world.give(Goal::GoOn).await.done();
    let names: Vec<_> = status.workers.iter().map(|worker| worker.name.as_str()).collect();
    assert_eq!((names, status.available), (vec!["t-w2", "t-w3"], 2));
}

#[tokio::test(start_paused = true)]
async fn the_volumes_of_a_lost_worker_are_given_up_and_nobody_else_goes_for_it() {
    let world = World::with(2).await;
    for worker in ["t-w1", "t-w2"] {
        world.lock().claims.insert(worker.to_owned(), vec![format!("web/of-{worker}")]);
    }
    world.lock().lose_vm("t-w1");
    let (arrived, status) = world.give(Goal::GoOn).await.arrived();
    assert_eq!((codes(&arrived), status.available), (vec!["workers.local-volumes"], 2));
    let discards = Discards { delete_local_volumes: true, ..Discards::default() };
    let give_up = || Goal::Remove { worker: "t-w1".to_owned(), discards };
    assert_eq!(world.give(give_up()).await.done().wanted, 2);
    assert_eq!(world.own(), ["t-w2", "t-w3"]);
}

#[tokio::test(start_paused = true)]
async fn the_volumes_of_a_lost_worker_are_given_up_and_nobody_goes_for_it_while_another_one_has_failed() {
    let world = World::with(3).await;
    world.lock().claims.insert("t-w1".to_owned(), vec!["web/data".to_owned()]);
    world.lock().lose_vm("t-w1");
    let (arrived, _) = world.give(Goal::GoOn).await.arrived();
    assert_eq!(codes(&arrived), ["workers.local-volumes"]);
    world.lock().expire("t-w2");
    world.lock().refusing.insert("t-w2".to_owned(), ("join.token-refused", true));
    let (arrived, _) = world.give(Goal::Rejoin { worker: "t-w2".to_owned() }).await.arrived();
    assert!(matches!(arrived, RunOutcome::Stopped(_)), "{arrived:?}");
    let discards = Discards { delete_local_volumes: true, ..Discards::default() };
    world.give(Goal::Remove { worker: "t-w1".to_owned(), discards }).await.arrived();
    world.lock().refusing.clear();
    assert_eq!(world.give(Goal::GoOn).await.done().wanted, 3);
    assert_eq!(world.own(), ["t-w2", "t-w3", "t-w4"]);
}

#[tokio::test(start_paused = true)]
async fn workers_without_power_are_named_and_powered_on_by_whoever_goes_on() {
    let world = World::with(2).await;
    world.lock().lose_power("t-w1");
    // Somebody may have shut it down: a command for another one says so, and leaves it off.
    let (arrived, status) = world.give(Goal::Add(1)).await.arrived();
    assert_eq!((codes(&arrived), status.available), (vec!["workers.vm-state"], 2));
    assert!(matches!(&arrived, RunOutcome::Paused(waits) if waits[0].worker.as_deref() == Some("t-w1")));
    world.lock().lose_power("t-w2");
    assert_eq!(world.give(Goal::GoOn).await.done().available, 3);
}

#[tokio::test(start_paused = true)]
async fn what_the_hypervisor_refuses_is_named_at_once_and_not_tried_for_half_an_hour() {
    let world = World::with(2).await;
    world.lock().lose_power("t-w1");
    world.lock().stay_off = true;
    let before = world.now();
    let (arrived, _) = world.give(Goal::GoOn).await.arrived();
    let RunOutcome::Paused(waits) = &arrived else { panic!("{arrived:?}") };
    let named: Vec<_> = waits.iter().map(|wait| (wait.worker.as_deref(), wait.reason.code.as_str())).collect();
    assert_eq!(named, [(Some("t-w1"), "hypervisor.refused")]);
    assert!(world.now() - before < 60, "it took {} s", world.now() - before);
    world.lock().stay_off = false;
    assert_eq!(world.give(Goal::GoOn).await.done().available, 2);
}

#[tokio::test(start_paused = true)]
async fn workers_that_lost_their_power_all_at_once_are_powered_on_and_done_when_each_has_said_that_it_is_ready() {
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
async fn a_worker_whose_node_was_removed_or_says_nothing_is_named_and_nothing_is_called_done() {
    let world = World::with(2).await;
    world.lock().nodes.retain(|node| node.name != "t-w1");
    world.lock().silence("t-w2");
    let (arrived, _) = world.give(Goal::GoOn).await.arrived();
    let RunOutcome::Paused(waits) = &arrived else { panic!("{arrived:?}") };
    let named: Vec<_> = waits.iter().map(|wait| (wait.worker.as_deref(), wait.reason.code.as_str())).collect();
    assert_eq!(named, [(Some("t-w1"), "workers.not-ready"), (Some("t-w2"), "workers.not-ready")]);
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_node_was_removed_is_not_shut_down_for_a_token_that_it_does_not_take() {
    let world = World::with(2).await;
    world.lock().nodes.retain(|node| node.name != "t-w1");
    world.set_fault(None);
    let before = world.now();
    let (arrived, status) = world.give(Goal::Rejoin { worker: "t-w1".to_owned() }).await.arrived();
    let RunOutcome::Stopped(why) = &arrived else { panic!("{arrived:?}") };
    assert!(why[0].reason.code == "workers.not-ready" && why[0].reason.words.ends_with("remove the worker"), "{why:?}");
    assert!(world.now() - before < 60, "it took {} s", world.now() - before);
    let power = ["shut_down", "cut_power", "power_on", "give"];
    assert!(!world.lock().calls.iter().any(|(name, _)| power.contains(name)), "its VM was touched");
    assert_eq!(status.workers[0].power, Some(PowerState::On));
    assert!(matches!(world.give(Goal::GoOn).await.arrived().0, RunOutcome::Stopped(_)));
    assert_eq!(world.give(remove("t-w1")).await.done().wanted, 1);
    assert_eq!(world.own(), ["t-w2"]);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_asks_for_a_token_gets_one_also_where_its_node_was_removed() {
    let world = World::with(2).await;
    world.lock().nodes.retain(|node| node.name != "t-w1");
    world.lock().refusing.insert("t-w1".to_owned(), ("join.certificate-expired", true));
    let rejoins = async {
        while !world.lock().calls.iter().any(|(name, _)| *name == "give") {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        world.lock().refusing.clear();
    };
    world.set_fault(None);
    let (given, ()) = tokio::join!(world.give(Goal::Rejoin { worker: "t-w1".to_owned() }), rejoins);
    assert_eq!(given.done().available, 2);
}

#[tokio::test(start_paused = true)]
async fn what_a_worker_asks_for_whose_node_was_removed_is_heard_before_anybody_is_told_to_remove_it() {
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
        while !world.lock().calls.iter().any(|(name, _)| *name == "give") {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        world.lock().refusing.clear();
    };
    let given = async {
        let given = world.give(Goal::Rejoin { worker: "t-w1".to_owned() });
        tokio::time::timeout(Duration::from_secs(3600), given).await.expect("it waits for ever")
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
    let (arrived, _) = world.give(Goal::GoOn).await.arrived();
    assert_eq!((codes(&arrived), world.own().len()), (vec!["workers.local-volumes"], 2));
    let discards = Discards { delete_local_volumes: true, ..Discards::default() };
    world.give(Goal::Remove { worker: "t-w1".to_owned(), discards }).await.done();
    assert_eq!(world.own(), ["t-w2"]);
}

#[tokio::test(start_paused = true)]
async fn vms_that_are_moved_out_of_sight_are_not_taken_for_gone_while_their_nodes_are_ready() {
    let world = World::with(2).await;
    let all = std::mem::take(&mut world.lock().machines);
    world.set_fault(None);
    let (arrived, status) = world.give(Goal::GoOn).await.arrived();
    assert_eq!(codes(&arrived), ["workers.vm-unseen"; 2]);
    assert!(status.workers.iter().all(|worker| worker.state == State::Running), "{status:?}");
    // Nor is the node of one removed that a person wants to go.
    let (arrived, _) = world.give(remove("t-w1")).await.arrived();
    assert_eq!(codes(&arrived), ["workers.vm-unseen"; 2]);
    let changed = |(_, does): &(&str, Does)| matches!(does, Does::ChangesCluster);
    assert!(!world.lock().calls.iter().any(changed) && world.lock().nodes.len() == 2);
    world.lock().machines = all;
    world.give(Goal::GoOn).await.done();
    assert_eq!(world.own(), ["t-w2"]);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_may_run_on_a_removed_host_has_no_successor() {
    let world = World::with(2).await;
    let is_its = |machine: &&super::fake::Machine| machine.vm.name == "t-w1" && machine.vm.uuid().as_u128() >= 0xe00;
    let lost = world.lock().machines.iter().find(is_its).unwrap().vm.uuid();
    world.lock().lose_vm("t-w1");
    world.lock().may_run.insert(lost);
    let (arrived, _) = world.give(Goal::GoOn).await.arrived();
    assert_eq!(codes(&arrived), ["workers.vm-unseen"]);
    assert_eq!(world.own(), ["t-w2"]);
    world.lock().may_run.clear();
    world.give(Goal::GoOn).await.done();
    assert_eq!(world.own(), ["t-w2", "t-w3"]);
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_not_taken_for_the_worker_that_runs_where_nobody_looks() {
    let world = World::with(1).await;
    // Another one's VM is called as it is, too.
    let is_its = |machine: &super::fake::Machine| machine.vm.uuid().as_u128() >= 0xe00;
    {
        let mut state = world.lock();
        let at = state.machines.iter().position(is_its).unwrap();
        let mut copy = state.machines[at].clone();
        copy.vm.reference.id.push_str("-copy");
        copy.vm.power = PowerState::Off;
        // No look shows it any more but that by its BIOS UUID.
        state.machines[at].vm.stamp = None;
        state.machines.push(copy);
    }
    let powers = |world: &World| {
        let state = world.lock();
        let its = state.machines.iter().filter(|machine| is_its(machine));
        its.map(|machine| machine.vm.power).collect::<Vec<_>>()
    };
    for wish in [Goal::GoOn, remove("t-w1")] {
        let (arrived, _) = world.give(wish).await.arrived();
        assert_eq!(codes(&arrived), ["workers.vm-odd"], "{arrived:?}");
        assert_eq!(powers(&world), [PowerState::On, PowerState::Off]);
    }
}

/// Backup software keeps it where nobody looks, with the worker's BIOS UUID.
#[tokio::test(start_paused = true)]
async fn a_replica_that_is_off_keeps_no_worker_from_going() {
    let world = World::with(2).await;
    {
        let mut state = world.lock();
        let its = |machine: &&super::fake::Machine| machine.vm.name == "t-w1" && machine.vm.uuid().as_u128() >= 0xe00;
        let mut replica = state.machines.iter().find(its).unwrap().clone();
        replica.vm.reference.id.push_str("-replica");
        (replica.vm.power, replica.vm.stamp) = (PowerState::Off, None);
        state.machines.push(replica);
    }
    world.give(remove("t-w1")).await.arrived();
    assert_eq!(world.own(), ["t-w2"]);
}

/// Two workers. Of the VM of one, which has a data disk, backup software keeps a replica where nobody looks.
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

/// The same once whoever removes that worker was killed after the first call of this name, and a person has removed what was left of its VM.
async fn killed_with_replica(is_stamped: bool, call: &str) -> (World, VmRef) {
    let (world, _) = with_replica(is_stamped).await;
    world.set_fault(None);
    world.give(remove("t-w1")).await.done();
    let at = world.lock().calls.iter().position(|(name, _)| *name == call).expect("such a call") + 1;
    let (world, replica) = with_replica(is_stamped).await;
    world.set_fault(Some((at, Fault::KilledAfter)));
    assert!(matches!(world.give(remove("t-w1")).await, Given::Killed));
    world.set_fault(None);
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

/// A person has powered it on since: what runs is not shut down with a worker that goes.
#[tokio::test(start_paused = true)]
async fn a_replica_that_runs_once_its_worker_has_gone_is_left_alone() {
    let (world, replica) = killed_with_replica(true, "destroy").await;
    let set = |power: PowerState| {
        let mut state = world.lock();
        let its = state.machines.iter_mut().find(|machine| machine.vm.reference == replica);
        its.expect("the replica").vm.power = power;
    };
    set(PowerState::On);
    let (arrived, _) = world.give_over(Goal::GoOn).await.arrived();
    assert_eq!(codes(&arrived), ["workers.vm-odd"], "{arrived:?}");
    assert_eq!(power_of(&world, &replica), Some(PowerState::On));
    set(PowerState::Off);
    world.give(Goal::GoOn).await.done();
    assert!(world.kept().await.unwrap().machine("t-w1").is_none());
    assert_eq!(power_of(&world, &replica), Some(PowerState::Off));
}

/// Its host was taken out of the inventory and added again while it was taken apart: its system disk says that it is no replica.
#[test]
fn a_vm_with_the_workers_own_system_disk_is_no_replica() {
    let mut own = vm("t-w1", Uuid::from_u128(7), None);
    let reference = DiskRef { uuid: Uuid::from_u128(8), path: "a".to_owned() };
    own.disks.push(Disk { reference, kind: DiskKind::System, parent: None, controller: "c".to_owned() });
    let going = WorkerRecord::new(&pool(1), Uuid::from_u128(1), None, 0).taking_apart(&own);
    let again = Vm { reference: VmRef { id: "another".to_owned(), ..own.reference.clone() }, ..own };
    assert!(!going.has_replica(&again));
    assert!(going.has_replica(&Vm { disks: Vec::new(), ..again.clone() }));
    // So many of its disks are noted as a Machine's status takes, that one among them.
    let data = |number: u32| Disk {
        reference: DiskRef { uuid: Uuid::from_u128(100 + u128::from(number)), path: format!("b{number}") },
        kind: DiskKind::Data,
        parent: None,
        controller: "c".to_owned(),
    };
    let many = Vm { disks: (0..70).map(data).chain(again.disks.iter().cloned()).collect(), ..again };
    let going = WorkerRecord::new(&pool(1), Uuid::from_u128(1), None, 0).taking_apart(&many);
    assert_eq!(going.deleting_disks.len(), 64);
    assert!(going.deleting_disks.contains(&Uuid::from_u128(8)));
    assert_eq!(going.taking_apart(&many), going);
}

/// A snapshot of the storage is registered elsewhere, off, with the stamp and the disks: it is neither taken apart nor removed.
#[tokio::test(start_paused = true)]
async fn a_copy_that_holds_a_disk_of_the_worker_is_not_removed_with_it() {
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
async fn vms_that_are_not_seen_for_a_moment_while_nobody_has_heard_of_their_nodes_are_not_taken_for_gone() {
    let world = World::with(2).await;
    let all = std::mem::take(&mut world.lock().machines);
    for node in &mut world.lock().nodes {
        node.ready = false;
    }
    let before = world.kept().await.unwrap();
    let seen_again = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        let mut state = world.lock();
        state.machines = all;
        state.nodes.iter_mut().for_each(|node| node.ready = true);
    };
    let (given, ()) = tokio::join!(world.give(Goal::GoOn), seen_again);
    assert_eq!(given.done().available, 2);
    let kept = world.kept().await.unwrap();
    assert!(
        kept.pool.last_index == 2 && kept.machines.iter().all(|machine| machine.state == State::Running),
        "{kept:?}"
    );
    assert_eq!(kept.machines[0].bios_uuid, before.machines[0].bios_uuid);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_makes_no_vm_gone() {
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
async fn one_that_has_failed_is_not_waited_for_where_its_vm_is_gone() {
    let world = World::with(1).await;
    world.lock().ill.insert("one".to_owned());
    assert!(matches!(world.give(Goal::Add(1)).await.arrived().0, RunOutcome::Stopped(_)));
    let of_failed = |machine: &super::fake::Machine| machine.vm.name != "t-w2";
    world.lock().machines.retain(of_failed);
    let status = world.status().await.unwrap().unwrap();
    assert!(status.waits.is_empty() && status.stopped.len() == 1, "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn a_vm_whose_stamp_was_changed_is_left_alone() {
    let world = World::with(2).await;
    let of_first = |machine: &&mut super::fake::Machine| machine.vm.uuid().as_u128() >= 0xe00;
    world.lock().machines.iter_mut().find(of_first).unwrap().vm.stamp = None;
    let (arrived, _) = world.give(remove("t-w1")).await.arrived();
    assert_eq!(codes(&arrived), ["workers.vm-odd"]);
    assert_eq!(world.lock().machines.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn without_a_control_nodes_vm_workers_are_told_of_and_none_is_made() {
    let world = World::with(2).await;
    world.lock().is_without_control = true;
    assert_eq!(world.status().await.unwrap().unwrap().workers.len(), 2);
    let (arrived, _) = world.give(Goal::Add(1)).await.arrived();
    assert!(matches!(arrived, RunOutcome::Paused(_)) && codes(&arrived) == ["workers.no-control-node"], "{arrived:?}");
    assert!(world.lock().tokens.is_empty() && world.own().len() == 2);
    world.give(Goal::Scale(2)).await.done();
}

#[tokio::test(start_paused = true)]
async fn while_the_api_is_cut_off_nothing_is_done_and_then_it_goes_on() {
    let world = World::with(2).await;
    world.lock().cut = true;
    let (arrived, _) = world.give(Goal::Add(1)).await.arrived();
    assert_eq!(codes(&arrived), ["workers.api-silent"]);
    assert_eq!(world.own().len(), 2);
    world.lock().cut = false;
    assert_eq!(world.give(Goal::GoOn).await.done().available, 3);
}

#[tokio::test(start_paused = true)]
async fn while_the_api_is_cut_off_what_is_kept_is_told_and_a_pause_is_noted_at_once() {
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
async fn many_workers_whose_vms_are_made_slowly_are_made_once_each() {
    let world = World::new();
    world.lock().making = Duration::from_secs(60);
    let mut many = Pool { addresses: None, ..pool(20) };
    many.rollout.join_seconds = 1500;
    world.set_fault(None);
    assert_eq!(world.give(Goal::Create(Box::new(many))).await.done().available, 20);
    let made = world.lock().calls.iter().filter(|(name, _)| *name == "add").count();
    assert_eq!(made, 20);
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_takes_longer_than_its_token_leaves_time_for_is_not_made_again_and_again() {
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
async fn a_vm_whose_token_has_ended_before_it_was_powered_on_is_made_anew_by_another_name() {
    let world = World::killed_while_adding("power_on", Fault::KilledBefore).await;
    tokio::time::sleep(Duration::from_secs(7200)).await;
    assert_eq!(world.give_over(Goal::GoOn).await.done().available, 2);
    assert_eq!(world.own(), ["t-w1", "t-w3"], "whoever has read its token is t-w2");
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_was_not_made_to_the_end_is_made_anew_by_another_name() {
    let world = World::killed_while_adding("add.end", Fault::KilledBefore).await;
    assert_eq!(world.give_over(Goal::GoOn).await.done().available, 2);
    assert_eq!(world.own(), ["t-w1", "t-w3"], "whoever has read its token is t-w2");
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_token_has_ended_while_nobody_looked_is_made_anew_at_once_by_another_name() {
    let killed = async |seconds| {
        let world = World::killed_while_adding("power_on", Fault::KilledAfter).await;
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        world
    };
    let world = killed(7200).await;
    let before = world.now();
    assert_eq!(world.give_over(Goal::GoOn).await.done().available, 2);
    assert!(world.now() - before < 300, "it is waited for");
    assert_eq!(world.own(), ["t-w1", "t-w3"], "whoever has read its token is t-w2");
    // One that has joined meanwhile is there.
    let world = killed(1200).await;
    assert_eq!(world.give_over(Goal::GoOn).await.done().available, 2);
    assert_eq!(world.own(), ["t-w1", "t-w2"]);
    // Nor does another command wait for it.
    let world = killed(7200).await;
    let before = world.now();
    let (arrived, _) = world.give_with(Goal::Add(1), TakeOver::FromAnyone, watch::channel(false).1).await.arrived();
    assert_eq!(codes(&arrived), ["workers.not-joined"]);
    assert!(world.now() - before < 300, "it is waited for");
}

#[tokio::test(start_paused = true)]
async fn who_was_let_in_by_the_name_of_a_worker_that_goes_makes_no_node_by_it_later() {
    let world = World::with(1).await;
    world.lock().ill.insert("one".to_owned());
    assert!(matches!(world.give(Goal::Add(1)).await.arrived().0, RunOutcome::Stopped(_)));
    // Somebody who has read its form was, and bides his time.
    world.lock().let_in.insert("t-w2".to_owned(), ANOTHER.to_owned());
    world.lock().ill.clear();
    world.give(Goal::GoOn).await.done();
    let let_in = world.lock().let_in.keys().cloned().collect::<Vec<_>>();
    assert_eq!((world.own(), let_in), (vec!["t-w1".into(), "t-w3".into()], vec!["t-w1".into(), "t-w3".into()]));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_was_given_up_and_is_removed_is_not_made_anew() {
    let world = World::with(1).await;
    world.lock().ill.insert("one".to_owned());
    assert!(matches!(world.give(Goal::Add(1)).await.arrived().0, RunOutcome::Stopped(_)));
    // Who goes on ends once that is noted.
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
async fn a_node_of_its_name_that_runs_on_something_else_or_does_not_say_on_what_is_left_alone() {
    for provider in ["vsphere://00000000-0000-0000-0000-000000000bad", ""] {
        let world = World::with(1).await;
        let other = NodeSeen { uid: "other".to_owned(), ..node_on("t-w2", provider) };
        world.lock().nodes.push(other.clone());
        // He came by the worker's token, as control nodes have noted.
        world.lock().let_in.insert("t-w2".to_owned(), ANOTHER.to_owned());
        let (arrived, _) = world.give(Goal::Add(1)).await.arrived();
        assert_eq!(codes(&arrived), ["workers.name-in-use"], "{provider:?}");
        let RunOutcome::Stopped(why) = &arrived else { panic!("{arrived:?}") };
        assert!(why[0].reason.words.contains("delete that node"), "{why:?}");
        let status = world.give(Goal::GoOn).await.done();
        assert_eq!(status.workers.last().unwrap().name, "t-w3");
        assert!(world.lock().nodes.contains(&other), "it was changed");
        assert!(!world.lock().let_in.contains_key("t-w2"), "control nodes know him, and name him to nobody");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_there_before_a_worker_of_its_name_had_a_token_stays_known() {
    let world = World::with(1).await;
    let node = NodeSeen { name: "t-w2".to_owned(), uid: "other".to_owned(), ..world.lock().nodes[0].clone() };
    world.lock().nodes.push(NodeSeen { provider: String::new(), ..node });
    world.lock().let_in.insert("t-w2".to_owned(), "its own".to_owned());
    // Somebody wants fewer before its token is made.
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
async fn asked_to_end_it_ends_where_it_can_be_continued() {
    let world = World::with(2).await;
    world.lock().ill.insert("two".to_owned());
    assert_eq!(world.give_for_a_minute(replace("two", Changes::default())).await.arrived().0, RunOutcome::Cancelled);
    world.lock().ill.clear();
    world.give(Goal::GoOn).await.done();
}

#[tokio::test(start_paused = true)]
async fn of_two_operators_one_is_told_of_the_other() {
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
    assert!(matches!(&second, Given::Failed(error) if error.to_string().contains("is at work")), "{second:?}");
    assert_eq!(world.kept().await.unwrap().pool.count, 2);
}

#[tokio::test(start_paused = true)]
async fn what_goes_with_a_wish_is_noted_by_who_may_and_by_nobody_who_is_refused() {
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
async fn a_worker_whose_certificate_has_expired_joins_again_in_its_vm_with_a_new_token() {
    let world = World::with(2).await;
    let (vm, took) = {
        let kept = world.kept().await.unwrap();
        (kept.machines[0].bios_uuid, kept.machines[0].joined_seconds)
    };
    world.lock().expire("t-w1");
    let rejoin = |worker: &str| Goal::Rejoin { worker: worker.to_owned() };
    let status = world.give(rejoin("t-w1")).await.done();
    assert_eq!((status.available, world.own().len()), (2, 2));
    let kept = world.kept().await.unwrap();
    assert_eq!((kept.machines[0].bios_uuid, kept.machines[0].joined_seconds), (vm, took), "it is the same VM");
    assert!(world.lock().tokens.is_empty());
    // One that does its part goes on with it.
    let powered = |world: &World| world.lock().calls.iter().filter(|(name, _)| *name == "power_on").count();
    let before = powered(&world);
    world.give(rejoin("t-w2")).await.done();
    assert_eq!((powered(&world), world.fewest()), (before, 1));
    let unknown = world.give(rejoin("t-w9")).await;
    assert!(matches!(&unknown, Given::Failed(error) if error.to_string().contains("there is no worker t-w9")));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_never_joined_is_made_anew_and_not_asked_to_join_again() {
    let world = World::new();
    world.lock().ill.insert("one".to_owned());
    world.give(Goal::Create(Box::new(pool(1)))).await.arrived();
    let refused = world.give(Goal::Rejoin { worker: "t-w1".to_owned() }).await;
    assert!(matches!(&refused, Given::Failed(error) if error.to_string().contains("has never joined")), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn workers_that_are_told_to_wait_longer_have_longer_to_join() {
    let world = World::new();
    world.lock().ill.insert("one".to_owned());
    world.lock().timeout_factor = 5;
    let (arrived, _) = world.give(Goal::Create(Box::new(pool(1)))).await.arrived();
    assert_eq!(codes(&arrived), ["workers.joining"], "after 1200 s without a change it still has time");
    let expires = *world.lock().tokens.values().next().expect("its token");
    assert!(expires - world.now() > 6000, "its token is good for {} s", expires - world.now());
    world.lock().ill.clear();
    world.give(Goal::Continue).await.done();
}
