//! Cuts of a guest's power during an upgrade, at moments drawn from a seed: every run cuts at the same ones. As a
//! cluster's host would, whoever cuts powers a new VM on again.

use std::time::Duration;

use crate::scenario::Scenario;
use crate::upgrade::Upgrade;

/// Where the draws begin.
const SEED: u64 = 5;
/// How long it may take until a moment comes, before patience.
const COMING: Duration = Duration::from_secs(400);

/// A kind of moment.
enum Moment {
    /// The old VM is drained.
    Draining,
    /// The old VM shuts down: so many lines of its console after the first unit stopped.
    ShuttingDown(usize),
    /// The new VM's console has so many lines.
    Booting(usize),
    /// The new VM's agent has begun this, and so many lines have followed.
    After(&'static str, usize),
}

impl Moment {
    fn is_there(&self, scenario: &Scenario, vm: &str) -> anyhow::Result<bool> {
        let console = || scenario.lab().console_text(vm);
        let lines = |text: &str| text.matches('\n').count();
        Ok(match self {
            Self::Draining => {
                let cordoned = ["get", "nodes", "--output=jsonpath={.items[*].spec.unschedulable}"];
                scenario.lab().kubectl(&cordoned)?.contains("true")
            }
            Self::ShuttingDown(further) => {
                let console = console()?;
                let since_ready = console.rsplit_once("kaas: ready").map_or("", |(_, rest)| rest);
                since_ready.split_once("Stopped ").is_some_and(|(_, rest)| lines(rest) >= *further)
            }
            Self::Booting(least) => lines(&console()?) >= *least,
            Self::After(mark, further) => console()?.split_once(mark).is_some_and(|(_, rest)| lines(rest) >= *further),
        })
    }

    fn is_of_old_vm(&self) -> bool {
        matches!(self, Self::Draining | Self::ShuttingDown(_))
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

/// Upgrades the cluster once for each of six moments and cuts the power of the VM that is being swapped then. Each
/// upgrade must end on one of the two images, healthy; one that went through is taken back for the next.
///
/// # Panics
/// One does not.
pub fn each_comes_to_an_end(scenario: &Scenario) {
    let mut draws = Draws(SEED);
    let moments = [
        Moment::Draining,
        Moment::ShuttingDown(draws.below(6)),
        Moment::Booting(10 + draws.below(40)),
        Moment::After("kaas: ", draws.below(3)),
        Moment::After("kaas: starting etcd", draws.below(4)),
        Moment::After("kaas: ready", 0),
    ];
    let upgrade = Upgrade::of(scenario);
    let before = upgrade.kept();
    for moment in moments {
        let mut apply = upgrade.begin(&["apply"]);
        let mut ended = false;
        let vm = scenario.obtain(&format!("the moment {}", moment.said()), upgrade.patiently(COMING), || {
            ended = apply.try_wait()?.is_some();
            Ok(match swapped(scenario, &moment)? {
                _ if ended => Some(String::new()),
                Some(vm) if moment.is_there(scenario, &vm)? => Some(vm),
                _ => None,
            })
        });
        if ended {
            let output = apply.wait_with_output().unwrap_or_else(|error| panic!("waiting for kaas: {error}"));
            panic!("it ended before it was {}: {output:?}", moment.said());
        }
        scenario.cut(&vm);
        scenario.reached(&format!("{vm} is cut off {}", moment.said()));
        if !matches!(moment, Moment::ShuttingDown(_)) {
            scenario.power_on(&[&vm]);
        }
        let output = apply.wait_with_output().unwrap_or_else(|error| panic!("waiting for kaas: {error}"));
        let failed = String::from_utf8_lossy(&output.stderr).into_owned();
        let back = failed.contains("all nodes run what they ran before");
        assert!(output.status.success() || back, "{}\n{failed}", String::from_utf8_lossy(&output.stdout));
        scenario.reached(if back { "it went back by itself" } else { "it went through" });
        assert_eq!(upgrade.kept(), before);
        if !back {
            upgrade.run(&["rollback"]);
        }
        assert!(upgrade.is_all_back());
        upgrade.all_good();
        assert_eq!(upgrade.kept(), before);
    }
}

/// The VM that is to be cut: the old one of the node that is swapped first, or the first new one.
fn swapped(scenario: &Scenario, moment: &Moment) -> anyhow::Result<Option<String>> {
    let lab = scenario.lab();
    let vms = lab.vms()?;
    let new = vms.iter().find(|vm| !lab.plan().nodes.iter().any(|node| node.name == **vm));
    Ok(match new {
        Some(new) if moment.is_of_old_vm() => new.rsplit_once('-').map(|(node, _)| node.to_owned()),
        new => new.cloned(),
    })
}

/// A linear congruential generator (Knuth, MMIX): enough to draw moments with.
struct Draws(u64);

impl Draws {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or_default() % limit
    }
}
