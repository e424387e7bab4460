//! Cuts of a guest's power during an upgrade, at moments drawn from a seed. The six cuts are at the same moments in every run. The
//! single cut is at another moment in each run. After a cut the test powers the new VM on again, as the host of a cluster would.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use fleet::hypervisor::PowerState;

use crate::scenario::Scenario;
use crate::upgrade::Upgrade;

/// Where the draws of moments begin that are the same in every run.
const SEED: u64 = 5;
/// The variable that says where the draw of a moment begins that is another one in every run otherwise.
const SEED_VARIABLE: &str = "KAAS_TEST_CUT_SEED";
/// How long it may take until a moment comes, times the timeout factor.
const COMING: Duration = Duration::from_secs(400);

/// Which command is at work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Back,
}

/// A kind of moment.
enum Moment {
    /// The VM that is to go is drained.
    Draining,
    /// It shuts down: so many lines of its console after the first unit stopped.
    ShuttingDown(usize),
    /// The console of the VM that comes has so many lines.
    Booting(usize),
    /// Its agent has begun this, and so many lines have followed.
    After(&'static str, usize),
}

impl Moment {
    fn is_there(&self, scenario: &Scenario, vm: &str) -> anyhow::Result<bool> {
        if scenario.lab().power_state(vm)? == PowerState::Off {
            return Ok(false);
        }
        let console = scenario.lab().console_text(vm)?;
        let lines = |text: &str| text.matches('\n').count();
        Ok(match self {
            Self::Draining => {
                let cordoned = "--output=jsonpath={.items[?(@.spec.unschedulable==true)].metadata.name}";
                scenario.lab().kubectl(&["get", "nodes", cordoned])?.split_whitespace().any(|node| node == vm)
            }
            Self::ShuttingDown(further) => {
                let since_ready = console.rsplit_once("kaas: ready").map_or("", |(_, rest)| rest);
                since_ready.split_once("Stopped ").is_some_and(|(_, rest)| lines(rest) >= *further)
            }
            Self::Booting(least) => lines(&console) >= *least,
            Self::After(mark, further) => console.split_once(mark).is_some_and(|(_, rest)| lines(rest) >= *further),
        })
    }

    /// It is a moment of the VM that gives its disk up, not of the one that takes it.
    fn is_of_going(&self) -> bool {
        matches!(self, Self::Draining | Self::ShuttingDown(_))
    }

    /// The VM that runs now, if one does.
    fn vm(&self, scenario: &Scenario, direction: Direction) -> anyhow::Result<Option<String>> {
        let lab = scenario.lab();
        let first = |vm: &String| lab.plan().nodes.iter().any(|node| node.name == *vm);
        // During the swap the first VMs stop, during the rollback they start.
        let meant = |vm: &String| first(vm) == (self.is_of_going() == (direction == Direction::Forward));
        // A VM that does not answer counts as missing.
        let there = |vm: &String| meant(vm) && self.is_there(scenario, vm).unwrap_or(false);
        Ok(lab.vms()?.into_iter().find(there))
    }

    fn said(&self) -> String {
        match self {
            Self::Draining => "while it was drained".to_owned(),
            Self::ShuttingDown(lines) => format!("shutting down, {lines} lines after the first unit stopped"),
            Self::Booting(lines) => format!("booting, after {lines} lines"),
            Self::After(mark, lines) => format!("{lines} lines after {mark:?}"),
        }
    }
}

/// Six times, upgrades the cluster or rolls it back, in turns. Each time it cuts the power of the VM that stops or starts, at
/// another moment. Each time the cluster must end on one of the two images, healthy, with the same nodes.
///
/// # Panics
/// It does not.
pub fn each_comes_to_an_end(scenario: &Scenario) {
    let mut draws = Draws(SEED);
    let cuts = [
        (Direction::Forward, Moment::Draining),
        (Direction::Back, Moment::ShuttingDown(draws.below(3))),
        (Direction::Forward, Moment::Booting(10 + draws.below(40))),
        (Direction::Back, Moment::After("kaas: ", draws.below(3))),
        (Direction::Forward, Moment::After("kaas: starting etcd", draws.below(4))),
        (Direction::Back, Moment::After("kaas: ready", 0)),
    ];
    let upgrade = Upgrade::of(scenario);
    let before = upgrade.kept();
    for (direction, moment) in cuts {
        if direction == Direction::Back && upgrade.is_all_back() {
            upgrade.run(&["apply"]);
        }
        cut(scenario, &upgrade, direction, &moment);
        upgrade.wait_until_healthy();
        assert_eq!(upgrade.kept(), before);
    }
    assert!(upgrade.is_all_back());
}

/// Upgrades the cluster and cuts the power of the new VM while its system starts for the first time. The cluster must end on one
/// of the two images, healthy. Each run cuts at another moment, and prints the seed.
///
/// # Panics
/// The value of [`SEED_VARIABLE`] is no number.
pub fn in_the_first_boot(scenario: &Scenario) {
    let seed = seed(std::env::var(SEED_VARIABLE).ok().as_deref());
    let moment = first_boot(seed);
    scenario.reached(&format!("the power is to be cut {}, {SEED_VARIABLE}={seed}", moment.said()));
    let upgrade = Upgrade::of(scenario);
    cut(scenario, &upgrade, Direction::Forward, &moment);
    upgrade.wait_until_healthy();
}

/// Where a draw begins: where that is said, or anywhere.
fn seed(said: Option<&str>) -> u64 {
    let anywhere = || RandomState::new().build_hasher().finish() % 1_000_000;
    said.map_or_else(anywhere, |said| said.parse().unwrap_or_else(|_| panic!("{SEED_VARIABLE} is no number: {said}")))
}

/// A moment of the first boot.
fn first_boot(seed: u64) -> Moment {
    Moment::Booting(10 + Draws(seed).below(40))
}

/// Goes one way with a cut at one moment.
fn cut(scenario: &Scenario, upgrade: &Upgrade<'_>, direction: Direction, moment: &Moment) {
    let verb = if direction == Direction::Forward { "apply" } else { "rollback" };
    let mut command = upgrade.begin(&[verb]);
    let mut ended = false;
    let vm = scenario.obtain(&format!("the moment {}", moment.said()), upgrade.patiently(COMING), || {
        ended = command.try_wait()?.is_some();
        if ended { Ok(Some(String::new())) } else { moment.vm(scenario, direction) }
    });
    if !ended {
        scenario.cut(&vm);
        scenario.reached(&format!("{verb}: {vm} is cut off {}", moment.said()));
        if !matches!(moment, Moment::ShuttingDown(_)) {
            scenario.power_on(&[&vm]);
        }
    }
    let output = command.wait_with_output().unwrap_or_else(|error| panic!("waiting for kaas: {error}"));
    let (said, failed) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!ended, "{verb} ended before it was {}: {said}\n{failed}", moment.said());
    let by_itself = direction == Direction::Forward && failed.contains("all nodes run what they ran before");
    assert!(output.status.success() || by_itself, "{said}\n{failed}");
    scenario.reached(if by_itself { "it went back by itself" } else { "it went through" });
    let back = direction == Direction::Back || by_itself;
    assert_eq!(upgrade.is_all_back(), back, "{said}\n{failed}");
}

/// A linear congruential generator (Knuth, MMIX): enough to draw moments with.
struct Draws(u64);

impl Draws {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or_default() % limit
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn lines(seed: u64) -> usize {
        let Moment::Booting(lines) = first_boot(seed) else { panic!("it is no moment of a boot") };
        lines
    }

    #[test]
    fn one_seed_draws_the_same_moments() {
        let drawn: BTreeSet<usize> = (0..2000).map(lines).collect();
        assert_eq!(drawn, (10..50).collect());
        assert_eq!(seed(Some("7")), 7);
        let anywhere: BTreeSet<u64> = (0..20).map(|_| seed(None)).collect();
        assert!(anywhere.len() > 1 && anywhere.iter().all(|seed| *seed < 1_000_000), "{anywhere:?}");
    }
}
