//! Runs the scenarios of a list: in its order, some side by side, and says at the end how long each took.
//! Knows nothing of what they do.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};

/// How many scenarios must be run, where the caller knows it: a run of fewer, or of more, has failed.
const EXPECTED: &str = "KAAS_SCENARIOS";

/// Held by a run as long as it lasts. Labs are named by scenarios: another run would take this one's for what an
/// interrupted one has left, and end them.
const LOCK: &str = "/run/kaas-scenarios.lock";

/// A scenario by its name, `module::short::what_it_shows` or `module::long::…`.
pub struct Entry {
    /// The name; part of it is enough to choose the scenario.
    pub name: &'static str,
    /// The story. It panics when something is not as it should be.
    pub run: fn(),
}

thread_local! {
    /// The scenario that this thread runs.
    static STORY: Cell<&'static str> = const { Cell::new("") };
}

/// The scenario that this thread runs; none in other programs than the scenarios'.
pub fn story() -> String {
    STORY.with(Cell::get).to_owned()
}

type Times = Arc<Mutex<Vec<ScenarioTime>>>;

/// How a scenario went.
#[derive(Clone, Debug)]
struct ScenarioTime {
    name: &'static str,
    time: Duration,
    failed: bool,
}

/// Runs those that the command line chooses, as `cargo test` does; one at a time unless `--test-threads` says more.
#[must_use]
pub fn run(scenarios: &[Entry]) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(1));
    let chosen = scenarios.iter().filter(|entry| is_chosen(&arguments, entry.name)).count();
    if let Err(why) = check(scenarios, chosen, std::env::var(EXPECTED).ok().as_deref()) {
        eprintln!("error: {why}");
        return ExitCode::FAILURE;
    }
    let alone = if arguments.list { Ok(None) } else { alone().map(Some) };
    let _alone = match alone {
        Ok(lock) => lock,
        Err(why) => {
            eprintln!("error: {why}");
            return ExitCode::FAILURE;
        }
    };
    let (times, started) = (Times::default(), Instant::now());
    let trials = scenarios.iter().map(|entry| trial(entry, &times)).collect();
    let lanes = arguments.test_threads.unwrap_or(1);
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        let times = times.lock().unwrap_or_else(|broken| broken.into_inner());
        println!("{}", table(&times, started.elapsed(), lanes));
    }
    conclusion.exit_code()
}

fn trial(entry: &Entry, times: &Times) -> Trial {
    let (name, run, times) = (entry.name, entry.run, Arc::clone(times));
    Trial::test(name, move || {
        STORY.with(|story| story.set(name));
        let noted = TimeRecorder { name, started: Instant::now(), times };
        run();
        drop(noted);
        Ok(())
    })
}

/// Notes how long a scenario took when it ends, well or not.
struct TimeRecorder {
    name: &'static str,
    started: Instant,
    times: Times,
}

impl Drop for TimeRecorder {
    fn drop(&mut self) {
        let took = ScenarioTime { name: self.name, time: self.started.elapsed(), failed: std::thread::panicking() };
        self.times.lock().unwrap_or_else(|broken| broken.into_inner()).push(took);
    }
}

/// As libtest does it: by a part of the name, or by all of it with `--exact`.
fn is_chosen(arguments: &Arguments, name: &str) -> bool {
    let matches = |pattern: &String| if arguments.exact { name == pattern } else { name.contains(pattern.as_str()) };
    arguments.filter.as_ref().is_none_or(matches) && !arguments.skip.iter().any(matches)
}

/// Whether the list and the choice can be what was meant.
fn check(scenarios: &[Entry], chosen: usize, expected: Option<&str>) -> Result<(), String> {
    let mut names = BTreeSet::new();
    if let Some(twice) = scenarios.iter().find(|entry| !names.insert(entry.name)) {
        return Err(format!("the scenario {} is listed twice", twice.name));
    }
    if chosen == 0 {
        return Err("no scenario has a name like that; --list shows all".to_owned());
    }
    match expected.map(str::parse::<usize>) {
        None => Ok(()),
        Some(Ok(expected)) if expected == chosen => Ok(()),
        Some(Ok(expected)) => Err(format!(
            "{chosen} scenarios would be run, not {expected}: if that is right, the Makefile's number is not"
        )),
        Some(Err(_)) => Err(format!("{EXPECTED} is no number")),
    }
}

/// Makes this the only run of scenarios on this machine, while the returned file is open.
///
/// # Errors
/// When there is another one.
pub fn alone() -> Result<File, String> {
    alone_by(Path::new(LOCK))
}

fn alone_by(lock: &Path) -> Result<File, String> {
    // Each user who can open the file can hold the lock.
    let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(lock);
    let file = file.map_err(|error| format!("opening {}: {error}", lock.display()))?;
    file.try_lock().map_err(|error| match io::Error::from(error) {
        error if error.kind() == io::ErrorKind::WouldBlock => {
            "scenarios are being run on this machine already: wait until they have ended".to_owned()
        }
        error => format!("locking {}: {error}", lock.display()),
    })?;
    Ok(file)
}

fn table(times: &[ScenarioTime], whole: Duration, lanes: usize) -> String {
    let minutes = |time: Duration| time.as_secs_f64() / 60.0;
    let mut sorted = times.to_vec();
    sorted.sort_by_key(|took| std::cmp::Reverse(took.time));
    let row = |took: &ScenarioTime| {
        let failed = if took.failed { "  FAILED" } else { "" };
        format!("{:>6.1} min  {}{failed}\n", minutes(took.time), took.name)
    };
    let rows: String = sorted.iter().map(row).collect();
    format!("{rows}{:>6.1} min  all scenarios, {lanes} at a time", minutes(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &[&'static str]) -> Vec<Entry> {
        names.iter().map(|name| Entry { name, run: || () }).collect()
    }

    #[test]
    fn empty_choice_and_unexpected_number_are_refused() {
        let scenarios = list(&["a::short::x", "a::long::y"]);
        check(&scenarios, 2, None).unwrap();
        check(&scenarios, 2, Some("2")).unwrap();
        assert!(check(&scenarios, 0, None).unwrap_err().contains("no scenario"));
        assert!(check(&[], 0, Some("0")).unwrap_err().contains("no scenario"));
        assert!(check(&scenarios, 1, Some("2")).unwrap_err().contains("1 scenarios would be run, not 2"));
        assert!(check(&scenarios, 1, Some("many")).unwrap_err().contains("no number"));
        assert!(check(&list(&["a", "a"]), 2, None).unwrap_err().contains("twice"));
    }

    #[test]
    fn second_run_is_refused_during_the_first() {
        let directory = tempfile::tempdir().unwrap();
        let lock = directory.path().join("lock");
        let first = alone_by(&lock).unwrap();
        assert!(alone_by(&lock).unwrap_err().contains("being run on this machine already"));
        drop(first);
        alone_by(&lock).unwrap();
    }

    #[test]
    fn part_of_a_name_chooses_a_scenario() {
        let arguments = |given: &[&str]| Arguments::from_iter(["lab"].iter().chain(given));
        for (given, chosen) in [(&["short"][..], true), (&["long"], false), (&[], true), (&["--skip", "a::"], false)] {
            assert_eq!(is_chosen(&arguments(given), "a::short::x"), chosen, "{given:?}");
        }
        assert!(!is_chosen(&arguments(&["--exact", "short"]), "a::short::x"));
    }

    #[test]
    fn table_begins_with_the_slowest_and_marks_failures() {
        let took = |name, seconds, failed| ScenarioTime { name, time: Duration::from_secs(seconds), failed };
        let text = table(&[took("quick", 30, true), took("slow", 90, false)], Duration::from_secs(90), 2);
        assert_eq!(text, "   1.5 min  slow\n   0.5 min  quick  FAILED\n   1.5 min  all scenarios, 2 at a time");
    }

    #[test]
    fn a_scenario_that_panics_is_timed_too() {
        let times = Times::default();
        let noted = TimeRecorder { name: "a", started: Instant::now(), times: Arc::clone(&times) };
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _noted = noted;
            panic!("as it should not be");
        }));
        assert!(matches!(times.lock().unwrap()[..], [ScenarioTime { name: "a", failed: true, .. }]));
    }
}
