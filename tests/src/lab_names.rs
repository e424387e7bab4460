//! The names of the scenarios' labs: each is one scenario's, and no other clone's on this machine.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, bail};
use lab::{Lab, VCenter, state_directory};

use crate::places::workspace;
use crate::runner;

/// The labs that the scenarios of this process have had, with their scenarios. Two labs with one name would keep their evidence
/// in one place. If they ran at the same time, each would end the other.
static NAMES: Mutex<Names> = Mutex::new(Names(BTreeMap::new()));

/// Labs by their names, each with its scenario and whether it exists now.
struct Names(BTreeMap<&'static str, (String, bool)>);

impl Names {
    /// Takes a name for a scenario.
    ///
    /// # Errors
    /// Another scenario has or had a lab of this name, or this one has it still.
    fn take(&mut self, name: &'static str, scenario: &str) -> anyhow::Result<()> {
        match self.0.get(name) {
            Some((of, _)) if of != scenario => bail!("the lab of {of} is called {name} too"),
            Some((_, true)) => bail!("the scenario has a lab {name} already"),
            _ => drop(self.0.insert(name, (scenario.to_owned(), true))),
        }
        Ok(())
    }

    /// The lab is no more; its name stays the scenario's.
    fn end(&mut self, name: &str) {
        if let Some((_, is_there)) = self.0.get_mut(name) {
            *is_there = false;
        }
    }
}

fn names() -> MutexGuard<'static, Names> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a name for this scenario's lab, and removes what an interrupted run left behind under it. Gives the lab's name.
///
/// # Errors
/// It is or was another one's, or cannot be removed.
pub fn begin(name: &'static str) -> anyhow::Result<String> {
    names().take(name, &runner::story())?;
    let (state, lab) = (state_directory()?, lab_name(name));
    if Lab::exists(&state, &lab)? {
        let left = Lab::open(&state, &lab).context("opening what an interrupted run left behind")?;
        left.remove().context("removing what an interrupted run left behind")?;
    }
    Ok(lab)
}

/// The same for a scenario's vCenter.
///
/// # Errors
/// As [`begin`].
pub fn begin_vcenter(name: &'static str) -> anyhow::Result<String> {
    let vcenter = begin(name)?;
    if let Ok(left) = VCenter::open(&state_directory()?, &vcenter) {
        left.remove().context("removing what an interrupted run left behind")?;
    }
    Ok(vcenter)
}

/// Two clones of this project on one machine do not disturb each other.
fn lab_name(scenario: &str) -> String {
    let place = workspace().canonicalize().unwrap_or_else(|_| workspace());
    let sum =
        place.as_os_str().as_encoded_bytes().iter().fold(5381_u32, |sum, byte| sum.wrapping_mul(33) ^ u32::from(*byte));
    format!("t-{scenario}-{:04x}", sum & 0xffff)
}

/// The lab is no more.
pub fn end(name: &str) {
    names().end(name);
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_labs_name_is_one_scenarios_for_good() {
        let mut names = Names(BTreeMap::new());
        names.take("full", "one").unwrap();
        assert!(names.take("full", "one").unwrap_err().to_string().contains("has a lab full already"));
        names.end("full");
        // A story may take up its lab's name again, another one may not.
        names.take("full", "one").unwrap();
        names.end("full");
        assert_eq!(names.take("full", "two").unwrap_err().to_string(), "the lab of one is called full too");
        names.take("fuller", "two").unwrap();
    }

    /// A lab's name is part of its devices' names, for which the kernel has 15 bytes.
    #[test]
    fn lab_of_each_scenario_has_a_valid_name() {
        let mut seen = BTreeMap::new();
        for entry in fs::read_dir(workspace().join("tests/tests/lab")).unwrap() {
            let text = fs::read_to_string(entry.unwrap().path()).unwrap();
            let clusters =
                ["Setting::one(\"", "Setting::three(\"", "quick(\"", "formed(\"", "by_command(\"", "Site::up(\""];
            for call in clusters.into_iter().chain([".tenant(\"", ".tenant_with(\""]) {
                for (at, _) in text.match_indices(call) {
                    let (name, _) = text[at + call.len()..].split_once('"').unwrap();
                    *seen.entry(name.to_owned()).or_insert(0) += 1;
                }
            }
        }
        assert!(seen.len() > 30, "names are given in another way now: {seen:?}");
        for (name, times) in seen {
            let lab = lab_name(&name);
            assert!(lab.len() <= 15, "{name} is too long: the lab would be called {lab}");
            assert_eq!(times, 1, "two scenarios have a lab {name}");
        }
    }
}
