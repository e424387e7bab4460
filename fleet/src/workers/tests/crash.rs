//! Each call of a command with each fault. An error has its effect at once, late or never. A command is killed before, after or
//! during the call, or its lease is taken over. The next command completes everything, and forbidden calls panic in the fakes.

use super::fake::{Does, Fault, Given, World, digest, pool, remove, replace};
use crate::workers::{Changes, Goal, PoolRecord, Removal, State};

/// The command in which the fault happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Create,
    Add,
    Remove,
    /// The same for a worker whose VM is kept.
    Keep,
    Shrink,
    Replace,
    Rejoin,
    /// All have lost their power, and no command has seen it yet.
    PowerOn,
}

impl Way {
    async fn world(self) -> World {
        match self {
            Self::Create => World::new(),
            Self::Add | Self::Remove | Self::Shrink | Self::Replace => World::with(2).await,
            Self::Keep => {
                let world = World::with(2).await;
                world.has_removed_by("t-w1", Removal::Keep).await;
                world
            }
            Self::Rejoin => {
                let world = World::with(2).await;
                world.lock().expire("t-w1");
                world
            }
            Self::PowerOn => {
                let world = World::with(2).await;
                world.lock().unnoticed = true;
                ["t-w1", "t-w2"].into_iter().for_each(|worker| world.lock().lose_power(worker));
                world
            }
        }
    }

    fn wish(self) -> Goal {
        match self {
            Self::Create => Goal::Create(Box::new(pool(2))),
            Self::Add => Goal::Add(1),
            Self::Remove | Self::Keep => remove("t-w1"),
            Self::Shrink => Goal::Scale(1),
            Self::Replace => replace("two", Changes::default()),
            Self::Rejoin => Goal::Rejoin { worker: "t-w1".to_owned() },
            Self::PowerOn => Goal::GoOn,
        }
    }

    /// Whether the goal was recorded: an operator who got an error gives it again.
    fn is_noted(self, kept: Option<&PoolRecord>) -> bool {
        let Some(kept) = kept else { return false };
        match self {
            Self::Create | Self::PowerOn => true,
            Self::Add => kept.pool.count == 3,
            Self::Remove | Self::Keep | Self::Shrink => kept.pool.count == 1,
            Self::Replace => kept.pool.template.image.digest == digest("two"),
            Self::Rejoin => kept.machine("t-w1").is_none_or(|machine| machine.state != State::Running),
        }
    }

    fn ends_with(self) -> usize {
        match self {
            Self::Create | Self::Replace | Self::Rejoin | Self::PowerOn => 2,
            Self::Add => 3,
            Self::Remove | Self::Keep | Self::Shrink => 1,
        }
    }

    /// How few workers may be available meanwhile, and how many VMs there may be.
    fn bounds(self) -> (usize, usize) {
        match self {
            Self::Create | Self::PowerOn => (0, 2),
            Self::Add => (2, 3),
            Self::Remove | Self::Keep | Self::Shrink | Self::Rejoin => (1, 2),
            Self::Replace => (2, 3),
        }
    }
}

async fn point(way: Way, call: usize, does: (&str, Does), fault: Fault) {
    let told = format!("{way:?}, call {call} {does:?}: {fault:?}");
    let world = way.world().await;
    world.set_fault(Some((call, fault)));
    let given = world.give(way.wish()).await;
    if fault.kills() {
        assert!(matches!(given, Given::Killed), "{told}: {given:?}");
    }
    if fault == Fault::Overtaken {
        assert!(matches!(&given, Given::Failed(_)), "{told}: {given:?}");
        let after = world.lock().calls.iter().skip(call).copied().collect::<Vec<_>>();
        let changed = after.iter().find(|(_, does)| matches!(does, Does::ChangesVm | Does::ChangesCluster));
        assert_eq!(changed, None, "{told}: it goes on");
    }
    world.set_fault(None);
    let noted = way.is_noted(world.kept().await.as_ref());
    let wish = if noted { Goal::GoOn } else { way.wish() };
    let mut given = world.give_over(wish).await;
    // A worker that has failed meanwhile is created again.
    for _ in 0..3 {
        if matches!(&given, Given::Arrived(_, status) if status.done) {
            break;
        }
        given = world.give_over(Goal::GoOn).await;
    }
    let Given::Arrived(_, status) = given else { panic!("{told}: {given:?}") };
    assert!(status.done && status.available == way.ends_with(), "{told}: {status:?}");
    let kept = world.kept().await.unwrap();
    assert!(kept.machines.iter().all(|machine| machine.state == State::Running), "{told}: {kept:?}");
    let mut names: Vec<_> = kept.machines.iter().map(|machine| machine.name.clone()).collect();
    let mut own = world.own();
    names.sort();
    own.sort();
    assert_eq!(own, names, "{told}: VMs that are nobody's");
    let state = world.lock();
    assert!(state.tokens.is_empty(), "{told}: a token is left");
    assert_eq!(state.nodes.len(), way.ends_with(), "{told}: {:?}", state.nodes);
    let given_up = usize::from(way == Way::Keep);
    assert_eq!(state.machines.len(), way.ends_with() + given_up + 2, "{told}: a VM of others is gone");
    drop(state);
    assert_eq!(world.given_up().len(), given_up, "{told}: what was to be kept");
    let (fewest, most) = way.bounds();
    assert!(world.fewest() >= fewest && world.most() <= most, "{told}: {} {}", world.fewest(), world.most());
}

async fn everywhere(way: Way) {
    let world = way.world().await;
    world.set_fault(None);
    world.give(way.wish()).await.done();
    let calls = world.lock().calls.clone();
    assert!(calls.len() > 20, "{calls:?}");
    let mut points = 0;
    for (number, (name, does)) in (1..).zip(calls) {
        let overtaken: &[Fault] = if name == "store.exists" && number > 12 { &[Fault::Overtaken] } else { &[] };
        for fault in does.faults().iter().chain(overtaken) {
            point(way, number, (name, does), *fault).await;
            points += 1;
        }
    }
    println!("{way:?}: {points} points");
}

#[tokio::test(start_paused = true)]
async fn each_fault_during_creation() {
    everywhere(Way::Create).await;
}

#[tokio::test(start_paused = true)]
async fn each_fault_during_an_addition() {
    everywhere(Way::Add).await;
}

#[tokio::test(start_paused = true)]
async fn each_fault_during_a_removal() {
    everywhere(Way::Remove).await;
}

#[tokio::test(start_paused = true)]
async fn each_fault_during_a_removal_that_keeps_vms() {
    everywhere(Way::Keep).await;
}

#[tokio::test(start_paused = true)]
async fn each_fault_during_a_reduction() {
    everywhere(Way::Shrink).await;
}

#[tokio::test(start_paused = true)]
async fn each_fault_during_a_rejoin() {
    everywhere(Way::Rejoin).await;
}

#[tokio::test(start_paused = true)]
async fn each_fault_during_a_replacement() {
    everywhere(Way::Replace).await;
}

#[tokio::test(start_paused = true)]
async fn each_fault_during_power_on() {
    everywhere(Way::PowerOn).await;
}
