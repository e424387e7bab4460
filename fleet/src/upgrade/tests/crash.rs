//! Every call of a command, and every fault there. A fault is an error with its effect at once, late or never, or a
//! killed command. The next command brings everything to one of the ends.

use std::collections::BTreeMap;
use std::time::Instant;

use super::command::{Given, begin, end, give, give_with};
use super::fake::fault::{At, Call, CallKind, Fault};
use super::fake::operator::STRANGERS;
use super::fake::{Ill, World};
use super::package;
use crate::engine;
use crate::hypervisor::{ErrorKind, PowerState};
use crate::upgrade::{CODES, Mode, Outcome, REASONS, Request, RunOutcome};

/// The work of a command at which a fault happens.
#[derive(Clone, Copy, Debug)]
struct Way {
    nodes: usize,
    mode: Mode,
    ill: Ill,
    verb: Request,
    /// Whether disks are copied.
    copies: bool,
}

const FORWARD: Way = Way { nodes: 1, mode: Mode::Rolling, ill: Ill::Well, verb: Request::Resume, copies: false };
const BACK: Way = Way { verb: Request::Rollback, ..FORWARD };
const COMMIT: Way = Way { verb: Request::Commit, ..FORWARD };

impl Way {
    /// A cluster among VMs of other deployments, at the beginning of this work.
    async fn world(self) -> World {
        let mut world = World::of(self.nodes, self.mode, self.ill);
        world.options.copy_disks = self.copies;
        let plan = world.plan().await;
        begin(&world).await;
        for node in 0..self.nodes {
            for stranger in STRANGERS {
                world.add_stranger(&plan, node, stranger, PowerState::On);
            }
        }
        if self.verb != Request::Resume {
            assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
        }
        world
    }

    /// The calls of a command without a fault.
    async fn calls(self) -> Vec<Call> {
        let world = self.world().await;
        give(&world, self.verb).await.arrived();
        world.calls()
    }

    /// Where it may end at last.
    fn ends(self, at: At, then: Request) -> &'static [Outcome] {
        match (then, self.verb, self.ill) {
            (Request::Commit, _, _) => &[Outcome::Committed],
            (Request::Rollback, _, _) | (_, Request::Rollback, _) => &[Outcome::RolledBack, Outcome::Upgraded],
            // Killed before the first entry of the commit, it is where it was.
            (_, Request::Commit, _) => &[Outcome::Committed, Outcome::Upgraded],
            (_, _, Ill::Well) if is_no_reason_to_turn(at) => &[Outcome::Upgraded],
            (_, _, Ill::Well) => &[Outcome::Upgraded, Outcome::RolledBack],
            _ => &[Outcome::RolledBack],
        }
    }
}

/// Whether a fault passes: no node goes back for that.
fn is_no_reason_to_turn(at: At) -> bool {
    let passes = match at.fault {
        Fault::Late | Fault::Done => true,
        Fault::Error(kind) => {
            matches!(kind, ErrorKind::Transient | ErrorKind::Changed | ErrorKind::InDoubt | ErrorKind::Denied)
        }
        fault => fault.kills(),
    };
    passes && !at.lasting
}

/// How often commands have come to which end.
#[derive(Default)]
struct Figures {
    points: usize,
    first: BTreeMap<&'static str, usize>,
    last: BTreeMap<&'static str, usize>,
}

impl Figures {
    fn print(&self, what: &str, began: Instant) {
        let (points, first, last) = (self.points, &self.first, &self.last);
        println!(
            "{what}: {points} points in {:.1} s; first {first:?}, at last {last:?}",
            began.elapsed().as_secs_f64()
        );
    }
}

fn name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Upgraded => "upgraded",
        Outcome::RolledBack => "rolled back",
        Outcome::Committed => "committed",
        Outcome::Abandoned => "abandoned",
    }
}

fn state(given: &Given) -> &'static str {
    match given {
        Given::Killed => "killed",
        Given::Failed(_) => "ended with an error",
        Given::Arrived(RunOutcome::Ended(outcome), _) => name(*outcome),
        Given::Arrived(RunOutcome::Paused(reason), _) => {
            let known = engine::REASONS.iter().chain(REASONS).chain(CODES).any(|known| known.code == reason.code);
            assert!(known || reason.code.starts_with("swap."), "{reason}");
            "paused"
        }
        Given::Arrived(RunOutcome::NodeIsBack(_), _) => "a node is back",
        Given::Arrived(RunOutcome::Cancelled, _) => "cancelled",
    }
}

/// One point: a fault happens, and once it is repaired the operator continues.
async fn point(way: Way, at: At, then: Request, figures: &mut Figures) {
    let told = format!("{way:?} {at:?} then {then:?}");
    let world = way.world().await;
    let reached = async {
        let given = give_with(&world, way.verb, None, Some(at)).await;
        figures.points += 1;
        *figures.first.entry(state(&given)).or_default() += 1;
        if at.fault.kills() {
            assert!(matches!(given, Given::Killed), "{given:?}");
        }
        if let Given::Failed(error) = &given {
            let (error, call) = (format!("{error:#}"), world.calls().last().copied());
            let named = ["store", "no answer", "Fenced", "taken", "holds the lease", "InDoubt", "nothing was changed"]
                .iter()
                .any(|word| error.contains(word));
            assert!(named, "{error} at {call:?}");
        }
        let outcome = end(&world, then).await;
        *figures.last.entry(name(outcome)).or_default() += 1;
        assert!(way.ends(at, then).contains(&outcome), "{outcome:?}");
        if way.mode == Mode::Rolling {
            assert!(world.most_away() <= 1);
        }
    };
    Named(&told).during(reached).await;
}

/// Says at which point a test has failed.
struct Named<'a>(&'a str);

impl Named<'_> {
    async fn during(self, work: impl Future<Output = ()>) {
        work.await;
        std::mem::forget(self);
    }
}

impl Drop for Named<'_> {
    fn drop(&mut self) {
        println!("at {}", self.0);
    }
}

/// All points of a way.
async fn everywhere(way: Way, then: &[Request], faults: impl Fn(Call) -> Vec<Fault>) -> Figures {
    let mut figures = Figures::default();
    // Made once, not for each point.
    let _ova = package::shared();
    let calls = way.calls().await;
    assert!(calls.len() > 20, "{calls:?}");
    for (number, call) in calls.into_iter().enumerate() {
        for fault in faults(call) {
            let lasting: &[bool] = if fault.kills() || fault == Fault::Overtaken { &[false] } else { &[false, true] };
            for &lasting in lasting {
                for &then in then {
                    point(way, At { call: number + 1, fault, lasting }, then, &mut figures).await;
                }
            }
        }
    }
    figures
}

fn all(call: Call) -> Vec<Fault> {
    [call.kind.faults(), overtaken(call)].concat()
}

/// Another command takes over when this one confirms its lease: between two steps, before a call, and within it.
fn overtaken(call: Call) -> Vec<Fault> {
    if ["store.exists", "store.numbers"].contains(&call.name) { vec![Fault::Overtaken] } else { Vec::new() }
}

/// Only faults that kill a command, around every call and every entry of the journal.
fn kills(call: Call) -> Vec<Fault> {
    call.kind.faults().into_iter().filter(|fault| fault.kills()).collect()
}

fn doubts_and_kills(call: Call) -> Vec<Fault> {
    [kills(call), doubts(call)].concat()
}

/// The faults that leave the most doubt.
fn doubts(call: Call) -> Vec<Fault> {
    let doubtful = [Fault::Error(ErrorKind::InDoubt), Fault::Done, Fault::Late, Fault::Error(ErrorKind::Refused)];
    match call.kind {
        CallKind::Change => doubtful.to_vec(),
        CallKind::Do => vec![Fault::Done, Fault::Late],
        _ => Vec::new(),
    }
}

/// All points of several kinds of work, and their results.
async fn figures(what: &str, ways: &[Way], then: &[Request], faults: impl Fn(Call) -> Vec<Fault>) {
    let began = Instant::now();
    let mut all = Figures::default();
    for way in ways {
        let figures = everywhere(*way, then, &faults).await;
        all.points += figures.points;
        for (sum, part) in [(&mut all.first, figures.first), (&mut all.last, figures.last)] {
            for (name, count) in part {
                *sum.entry(name).or_default() += count;
            }
        }
    }
    all.print(what, began);
}

const BOTH: [Request; 2] = [Request::Resume, Request::Rollback];
const THREE: Way = Way { nodes: 3, ..FORWARD };
const AT_ONCE: Way = Way { mode: Mode::AllAtOnce, ..THREE };

#[tokio::test(start_paused = true)]
async fn one_node_faults_on_the_way_forward() {
    // Also what is asked for a copy.
    figures("one node, forward", &[Way { copies: true, ..FORWARD }], &BOTH, all).await;
}

#[tokio::test(start_paused = true)]
async fn one_node_faults_in_a_rollback() {
    figures("one node, back", &[BACK], &BOTH, all).await;
}

#[tokio::test(start_paused = true)]
async fn one_node_faults_in_the_commit() {
    figures("one node, commit", &[Way { copies: true, ..COMMIT }], &[Request::Resume, Request::Commit], all).await;
}

#[tokio::test(start_paused = true)]
async fn one_node_faults_with_an_unhealthy_image() {
    let ways = [Ill::NeverGood, Ill::NoStart, Ill::Hangs].map(|ill| Way { ill, ..FORWARD });
    figures("one node, images that are ill", &ways, &[Request::Resume], doubts_and_kills).await;
}

#[tokio::test(start_paused = true)]
async fn three_nodes_command_killed_at_any_call() {
    figures("three nodes, killed forward", &[THREE, AT_ONCE], &BOTH, kills).await;
    let ways = [THREE, AT_ONCE].map(|way| Way { verb: Request::Rollback, ..way });
    figures("three nodes, killed back", &ways, &[Request::Rollback], kills).await;
    let way = Way { verb: Request::Commit, ..THREE };
    figures("three nodes, killed at the commit", &[way], &[Request::Commit], kills).await;
}

#[tokio::test(start_paused = true)]
async fn three_nodes_takeover_at_any_call() {
    let ways = [THREE, AT_ONCE, Way { verb: Request::Rollback, ..THREE }];
    figures("three nodes, taken over", &ways, &[Request::Rollback], overtaken).await;
}

#[tokio::test(start_paused = true)]
async fn three_nodes_and_calls_that_are_in_doubt() {
    figures("three nodes, in doubt forward", &[THREE, AT_ONCE], &BOTH, doubts).await;
    let ways = [THREE, AT_ONCE].map(|way| Way { verb: Request::Rollback, ..way });
    figures("three nodes, in doubt back", &ways, &[Request::Rollback], doubts).await;
}

#[tokio::test(start_paused = true)]
async fn three_nodes_killed_with_an_unhealthy_image() {
    let ways = [Ill::NeverGood, Ill::Hangs].map(|ill| Way { ill, ..THREE });
    figures("three nodes, killed with an image that is ill", &ways, &[Request::Resume], kills).await;
}
