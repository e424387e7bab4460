//! The statements of workers' VMs, and their effects.

use std::time::Duration;

use contract::statement::{Phase, Statement};
use tokio::sync::watch;
use uuid::Uuid;

use super::fake::{
    ANOTHER, DEPLOYMENT, Given, VOLUMES, World, done, node_on, pool, rejoin, remove, replace, vm, with_later,
};
use super::stories::codes;
use crate::hypervisor::{ErrorKind, PowerState, Vm};
use crate::lease::TakeOver;
use crate::workers::{
    Action, Changes, Goal, Inventory, NodeSeen, PodSeen, RunOutcome, State, Wait, WorkerRecord, next,
};

/// A cluster of two workers. The first one should join again, and refuses for this reason.
async fn refusing(code: &'static str, lasting: bool) -> World {
    let world = World::with(2).await;
    world.lock().expire("t-w1");
    world.lock().refusing.insert("t-w1".to_owned(), (code, lasting));
    world
}

#[tokio::test(start_paused = true)]
async fn a_refusing_worker_fails_with_its_code() {
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
async fn a_passing_refusal_is_waited_for() {
    let world = World::with(1).await;
    world.lock().refusing.insert("t-w2".to_owned(), ("join.name-in-use", false));
    let (given, ()) = with_later(world.give(Goal::Add(1)), 300, async || {
        let status = world.status().await.unwrap().unwrap();
        assert_eq!(status.waits[0].reason.code, "join.name-in-use");
        world.lock().refusing.clear();
    })
    .await;
    assert_eq!(given.done().available, 2);
    // A refusal that does not pass still keeps its code.
    world.lock().refusing.insert("t-w3".to_owned(), ("join.name-in-use", false));
    let before = world.now();
    let why = world.give(Goal::Add(1)).await.stopped();
    assert_eq!((why.len(), why[0].reason.code.as_str()), (1, "join.name-in-use"));
    assert!(why[0].reason.words.contains("900 s") && world.now() - before > 900, "{why:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failed_rejoin_is_retried_when_continued() {
    let world = refusing("join.token-refused", true).await;
    let before = world.now();
    let (arrived, status) = world.give(rejoin("t-w1")).await.arrived();
    assert_eq!((codes(&arrived), world.now() - before < 120), (vec!["join.token-refused"], true));
    assert_eq!((status.workers[0].state, status.workers[0].power), (State::Failed, Some(PowerState::On)));
    let vm = world.kept().await.unwrap().machines[0].bios_uuid;
    assert_eq!(world.give(Goal::GoOn).await.codes(), ["join.token-refused"]);
    world.lock().refusing.clear();
    let status = world.give(Goal::GoOn).await.done();
    assert_eq!((status.available, world.own()), (2, vec!["t-w1".to_owned(), "t-w2".to_owned()]));
    assert_eq!(world.kept().await.unwrap().machines[0].bios_uuid, vm, "it is the same VM");
    // The operator can remove it.
    world.lock().expire("t-w1");
    world.lock().refusing.insert("t-w1".to_owned(), ("join.token-refused", true));
    world.give(rejoin("t-w1")).await.arrived();
    assert_eq!(world.give(remove("t-w1")).await.done().wanted, 1);
    assert_eq!(world.own(), ["t-w2"]);
}

#[tokio::test(start_paused = true)]
async fn refused_properties_fail_a_rejoin_once() {
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
    assert_eq!(world.called("give"), 1);
    assert!(world.lock().tokens.is_empty(), "a token is left");
    // If it is shut down then, it should stay off.
    world.lock().lose_power("t-w1");
    let (_, status) = world.give(Goal::Scale(2)).await.arrived();
    assert_eq!(status.workers[0].power, Some(PowerState::Off));
    world.lock().forms_are = None;
    world.give(Goal::GoOn).await.done();
}

#[tokio::test(start_paused = true)]
async fn a_rejoin_without_properties_ends() {
    let world = World::with(2).await;
    world.lock().expire("t-w1");
    world.lock().forms_are = Some(ErrorKind::Denied);
    let waits = world.give(rejoin("t-w1")).await.paused();
    assert_eq!((waits.len(), waits[0].reason.code.as_str()), (1, "hypervisor.denied"));
    world.lock().forms_are = None;
    world.give(Goal::GoOn).await.done();
}

#[tokio::test(start_paused = true)]
async fn an_expired_worker_is_reported_with_its_remedy() {
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
async fn a_lost_system_disk_is_reported_with_remedy() {
    for code in ["property.missing", "join.token-refused", "environment.absent"] {
        let world = refusing(code, true).await;
        world.lock().lose_power("t-w1");
        let waits = world.give(Goal::GoOn).await.paused();
        assert!(waits[0].token && waits[0].reason.code == code, "{waits:?}");
        world.lock().refusing.clear();
        assert_eq!(world.give(rejoin("t-w1")).await.done().available, 2);
    }
}

/// The reasons are for each program that calls this: they name none of its commands.
#[test]
fn no_reason_names_a_command() {
    for code in crate::workers::REASONS {
        assert!(!["kaas ", "`", "-worker", "resume"].iter().any(|part| code.meaning.contains(part)), "{code:?}");
    }
}

/// A worker that was powered on at 1000 with a token, and the failure from its statement 50 s later.
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
fn only_repeated_own_refusals_fail_a_worker() {
    let failed = says(|_, _, _| {});
    assert!(
        failed.as_ref().is_some_and(|why| why.ends_with("[join.wrong-ca]") && !why.contains('\u{1b}')),
        "{failed:?}"
    );
    let silent_node = NodeSeen { ready: false, ..node_on("t-w1", &format!("vsphere://{}", Uuid::from_u128(1))) };
    let node = |heard: &str| NodeSeen { heard: heard.to_owned(), ..silent_node.clone() };
    // Before its first token's node has reported, and during a rejoin as long as there is no new report.
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
async fn an_unreadable_statement_blocks_nothing() {
    let at = World::first_of_adding("statement").await;
    let world = World::with(1).await;
    world.set_fault(Some((at, super::fake::Fault::Fails)));
    assert!(matches!(world.give(Goal::Add(1)).await, Given::Arrived(RunOutcome::Done, _)));
}

#[tokio::test(start_paused = true)]
async fn an_impostor_is_not_taken_for_a_worker() {
    // Without a recorded key, the VM's statement counts.
    let ways = [
        (false, "workers.name-in-use", "admitted with another key than its VM's"),
        (true, "workers.unproved", "it reports: waiting for the cluster to sign its certificate"),
    ];
    for (notes_no_keys, code, words) in ways {
        let world = World::with(1).await;
        world.lock().notes_no_keys = notes_no_keys;
        world.lock().intruded.insert("t-w2".to_owned());
        let (given, told) = with_later(world.give(Goal::Add(1)), 60, async || {
            world.status().await.unwrap().unwrap().waits[0].reason.code.clone()
        })
        .await;
        let (arrived, status) = given.arrived();
        assert_eq!((codes(&arrived), told.as_str(), status.available), (vec![code], code, 1));
        let RunOutcome::Stopped(why) = &arrived else { panic!("{arrived:?}") };
        assert!(why[0].reason.words.contains(words), "{why:?}");
        if notes_no_keys {
            // The impostor ends no pod, and is not known as one.
            world.lock().lose_power("t-w2");
        }
        // The impostor is removed with the VM, and another worker is created under another name.
        assert_eq!(world.give(Goal::GoOn).await.done().available, 2);
        assert_eq!(world.own(), ["t-w1", "t-w3"]);
        let state = world.lock();
        assert!(state.nodes.iter().all(|node| node.name != "t-w2") && !state.let_in.contains_key("t-w2"));
    }
}

/// The first worker should join again, and another client joins in its place.
async fn intrudes(world: &World) {
    // The node's next report is new then.
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.lock().expire("t-w1");
    world.lock().intruded.insert("t-w1".to_owned());
}

#[tokio::test(start_paused = true)]
async fn an_impostor_is_not_taken_for_a_rejoin() {
    let world = World::with(2).await;
    intrudes(&world).await;
    let (arrived, status) = world.give(rejoin("t-w1")).await.arrived();
    assert_eq!((codes(&arrived), status.workers[0].state), (vec!["workers.name-in-use"], State::Failed));
    // A Ready node alone does not make it healthy when the operator continues.
    assert_eq!(world.give(Goal::GoOn).await.codes(), ["workers.name-in-use"]);
    assert_eq!(world.give(remove("t-w1")).await.done().wanted, 1);
    assert_eq!((world.own(), world.lock().nodes.len()), (vec!["t-w2".to_owned()], 1));
}

#[tokio::test(start_paused = true)]
async fn an_impostor_of_a_rejoin_leaves_at_once() {
    for then in [None, Some(Goal::GoOn), Some(rejoin("t-w1"))] {
        let world = World::with(2).await;
        intrudes(&world).await;
        match &then {
            Some(wish) => {
                assert_eq!(world.give(rejoin("t-w1")).await.codes(), ["workers.name-in-use"]);
                world.give_for_a_minute(wish.clone()).await.arrived();
            }
            None => drop(world.give_for_a_minute(rejoin("t-w1")).await.arrived()),
        }
        let state = world.kept().await.unwrap().machines[0].state;
        assert_eq!(state, if then.is_some() { State::Rejoining } else { State::Joining });
        assert_eq!(world.status().await.unwrap().unwrap().waits[0].reason.code, "workers.name-in-use");
        // The impostor ends no pod.
        assert_eq!(world.give(remove("t-w1")).await.done().wanted, 1);
        assert!(world.called("evict") == 0, "{then:?}");
        assert_eq!((world.own(), world.lock().nodes.len()), (vec!["t-w2".to_owned()], 1));
    }
}

/// A cluster of two workers, of which the first should join again. The command that gave it its token ended before any command
/// could see that an impostor has joined in its place.
pub(super) async fn intruded_unseen() -> World {
    let world = World::new();
    let mut pool = pool(2);
    pool.rollout.max_unavailable = 1;
    world.give(Goal::Create(Box::new(pool))).await.done();
    intrudes(&world).await;
    give_until(&world, rejoin("t-w1"), || world.lock().intruded.is_empty()).await;
    let machine = first(&world).await;
    assert_eq!((machine.state, machine.impersonated, machine.key), (State::Joining, false, None));
    // Its VM has now reported the key with which it asks itself.
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.set_fault(None);
    world
}

/// By an operator who cancels the command as soon as this is so.
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

fn advises_power_cut(wait: &Wait) -> bool {
    wait.reason.code == "workers.draining" && wait.reason.words.contains("cut that VM's power")
}

pub(super) async fn first(world: &World) -> WorkerRecord {
    world.kept().await.unwrap().machines[0].clone()
}

#[tokio::test(start_paused = true)]
async fn an_impostor_is_recorded_before_its_worker_leaves() {
    // Only the other one's pod is evicted, if that one is replaced as well.
    let wishes = [
        (replace("two", Changes::default()), 1, vec!["t-w3", "t-w4"]),
        // No other one leaves in its place.
        (Goal::Scale(1), 0, vec!["t-w2"]),
        // The evidence is removed with the token, which is removed first.
        (remove("t-w1"), 0, vec!["t-w2"]),
    ];
    for (wish, evicted, left) in wishes {
        let world = intruded_unseen().await;
        world.give(wish).await.done();
        assert_eq!((world.called("evict"), world.own()), (evicted, left.into_iter().map(str::to_owned).collect()));
    }
}

#[tokio::test(start_paused = true)]
async fn status_reports_an_impostor_before_any_command() {
    let world = intruded_unseen().await;
    let status = world.status().await.unwrap().unwrap();
    let [wait] = &status.waits[..] else { panic!("{:?}", status.waits) };
    assert_eq!((wait.worker.as_deref(), wait.reason.code.as_str()), (Some("t-w1"), "workers.name-in-use"));
    assert!(wait.reason.words.contains("Remove the worker") && !status.done, "{wait}");
    assert!(!first(&world).await.impersonated, "a status changes nothing");
}

#[tokio::test(start_paused = true)]
async fn a_known_impostor_is_not_drained() {
    let world = intruded_unseen().await;
    world.give_for_a_minute(Goal::Continue).await.arrived();
    let noted = first(&world).await;
    assert!(noted.state == State::Joining && noted.impersonated && noted.key.is_some(), "{noted:?}");
    world.lock().is_deaf = Some("the host was started anew");
    assert_eq!(world.give(remove("t-w1")).await.done().wanted, 1);
    assert_eq!((world.called("evict"), world.own()), (0, vec!["t-w2".to_owned()]));
}

#[test]
fn an_impostor_is_recorded_even_late() {
    let noted = |change: fn(&mut WorkerRecord)| {
        let (mut machine, seen) = ready(None, Some("its"));
        (machine.state, machine.joined_seconds) = (State::Rejoining, Some(9));
        change(&mut machine);
        let next = next(&pool(1), &[machine], &seen);
        assert!(next.waits.len() == 1 && next.waits[0].reason.code == "workers.name-in-use", "{:?}", next.waits);
        next.actions
    };
    assert_eq!(noted(|_| {}), [Action::Suspect("t-w1".to_owned(), "its".to_owned())]);
    assert_eq!(noted(|machine| machine.impersonated = true), []);
}

#[test]
fn no_impostor_is_proved_without_a_token() {
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
    // The recorded key is an earlier token's, and the record may be older than either.
    let is_unproved = vec!["workers.unproved".to_owned()];
    assert_eq!(told(early, |machine| machine.token = None), (Vec::new(), is_unproved.clone()));
    assert_eq!(told(late, |machine| machine.token = None), (is_unproved.clone(), is_unproved));
    // Unless that was seen before.
    let is_anothers = vec!["workers.name-in-use".to_owned()];
    let seen_before = |machine: &mut WorkerRecord| (machine.token, machine.impersonated) = (None, true);
    assert_eq!(told(late, seen_before), (is_anothers.clone(), is_anothers));
}

/// A leaving worker that was impersonated, and whose VM reports nothing.
#[test]
fn an_unproved_leaving_worker_advises_a_power_cut() {
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
async fn a_refused_drain_advises_a_power_cut() {
    let world = World::with(2).await;
    world.lock().let_in.insert("t-w1".to_owned(), ANOTHER.to_owned());
    world.lock().blocked.insert("t-w1".to_owned());
    let waits = world.give(remove("t-w1")).await.paused();
    assert_eq!((waits.len(), waits[0].reason.code.as_str()), (1, "workers.drain-blocked"));
    let words = &waits[0].reason.words;
    assert!(words.contains("its disruption budget") && words.contains("cut that VM's power"), "{words}");
    world.lock().lose_power("t-w1");
    assert_eq!(world.give(Goal::Scale(1)).await.done().available, 1);
}

#[tokio::test(start_paused = true)]
async fn volumes_of_a_failed_impostor_need_permission() {
    let world = World::with(2).await;
    intrudes(&world).await;
    assert_eq!(world.give(rejoin("t-w1")).await.codes(), ["workers.name-in-use"]);
    world.lock().claims.insert("t-w1".to_owned(), vec!["web/data".to_owned()]);
    let mut two = replace("two", Changes::default());
    assert!(world.give(two.clone()).await.codes().contains(&"workers.local-volumes".to_owned()));
    let Goal::Replace { discards, .. } = &mut two else { unreachable!() };
    *discards = VOLUMES;
    world.give(two).await.done();
    assert_eq!(world.own(), ["t-w3", "t-w4"]);
}

#[tokio::test(start_paused = true)]
async fn a_member_with_another_key_advises() {
    let world = World::with(2).await;
    // No command has seen that another client has joined in its place.
    world.lock().let_in.insert("t-w1".to_owned(), ANOTHER.to_owned());
    let (_, status) = world.give_for_a_minute(remove("t-w1")).await.arrived();
    assert!(status.waits.iter().any(advises_power_cut), "{:?}", status.waits);
    world.lock().lose_power("t-w1");
    assert_eq!(world.give(Goal::Scale(1)).await.done().available, 1);
}

#[tokio::test(start_paused = true)]
async fn a_member_with_an_old_record_is_drained() {
    let world = World::with(3).await;
    // The control-plane nodes' store was restored to before they had joined again. The fake shuts down no node that has pods.
    for name in ["t-w1", "t-w2"] {
        world.lock().let_in.insert(name.to_owned(), "an earlier key".to_owned());
    }
    assert_eq!(world.give(remove("t-w1")).await.done().wanted, 2);
    assert!(world.called("evict") > 0);
    world.give(replace("two", Changes::default())).await.done();
    assert_eq!(world.own(), ["t-w4", "t-w5"]);
}

#[tokio::test(start_paused = true)]
async fn workers_without_recorded_keys_join_when_done() {
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
async fn an_unreadable_vm_is_waited_for() {
    let world = World::with(1).await;
    world.lock().is_deaf = Some("the account may not read it");
    let (given, ()) = with_later(world.give(Goal::Add(1)), 300, async || {
        world.lock().is_deaf = None;
    })
    .await;
    assert_eq!(given.done().available, 2);
    world.lock().is_deaf = Some("the account may not read it");
    let why = world.give(Goal::Add(1)).await.stopped();
    assert_eq!((why.len(), why[0].reason.code.as_str()), (1, "workers.unproved"));
    assert!(why[0].reason.words.ends_with("it could not be asked: the account may not read it"), "{why:?}");
    // A worker that is already available stays so.
    assert_eq!(world.status().await.unwrap().unwrap().available, 2);
    world.lock().is_deaf = None;
    assert_eq!(world.give(Goal::GoOn).await.done().available, 3);
}

#[tokio::test(start_paused = true)]
async fn a_rejoin_that_waits_gets_no_other_token() {
    let world = World::with(2).await;
    world.lock().expire("t-w1");
    // Another client was admitted by an earlier token, and does nothing that could be seen.
    world.lock().let_in.insert("t-w1".to_owned(), ANOTHER.to_owned());
    let why = world.give(rejoin("t-w1")).await.stopped();
    assert_eq!((why.len(), why[0].reason.code.as_str()), (1, "workers.not-joined"));
    assert!(why[0].reason.words.ends_with("another token does not help: remove the worker"), "{why:?}");
    assert_eq!(world.give(remove("t-w1")).await.done().wanted, 1);
    assert_eq!(world.own(), ["t-w2"]);
}

/// A worker with a token, whose node is Ready and was admitted with the key `own`. Its record has a key or none, and its VM
/// reports one or none.
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

/// The next actions for it.
fn joins(noted: Option<&str>, says: Option<&str>) -> Vec<Action> {
    let (machine, seen) = ready(noted, says);
    next(&pool(1), &[machine], &seen).actions
}

#[tokio::test(start_paused = true)]
async fn a_leaving_worker_without_proof_advises() {
    let world = World::with(2).await;
    world.lock().notes_no_keys = true;
    world.lock().intruded.insert("t-w3".to_owned());
    assert_eq!(world.give(Goal::Add(1)).await.codes(), ["workers.unproved"]);
    let (_, status) = world.give(remove("t-w3")).await.arrived();
    assert!(status.waits.iter().any(advises_power_cut), "{:?}", status.waits);
    // A proved member gets no such advice.
    world.lock().lose_power("t-w3");
    assert_eq!(world.give(Goal::GoOn).await.done().available, 2);
    let (given, waits) =
        with_later(world.give(remove("t-w1")), 11, async || world.status().await.unwrap().unwrap().waits).await;
    given.done();
    assert!(!waits.iter().any(advises_power_cut), "{waits:?}");
}

#[test]
fn a_silent_worker_names_images_without_statements() {
    let (machine, mut seen) = ready(None, None);
    seen.said.clear();
    let waits = next(&pool(1), &[machine], &seen).waits;
    let [wait] = &waits[..] else { panic!("{waits:?}") };
    assert_eq!(wait.reason.code, "workers.unproved");
    assert!(wait.reason.words.contains("QEMU") && wait.reason.words.ends_with("from another image"), "{wait:?}");
}

#[test]
fn an_early_key_outlives_later_ones() {
    let joined = [Action::Joined("t-w1".to_owned())];
    assert_eq!(joins(Some("own"), Some("a pod's")), joined);
    assert_eq!(joins(Some("own"), None), joined);
    assert_eq!(joins(None, Some("own")), joined);
    // It is no longer recorded once a pod may report it.
    for (noted, says) in [(Some("other"), Some("a pod's")), (None, Some("a pod's")), (None, None)] {
        assert_eq!(joins(noted, says), []);
    }
}

#[tokio::test(start_paused = true)]
async fn the_key_of_each_token_is_recorded_once() {
    let world = World::with(1).await;
    let key = async || world.kept().await.unwrap().machines[0].key.clone().unwrap();
    let first = key().await;
    world.lock().expire("t-w1");
    world.give(rejoin("t-w1")).await.done();
    let second = key().await;
    assert!(first != second && world.lock().let_in["t-w1"] == second, "{first} {second}");
}
