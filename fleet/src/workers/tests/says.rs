//! What workers say of themselves, and what comes of it.

use std::time::Duration;

use contract::statement::{Phase, Statement};
use tokio::sync::watch;
use uuid::Uuid;

use super::fake::{ANOTHER, DEPLOYMENT, Given, World, done, node_on, pool, remove, replace, vm};
use super::stories::codes;
use crate::hypervisor::{ErrorKind, PowerState, Vm};
use crate::lease::TakeOver;
use crate::workers::{
    Action, Changes, Discards, Goal, Inventory, NodeSeen, PodSeen, RunOutcome, State, Wait, WorkerRecord, next,
};

pub(super) fn rejoin(worker: &str) -> Goal {
    Goal::Rejoin { worker: worker.to_owned() }
}

/// A cluster of two workers, of which the first has to join again and refuses for this reason.
async fn refusing(code: &'static str, lasting: bool) -> World {
    let world = World::with(2).await;
    world.lock().expire("t-w1");
    world.lock().refusing.insert("t-w1".to_owned(), (code, lasting));
    world
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_will_not_join_fails_within_a_minute_with_its_own_code() {
    let world = World::with(1).await;
    world.lock().refusing.insert("t-w2".to_owned(), ("join.wrong-ca", true));
    let before = world.now();
    let (arrived, status) = world.give(Goal::Add(1)).await.arrived();
    assert!(world.now() - before < 60, "it took {} s", world.now() - before);
    assert_eq!(codes(&arrived), ["join.wrong-ca"]);
    assert!(matches!(arrived, RunOutcome::Stopped(_)));
    let failed = &status.workers[1];
    let says = failed.says.as_ref().expect("what it says");
    assert_eq!(
        (failed.state, says.code.as_deref(), says.phase),
        (State::Failed, Some("join.wrong-ca"), Phase::Refused)
    );
    assert!(world.lock().tokens.is_empty(), "its token is left");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_may_pass_is_named_and_waited_for() {
    let world = World::with(1).await;
    world.lock().refusing.insert("t-w2".to_owned(), ("join.name-in-use", false));
    let passes = async {
        tokio::time::sleep(Duration::from_secs(300)).await;
        let status = world.status().await.unwrap().unwrap();
        assert_eq!(status.waits[0].reason.code, "join.name-in-use");
        world.lock().refusing.clear();
    };
    let (given, ()) = tokio::join!(world.give(Goal::Add(1)), passes);
    assert_eq!(given.done().available, 2);
    // One that does not pass has its code all the same.
    world.lock().refusing.insert("t-w3".to_owned(), ("join.name-in-use", false));
    let before = world.now();
    let (arrived, _) = world.give(Goal::Add(1)).await.arrived();
    let RunOutcome::Stopped(why) = &arrived else { panic!("{arrived:?}") };
    assert_eq!(codes(&arrived), ["join.name-in-use"]);
    assert!(why[0].reason.words.contains("900 s") && world.now() - before > 900, "{why:?}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_rejoin_has_failed_is_kept_and_joins_again_once_somebody_goes_on() {
    let world = refusing("join.token-refused", true).await;
    let before = world.now();
    let (arrived, status) = world.give(rejoin("t-w1")).await.arrived();
    assert_eq!((codes(&arrived), world.now() - before < 120), (vec!["join.token-refused"], true));
    assert_eq!((status.workers[0].state, status.workers[0].power), (State::Failed, Some(PowerState::On)));
    let vm = world.kept().await.unwrap().machines[0].bios_uuid;
    let (arrived, _) = world.give(Goal::GoOn).await.arrived();
    assert_eq!(codes(&arrived), ["join.token-refused"]);
    world.lock().refusing.clear();
    let status = world.give(Goal::GoOn).await.done();
    assert_eq!((status.available, world.own()), (2, vec!["t-w1".to_owned(), "t-w2".to_owned()]));
    assert_eq!(world.kept().await.unwrap().machines[0].bios_uuid, vm, "it is the same VM");
    // Whoever wants it to go says so.
    world.lock().expire("t-w1");
    world.lock().refusing.insert("t-w1".to_owned(), ("join.token-refused", true));
    world.give(rejoin("t-w1")).await.arrived();
    assert_eq!(world.give(remove("t-w1")).await.done().wanted, 1);
    assert_eq!(world.own(), ["t-w2"]);
}

#[tokio::test(start_paused = true)]
async fn a_rejoin_whose_form_is_refused_fails_once_and_the_vm_is_on_as_before() {
    let world = World::with(2).await;
    world.lock().expire("t-w1");
    world.lock().forms_are = Some(ErrorKind::Refused);
    world.set_fault(None);
    let key = first(&world).await.key;
    let (arrived, status) = world.give(rejoin("t-w1")).await.arrived();
    assert_eq!(codes(&arrived), ["hypervisor.refused"]);
    assert_eq!((key.is_some(), first(&world).await.key), (true, key), "its form has the token of before");
    assert!(
        matches!(&arrived, RunOutcome::Stopped(why) if why[0].reason.words.contains("stays as it is")),
        "{arrived:?}"
    );
    assert_eq!((status.workers[0].state, status.workers[0].power), (State::Failed, Some(PowerState::On)));
    assert_eq!(world.lock().calls.iter().filter(|(name, _)| *name == "give").count(), 1);
    assert!(world.lock().tokens.is_empty(), "a token is left");
    // Whoever shuts it down then wants it off.
    world.lock().lose_power("t-w1");
    let (_, status) = world.give(Goal::Scale(2)).await.arrived();
    assert_eq!(status.workers[0].power, Some(PowerState::Off));
    world.lock().forms_are = None;
    world.give(Goal::GoOn).await.done();
}

#[tokio::test(start_paused = true)]
async fn a_rejoin_whose_form_cannot_be_filled_in_for_now_is_not_tried_for_ever() {
    let world = World::with(2).await;
    world.lock().expire("t-w1");
    world.lock().forms_are = Some(ErrorKind::Denied);
    let (arrived, _) = world.give(rejoin("t-w1")).await.arrived();
    assert!(matches!(&arrived, RunOutcome::Paused(_)) && codes(&arrived) == ["hypervisor.denied"], "{arrived:?}");
    world.lock().forms_are = None;
    world.give(Goal::GoOn).await.done();
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_has_to_join_again_after_a_power_cut_is_named_with_what_mends_it() {
    let world = refusing("join.certificate-expired", true).await;
    world.lock().lose_power("t-w1");
    let before = world.now();
    let (arrived, _) = world.give(Goal::GoOn).await.arrived();
    assert!(world.now() - before < 120, "only a person helps, and it waits");
    let RunOutcome::Paused(waits) = &arrived else { panic!("{arrived:?}") };
    assert_eq!(codes(&arrived), ["join.certificate-expired"]);
    let status = world.status().await.unwrap().unwrap();
    for wait in [&waits[0], &status.waits[0]] {
        assert!(wait.worker.as_deref() == Some("t-w1") && wait.token, "{wait}");
        assert!(wait.reason.words.ends_with("A new token fixes it"), "{wait}");
    }
    let says = serde_json::to_value(&status.workers[0].says).unwrap();
    assert_eq!((&says["phase"], &says["code"]), (&"refused".into(), &"join.certificate-expired".into()));
    world.lock().refusing.clear();
    world.give(rejoin("t-w1")).await.done();
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_lost_its_system_disk_is_named_with_what_mends_it() {
    for code in ["property.missing", "join.token-refused", "environment.absent"] {
        let world = refusing(code, true).await;
        world.lock().lose_power("t-w1");
        let (arrived, _) = world.give(Goal::GoOn).await.arrived();
        let RunOutcome::Paused(waits) = &arrived else { panic!("{arrived:?}") };
        assert!(waits[0].token && waits[0].reason.code == code, "{waits:?}");
        world.lock().refusing.clear();
        assert_eq!(world.give(rejoin("t-w1")).await.done().available, 2);
    }
}

/// What is said here is for each program that calls it: it names none of its commands.
#[test]
fn no_reason_names_a_command() {
    for (code, words) in crate::workers::REASONS {
        assert!(!["kaas ", "`", "-worker", "resume"].iter().any(|part| words.contains(part)), "{code}: {words}");
    }
}

/// A worker that was powered on at 1000 with a token, and what it says 50 s later.
fn says(change: impl FnOnce(&mut WorkerRecord, &mut Statement, &mut Inventory)) -> Option<String> {
    let pool = pool(1);
    let uuid = Uuid::from_u128(1);
    let mut machine = WorkerRecord::new(&pool, Uuid::from_u128(2), None, 1000);
    (machine.name, machine.state, machine.bios_uuid) = ("t-w1".to_owned(), State::Joining, Some(uuid));
    (machine.token, machine.expires) = (Some("abcdef".to_owned()), 5000);
    let own = Vm { power: PowerState::On, ..vm("t-w1", uuid, Some(machine.stamp(DEPLOYMENT))) };
    let mut seen = Inventory { now: 1050, vms: vec![own], ..Inventory::default() };
    let mut said = Statement {
        machine: Some(uuid.into()),
        phase: Phase::Refused,
        code: Some("join.wrong-ca".to_owned()),
        words: "not it\u{1b}[2J".to_owned(),
        lasting: true,
        times: 2,
        token: Some("abcdef".to_owned()),
        key: None,
        at: 1040,
    };
    change(&mut machine, &mut said, &mut seen);
    seen.said.insert(machine.name.clone(), said);
    match next(&pool, &[machine], &seen).actions.as_slice() {
        [Action::Fail(_, why)] => Some(why.to_string()),
        _ => None,
    }
}

#[test]
fn only_what_a_vm_has_said_itself_of_this_power_on_and_more_than_once_fails_it() {
    let failed = says(|_, _, _| {});
    assert!(
        failed.as_ref().is_some_and(|why| why.ends_with("[join.wrong-ca]") && !why.contains('\u{1b}')),
        "{failed:?}"
    );
    let silent_node = NodeSeen { ready: false, ..node_on("t-w1", &format!("vsphere://{}", Uuid::from_u128(1))) };
    let node = |heard: &str| NodeSeen { heard: heard.to_owned(), ..silent_node.clone() };
    // Before its first token's node was heard, and of a rejoin as long as nothing new was.
    assert!(says(|_, _, seen| seen.nodes.push(node(""))).is_some());
    let silent = says(|machine, _, seen| {
        machine.last_heartbeat = Some("before".to_owned());
        seen.nodes.push(node("before"));
    });
    assert!(silent.is_some());
    assert!(
        says(|_, said, _| said.token = None).is_some(),
        "what is wrong with its form it says before it has a token"
    );

    assert_eq!(says(|_, said, _| said.times = 1), None, "it is tried again");
    assert_eq!(says(|_, said, _| said.lasting = false), None);
    assert_eq!(says(|_, said, _| said.phase = Phase::Waiting), None);
    let asks = says(|_, said, _| said.code = Some("join.certificate-expired".to_owned()));
    assert_eq!(asks, None, "it has not seen its form yet");
    assert_eq!(says(|_, said, _| said.at = 999), None, "it was on before");
    assert_eq!(says(|_, said, _| said.token = Some("fedcba".to_owned())), None, "another token's");
    assert_eq!(says(|_, said, _| said.machine = Some(Uuid::from_u128(3).into())), None, "another VM's");
    assert_eq!(says(|_, said, _| said.machine = None), None);
    assert_eq!(says(|_, _, seen| seen.nodes.push(node("since"))), None, "its kubelet was heard: a pod may say it");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_asked_of_a_vm_hinders_nothing() {
    let at = World::first_of_adding("statement").await;
    let world = World::with(1).await;
    world.set_fault(Some((at, super::fake::Fault::Fails)));
    assert!(matches!(world.give(Goal::Add(1)).await, Given::Arrived(RunOutcome::Done, _)));
}

#[tokio::test(start_paused = true)]
async fn who_has_read_a_form_and_the_identity_of_its_vm_passes_for_no_worker() {
    // Without a key that is noted, what the VM says of itself counts.
    let ways = [
        (false, "workers.name-in-use", "admitted with another key than its VM's"),
        (true, "workers.unproved", "it says: waiting for the cluster to sign its certificate"),
    ];
    for (notes_no_keys, code, words) in ways {
        let world = World::with(1).await;
        world.lock().notes_no_keys = notes_no_keys;
        world.lock().intruded.insert("t-w2".to_owned());
        let told = async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            world.status().await.unwrap().unwrap().waits[0].reason.code.clone()
        };
        let (given, told) = tokio::join!(world.give(Goal::Add(1)), told);
        let (arrived, status) = given.arrived();
        assert_eq!((codes(&arrived), told.as_str(), status.available), (vec![code], code, 1));
        let RunOutcome::Stopped(why) = &arrived else { panic!("{arrived:?}") };
        assert!(why[0].reason.words.contains(words), "{why:?}");
        if notes_no_keys {
            // He ends no pod, and nobody knows that it is he.
            world.lock().lose_power("t-w2");
        }
        // He goes with the VM, and another one is made by another name.
        assert_eq!(world.give(Goal::GoOn).await.done().available, 2);
        assert_eq!(world.own(), ["t-w1", "t-w3"]);
        let state = world.lock();
        assert!(state.nodes.iter().all(|node| node.name != "t-w2") && !state.let_in.contains_key("t-w2"));
    }
}

#[tokio::test(start_paused = true)]
async fn who_has_read_the_form_of_one_that_joins_again_passes_for_it_as_little() {
    let world = World::with(2).await;
    // What its node says then is news.
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.lock().expire("t-w1");
    world.lock().intruded.insert("t-w1".to_owned());
    let (arrived, status) = world.give(rejoin("t-w1")).await.arrived();
    assert_eq!((codes(&arrived), status.workers[0].state), (vec!["workers.name-in-use"], State::Failed));
    // Nor is it well because its node is Ready when somebody goes on.
    let (arrived, _) = world.give(Goal::GoOn).await.arrived();
    assert_eq!(codes(&arrived), ["workers.name-in-use"]);
    assert_eq!(world.give(remove("t-w1")).await.done().wanted, 1);
    assert_eq!((world.own(), world.lock().nodes.len()), (vec!["t-w2".to_owned()], 1));
}

#[tokio::test(start_paused = true)]
async fn who_has_joined_in_the_place_of_one_that_joins_again_goes_at_once_also_before_it_has_failed() {
    for then in [None, Some(Goal::GoOn), Some(rejoin("t-w1"))] {
        let world = World::with(2).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        world.lock().expire("t-w1");
        world.lock().intruded.insert("t-w1".to_owned());
        match &then {
            Some(wish) => {
                assert_eq!(codes(&world.give(rejoin("t-w1")).await.arrived().0), ["workers.name-in-use"]);
                world.give_for_a_minute(wish.clone()).await.arrived();
            }
            None => drop(world.give_for_a_minute(rejoin("t-w1")).await.arrived()),
        }
        let state = world.kept().await.unwrap().machines[0].state;
        assert_eq!(state, if then.is_some() { State::Rejoining } else { State::Joining });
        assert_eq!(world.status().await.unwrap().unwrap().waits[0].reason.code, "workers.name-in-use");
        // He ends no pod.
        assert_eq!(world.give(remove("t-w1")).await.done().wanted, 1);
        assert!(!world.lock().calls.iter().any(|(name, _)| *name == "evict"), "{then:?}");
        assert_eq!((world.own(), world.lock().nodes.len()), (vec!["t-w2".to_owned()], 1));
    }
}

/// A cluster of two workers, of which the first is to join again. The command that gave it its token was ended before anybody could
/// see that somebody who has read its form has joined in its place.
pub(super) async fn intruded_unseen() -> World {
    let world = World::new();
    let mut pool = pool(2);
    pool.rollout.max_unavailable = 1;
    world.give(Goal::Create(Box::new(pool))).await.done();
    // What its node says then is news.
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.lock().expire("t-w1");
    world.lock().intruded.insert("t-w1".to_owned());
    give_until(&world, rejoin("t-w1"), || world.lock().intruded.is_empty()).await;
    let machine = first(&world).await;
    assert_eq!((machine.state, machine.impersonated, machine.key), (State::Joining, false, None));
    // Its VM says by then with which key it asks itself.
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.set_fault(None);
    world
}

/// By a person who ends the command as soon as this is so.
pub(super) async fn give_until(world: &World, wish: Goal, is_so: impl Fn() -> bool) {
    let (cancel, cancelled) = watch::channel(false);
    let ended = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        cancel.send_replace(true);
    };
    let (given, ()) = tokio::join!(world.give_with(wish, TakeOver::FromTheDead, cancelled), ended);
    assert_eq!(given.arrived().0, RunOutcome::Cancelled);
}

pub(super) async fn first(world: &World) -> WorkerRecord {
    world.kept().await.unwrap().machines[0].clone()
}

pub(super) fn evictions(world: &World) -> usize {
    world.lock().calls.iter().filter(|(name, _)| *name == "evict").count()
}

#[tokio::test(start_paused = true)]
async fn who_is_seen_first_in_the_round_that_chooses_the_worker_to_go_is_noted_before_it_goes() {
    // Only the other one's pod is asked to move away, where that one is replaced as well.
    let wishes = [
        (replace("two", Changes::default()), 1, vec!["t-w3", "t-w4"]),
        // No other one goes in its place.
        (Goal::Scale(1), 0, vec!["t-w2"]),
        // What shows him goes with the token, which is removed first of all.
        (remove("t-w1"), 0, vec!["t-w2"]),
    ];
    for (wish, evicted, left) in wishes {
        let world = intruded_unseen().await;
        world.give(wish).await.done();
        assert_eq!((evictions(&world), world.own()), (evicted, left.into_iter().map(str::to_owned).collect()));
    }
}

#[tokio::test(start_paused = true)]
async fn who_has_joined_in_its_place_is_told_by_a_status_that_comes_before_any_command() {
    let world = intruded_unseen().await;
    let status = world.status().await.unwrap().unwrap();
    let [wait] = &status.waits[..] else { panic!("{:?}", status.waits) };
    assert_eq!((wait.worker.as_deref(), wait.reason.code.as_str()), (Some("t-w1"), "workers.name-in-use"));
    assert!(wait.reason.words.contains("Remove the worker") && !status.done, "{wait}");
    assert!(!first(&world).await.impersonated, "a status changes nothing");
}

#[tokio::test(start_paused = true)]
async fn who_was_seen_in_its_place_is_drained_as_little_once_its_vm_says_nothing_any_more() {
    let world = intruded_unseen().await;
    world.give_for_a_minute(Goal::Continue).await.arrived();
    let noted = first(&world).await;
    assert!(noted.state == State::Joining && noted.impersonated && noted.key.is_some(), "{noted:?}");
    world.lock().is_deaf = Some("the host was started anew");
    assert_eq!(world.give(remove("t-w1")).await.done().wanted, 1);
    assert_eq!((evictions(&world), world.own()), (0, vec!["t-w2".to_owned()]));
}

#[test]
fn who_is_in_its_place_is_noted_also_once_its_token_leaves_no_time_to_join() {
    let noted = |change: fn(&mut WorkerRecord)| {
        let (mut machine, seen) = ready(None, Some("its"));
        (machine.state, machine.joined_seconds) = (State::Rejoining, Some(9));
        change(&mut machine);
        let next = next(&pool(1), &[machine], &seen);
        assert_eq!(
            next.waits.iter().map(|wait| wait.reason.code.as_str()).collect::<Vec<_>>(),
            ["workers.name-in-use"]
        );
        next.actions
    };
    assert_eq!(noted(|_| {}), [Action::Suspect("t-w1".to_owned(), "its".to_owned())]);
    assert_eq!(noted(|machine| machine.impersonated = true), []);
}

#[test]
fn of_one_without_a_token_nobody_is_proved_to_be_in_its_place() {
    let told = |now: u64, change: fn(&mut WorkerRecord)| {
        let (mut machine, mut seen) = ready(Some("its"), None);
        (machine.state, machine.joined_seconds, seen.now) = (State::Rejoining, Some(9), now);
        change(&mut machine);
        let next = next(&pool(1), &[machine], &seen);
        let fails = next.actions.iter().map(|action| match action {
            Action::Fail(_, why) => why.code.clone(),
            other => panic!("{other:?}"),
        });
        let waits = next.waits.iter().map(|wait| wait.reason.code.clone());
        (fails.collect::<Vec<_>>(), waits.collect::<Vec<_>>())
    };
    let (early, late) = (1050, 2000);
    // The key that is noted is an earlier token's, and the record may be older than either.
    let is_unproved = vec!["workers.unproved".to_owned()];
    assert_eq!(told(early, |machine| machine.token = None), (Vec::new(), is_unproved.clone()));
    assert_eq!(told(late, |machine| machine.token = None), (is_unproved.clone(), is_unproved));
    // Unless that was seen before.
    let is_anothers = vec!["workers.name-in-use".to_owned()];
    let seen_before = |machine: &mut WorkerRecord| (machine.token, machine.impersonated) = (None, true);
    assert_eq!(told(late, seen_before), (is_anothers.clone(), is_anothers));
}

/// One that goes in whose place somebody was seen, and whose VM says nothing.
#[test]
fn of_one_that_goes_where_nobody_can_tell_who_is_in_its_place_it_is_told_what_ends_pods_that_stay() {
    let told = |change: fn(&mut WorkerRecord)| {
        let (mut machine, mut seen) = ready(None, None);
        (machine.state, machine.token, machine.joined_seconds) = (State::Deleting, None, Some(9));
        (machine.cordoned, machine.handed_over) = (Some(1001), Some(1010));
        change(&mut machine);
        seen.said.clear();
        (seen.nodes[0].cordoned, seen.nodes[0].excluded) = (true, true);
        let pod = PodSeen {
            namespace: "web".to_owned(),
            name: "stays".to_owned(),
            uid: "2".to_owned(),
            ending: true,
            bare: false,
        };
        seen.pods.insert(machine.name.clone(), vec![pod]);
        let waits = next(&pool(1), &[machine], &seen).waits;
        let is_draining = |wait: &&Wait| wait.reason.code == "workers.draining";
        waits.iter().find(is_draining).expect("it is drained").reason.words.clone()
    };
    let words = told(|machine| machine.impersonated = true);
    assert!(words.contains("Another client was seen") && words.contains("cut that VM's power"), "{words}");
    assert!(told(|_| {}).ends_with("web/stays (is ending)"), "{}", told(|_| {}));
}

#[tokio::test(start_paused = true)]
async fn of_a_drain_that_is_refused_it_is_told_too_what_ends_pods_of_a_node_that_may_be_anothers() {
    let world = World::with(2).await;
    world.lock().let_in.insert("t-w1".to_owned(), ANOTHER.to_owned());
    world.lock().blocked.insert("t-w1".to_owned());
    let (arrived, _) = world.give(remove("t-w1")).await.arrived();
    let RunOutcome::Paused(waits) = &arrived else { panic!("{arrived:?}") };
    assert_eq!(codes(&arrived), ["workers.drain-blocked"]);
    let words = &waits[0].reason.words;
    assert!(words.contains("its disruption budget") && words.contains("cut that VM's power"), "{words}");
    world.lock().lose_power("t-w1");
    assert_eq!(world.give(Goal::Scale(1)).await.done().available, 1);
}

#[tokio::test(start_paused = true)]
async fn the_volumes_of_an_outdated_worker_that_failed_as_anothers_are_given_up_once_that_is_said() {
    let world = World::with(2).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.lock().expire("t-w1");
    world.lock().intruded.insert("t-w1".to_owned());
    assert_eq!(codes(&world.give(rejoin("t-w1")).await.arrived().0), ["workers.name-in-use"]);
    world.lock().claims.insert("t-w1".to_owned(), vec!["web/data".to_owned()]);
    let two = replace("two", Changes::default());
    let (arrived, _) = world.give(two.clone()).await.arrived();
    assert!(codes(&arrived).contains(&"workers.local-volumes"), "{arrived:?}");
    let Goal::Replace { image, cluster, kubernetes, changes, .. } = two else { unreachable!() };
    let discards = Discards { delete_local_volumes: true, ..Discards::default() };
    world.give(Goal::Replace { image, cluster, kubernetes, changes, discards }).await.done();
    assert_eq!(world.own(), ["t-w3", "t-w4"]);
}

#[tokio::test(start_paused = true)]
async fn of_a_member_whose_node_may_be_anothers_it_is_told_what_ends_pods_that_stay() {
    let world = World::with(2).await;
    // Of this one no command has seen that somebody else has joined.
    world.lock().let_in.insert("t-w1".to_owned(), ANOTHER.to_owned());
    let (_, status) = world.give_for_a_minute(remove("t-w1")).await.arrived();
    let is_told =
        |wait: &Wait| wait.reason.code == "workers.draining" && wait.reason.words.contains("cut that VM's power");
    assert!(status.waits.iter().any(is_told), "{:?}", status.waits);
    world.lock().lose_power("t-w1");
    assert_eq!(world.give(Goal::Scale(1)).await.done().available, 1);
}

#[tokio::test(start_paused = true)]
async fn a_member_whose_record_is_older_than_its_key_is_drained_as_ever_when_it_goes() {
    let world = World::with(3).await;
    // The control nodes' store was turned back to before they had joined again. The fake shuts down nobody who has pods.
    for name in ["t-w1", "t-w2"] {
        world.lock().let_in.insert(name.to_owned(), "an earlier key".to_owned());
    }
    assert_eq!(world.give(remove("t-w1")).await.done().wanted, 2);
    assert!(world.lock().calls.iter().any(|(name, _)| *name == "evict"));
    world.give(replace("two", Changes::default())).await.done();
    assert_eq!(world.own(), ["t-w4", "t-w5"]);
}

#[tokio::test(start_paused = true)]
async fn workers_of_an_earlier_image_and_of_control_nodes_of_one_join_as_soon_as_they_say_that_they_are_done() {
    for (notes_no_keys, say_no_key) in [(true, false), (false, true), (true, true)] {
        let world = World::new();
        (world.lock().notes_no_keys, world.lock().say_no_key) = (notes_no_keys, say_no_key);
        let status = world.give(Goal::Create(Box::new(pool(2)))).await.done();
        assert!(status.workers.iter().all(|worker| worker.joined_seconds.is_some_and(|took| took < 60)), "{status:?}");
        world.lock().expire("t-w1");
        world.give(rejoin("t-w1")).await.done();
    }
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_nobody_can_ask_is_waited_for_and_why_is_told() {
    let world = World::with(1).await;
    world.lock().is_deaf = Some("the account may not read it");
    let mended = async {
        tokio::time::sleep(Duration::from_secs(300)).await;
        world.lock().is_deaf = None;
    };
    let (given, ()) = tokio::join!(world.give(Goal::Add(1)), mended);
    assert_eq!(given.done().available, 2);
    world.lock().is_deaf = Some("the account may not read it");
    let (arrived, _) = world.give(Goal::Add(1)).await.arrived();
    let RunOutcome::Stopped(why) = &arrived else { panic!("{arrived:?}") };
    assert_eq!(codes(&arrived), ["workers.unproved"]);
    assert!(why[0].reason.words.ends_with("it could not be asked: the account may not read it"), "{why:?}");
    // What does its part already does it all the same.
    assert_eq!(world.status().await.unwrap().unwrap().available, 2);
    world.lock().is_deaf = None;
    assert_eq!(world.give(Goal::GoOn).await.done().available, 3);
}

#[tokio::test(start_paused = true)]
async fn one_that_waits_for_its_certificate_when_it_joins_again_is_not_sent_for_another_token() {
    let world = World::with(2).await;
    world.lock().expire("t-w1");
    // Somebody was let in by an earlier token, and does nothing that could be seen.
    world.lock().let_in.insert("t-w1".to_owned(), ANOTHER.to_owned());
    let (arrived, _) = world.give(rejoin("t-w1")).await.arrived();
    let RunOutcome::Stopped(why) = &arrived else { panic!("{arrived:?}") };
    assert_eq!(codes(&arrived), ["workers.not-joined"]);
    assert!(why[0].reason.words.ends_with("another token does not help: remove the worker"), "{why:?}");
    assert_eq!(world.give(remove("t-w1")).await.done().wanted, 1);
    assert_eq!(world.own(), ["t-w2"]);
}

/// A worker that has a token, where its node is Ready and was let in with the key `own`: it has noted a key or none, and its VM says
/// one or none.
pub(super) fn ready(noted: Option<&str>, says: Option<&str>) -> (WorkerRecord, Inventory) {
    let pool = pool(1);
    let uuid = Uuid::from_u128(1);
    let key = |key: Option<&str>| key.map(str::to_owned);
    let mut machine = WorkerRecord { key: key(noted), ..WorkerRecord::new(&pool, Uuid::from_u128(2), None, 1000) };
    (machine.name, machine.state, machine.bios_uuid) = ("t-w1".to_owned(), State::Joining, Some(uuid));
    (machine.token, machine.expires) = (Some("abcdef".to_owned()), 5000);
    let own = Vm { power: PowerState::On, ..vm("t-w1", uuid, Some(machine.stamp(DEPLOYMENT))) };
    let node = NodeSeen { heard: "now".to_owned(), ..node_on("t-w1", &format!("vsphere://{uuid}")) };
    let said =
        Statement { phase: Phase::Waiting, token: machine.token.clone(), key: key(says), ..done(Some(uuid.into())) };
    let mut seen = Inventory { now: 1050, vms: vec![own], nodes: vec![node], ..Inventory::default() };
    seen.said.insert(machine.name.clone(), said);
    seen.let_in.insert(machine.name.clone(), "own".to_owned());
    (machine, seen)
}

/// What follows for it.
fn joins(noted: Option<&str>, says: Option<&str>) -> Vec<Action> {
    let (machine, seen) = ready(noted, says);
    next(&pool(1), &[machine], &seen).actions
}

#[tokio::test(start_paused = true)]
async fn of_one_that_goes_and_never_proved_its_node_it_is_told_what_ends_pods_that_stay() {
    let world = World::with(2).await;
    world.lock().notes_no_keys = true;
    world.lock().intruded.insert("t-w3".to_owned());
    assert_eq!(codes(&world.give(Goal::Add(1)).await.arrived().0), ["workers.unproved"]);
    let (_, status) = world.give(remove("t-w3")).await.arrived();
    let is_told =
        |wait: &Wait| wait.reason.code == "workers.draining" && wait.reason.words.contains("cut that VM's power");
    assert!(status.waits.iter().any(is_told), "{:?}", status.waits);
    // Of a member that is itself nothing of the kind is told.
    world.lock().lose_power("t-w3");
    assert_eq!(world.give(Goal::GoOn).await.done().available, 2);
    let told = async {
        tokio::time::sleep(Duration::from_secs(11)).await;
        world.status().await.unwrap().unwrap().waits
    };
    let (given, waits) = tokio::join!(world.give(remove("t-w1")), told);
    given.done();
    assert!(!waits.iter().any(is_told), "{waits:?}");
}

#[test]
fn of_one_that_says_nothing_it_is_told_which_ones_never_do() {
    let (machine, mut seen) = ready(None, None);
    seen.said.clear();
    let waits = next(&pool(1), &[machine], &seen).waits;
    let [wait] = &waits[..] else { panic!("{waits:?}") };
    assert_eq!(wait.reason.code, "workers.unproved");
    assert!(wait.reason.words.contains("QEMU") && wait.reason.words.ends_with("from another image"), "{wait:?}");
}

#[test]
fn a_key_that_a_vm_has_said_before_its_kubelet_was_heard_is_its_own_whatever_a_pod_says_later() {
    let joined = [Action::Joined("t-w1".to_owned())];
    assert_eq!(joins(Some("own"), Some("a pod's")), joined);
    assert_eq!(joins(Some("own"), None), joined);
    assert_eq!(joins(None, Some("own")), joined);
    // It is noted no more once a pod may say it.
    for (noted, says) in [(Some("other"), Some("a pod's")), (None, Some("a pod's")), (None, None)] {
        assert_eq!(joins(noted, says), []);
    }
}

#[tokio::test(start_paused = true)]
async fn the_key_of_each_token_is_noted_once() {
    let world = World::with(1).await;
    let key = async || world.kept().await.unwrap().machines[0].key.clone().unwrap();
    let first = key().await;
    world.lock().expire("t-w1");
    world.give(rejoin("t-w1")).await.done();
    let second = key().await;
    assert!(first != second && world.lock().let_in["t-w1"] == second, "{first} {second}");
}
