//! Waits until objects have the wanted state. Reports each change. Independent of the kinds.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::WaitArgs;
use super::api::Rejected;
use crate::output::{Output, PAUSED, STOPPED, say, warn};

/// The progress of a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitResult {
    /// The wanted state is not reached yet.
    Pending,
    /// The wanted state is reached, with a message.
    Ready(String),
    /// The operator must act first, for this reason.
    Stopped(String),
}

pub struct Look {
    /// Lines for the operator, each with its subject. A line is written when it differs from the last one of its subject.
    pub lines: Vec<(String, String)>,
    pub progress: WaitResult,
    /// The objects, for programs.
    pub object: Value,
}

/// The end of a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CommandOutcome {
    Done(String),
    /// The API server has accepted the request, and the command does not wait.
    Accepted(String),
    /// Nothing has changed within the timeout. The last lines.
    Paused(Vec<String>),
    /// The operator must act.
    Stopped(String),
}

/// The output of a command that waits.
#[derive(Serialize, JsonSchema)]
pub struct WaitReport {
    /// `done`, `taken`, `paused` or `stopped`.
    arrived: &'static str,
    /// The last lines of a paused wait, or the reason why the operator must act.
    reasons: Vec<String>,
    /// The objects that the command waits for.
    #[serde(flatten)]
    objects: Map<String, Value>,
}

pub struct Waiter {
    output: Output,
    wait: bool,
    limit: Duration,
    pace: Duration,
}

impl Waiter {
    /// With the options of a command. Looks every two seconds.
    pub fn new(WaitArgs { output, wait, waiting }: &WaitArgs) -> Self {
        Self { output: *output, wait: *wait, limit: waiting.timeout, pace: Duration::from_secs(2) }
    }

    /// Waits, unless the command line excludes it, and reports the result. `accepted` describes the accepted request.
    pub fn run(&self, accepted: &str, mut look: impl FnMut() -> anyhow::Result<Look>) -> anyhow::Result<ExitCode> {
        if !self.wait {
            return self.report((CommandOutcome::Accepted(accepted.to_owned()), look()?.object));
        }
        self.output.tell(accepted);
        self.report(self.until(look)?)
    }

    /// As [`Self::run`], after the deletion of `what`. `look` returns `None` once it is gone.
    pub fn until_gone(
        &self,
        what: &str,
        mut look: impl FnMut() -> anyhow::Result<Option<Look>>,
    ) -> anyhow::Result<ExitCode> {
        let accepted = format!("{what} is being deleted");
        if !self.wait {
            return self.report((CommandOutcome::Accepted(accepted), Value::Null));
        }
        let gone = || {
            let progress = WaitResult::Ready(format!("{what} is gone"));
            Look { lines: Vec::new(), progress, object: Value::Null }
        };
        self.run(&accepted, || Ok(look()?.unwrap_or_else(gone)))
    }

    /// Looks until the wanted state is reached, the operator must act, or nothing has changed within the timeout. Repeats a look without
    /// an answer, and reports it.
    fn until(&self, mut look: impl FnMut() -> anyhow::Result<Look>) -> anyhow::Result<(CommandOutcome, Value)> {
        const UNSEEN: &str = "the API server";
        let (mut told, mut object) = (BTreeMap::<String, String>::new(), Value::Null);
        let mut since = Instant::now();
        loop {
            let look = match look() {
                Err(error) if error.is::<Rejected>() => return Err(error),
                Err(error) => {
                    // The last seen state remains the known one.
                    let unseen = (UNSEEN.to_owned(), format!("waiting: {error:#}"));
                    Look { lines: vec![unseen], progress: WaitResult::Pending, object: object.take() }
                }
                Ok(look) => {
                    told.remove(UNSEEN);
                    look
                }
            };
            object = look.object;
            for (about, line) in look.lines {
                if told.get(&about) != Some(&line) {
                    self.output.tell(&line);
                    // An API server that answers now and then is no change of the objects.
                    if about != UNSEEN {
                        since = Instant::now();
                    }
                    told.insert(about, line);
                }
            }
            match look.progress {
                WaitResult::Ready(words) => return Ok((CommandOutcome::Done(words), object)),
                WaitResult::Stopped(why) => return Ok((CommandOutcome::Stopped(why), object)),
                WaitResult::Pending if since.elapsed() >= self.limit => {
                    let last = told.into_values().collect();
                    return Ok((CommandOutcome::Paused(last), object));
                }
                WaitResult::Pending => std::thread::sleep(self.pace.min(self.limit)),
            }
        }
    }

    /// Reports the end of a wait, and the objects.
    fn report(&self, (arrived, object): (CommandOutcome, Value)) -> anyhow::Result<ExitCode> {
        let (word, exit, reasons) = match &arrived {
            CommandOutcome::Done(_) => ("done", ExitCode::SUCCESS, Vec::new()),
            CommandOutcome::Accepted(_) => ("taken", ExitCode::SUCCESS, Vec::new()),
            CommandOutcome::Paused(last) => ("paused", ExitCode::from(PAUSED), last.clone()),
            CommandOutcome::Stopped(why) => ("stopped", ExitCode::from(STOPPED), vec![why.clone()]),
        };
        let objects = if let Value::Object(objects) = object { objects } else { Map::new() };
        let said = WaitReport { arrived: word, reasons, objects };
        if self.output.value(&said)? {
            return Ok(exit);
        }
        match arrived {
            CommandOutcome::Done(words) | CommandOutcome::Accepted(words) => say(&words),
            CommandOutcome::Stopped(why) => warn(&format!("error: {why}")),
            CommandOutcome::Paused(_) => {
                warn(&format!(
                    "paused: nothing has changed for {}. The request stays. Run the command again to continue to wait{}",
                    humantime::format_duration(self.limit),
                    said.reasons.iter().map(|reason| format!("\n  {reason}")).collect::<String>()
                ));
            }
        }
        Ok(exit)
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;
    use serde_json::json;

    use super::*;

    fn waiter(limit: u64) -> Waiter {
        Waiter { output: Output::Json, wait: true, limit: Duration::from_millis(limit), pace: Duration::ZERO }
    }

    fn look(line: &str, come: WaitResult) -> Look {
        Look { lines: vec![("shop".to_owned(), line.to_owned())], progress: come, object: json!({"line": line}) }
    }

    #[test]
    fn unanswered_look_is_repeated_and_rejected_one_ends() {
        let mut looks = vec![Ok(look("b", WaitResult::Ready("it is".to_owned()))), Err(anyhow!("no route"))];
        let (arrived, object) = waiter(60_000).until(|| looks.pop().unwrap()).unwrap();
        assert_eq!((arrived, object), (CommandOutcome::Done("it is".to_owned()), json!({"line": "b"})));
        let refused = waiter(60_000).until(|| Err(Rejected::because("forbidden".to_owned()).into()));
        assert!(refused.unwrap_err().is::<Rejected>());
    }

    #[test]
    fn flapping_api_server_does_not_prolong_a_wait() {
        let waiter = Waiter { pace: Duration::from_millis(1), ..waiter(5) };
        let mut count = 0;
        let paused = waiter.until(|| {
            count += 1;
            match count {
                1000.. => Ok(look("waits", WaitResult::Ready("it took too long".to_owned()))),
                _ if count % 2 == 0 => Ok(look("waits", WaitResult::Pending)),
                _ => Err(anyhow!("no route, attempt {count}")),
            }
        });
        let (arrived, _) = paused.unwrap();
        assert!(matches!(arrived, CommandOutcome::Paused(_)), "{arrived:?}");
    }

    #[test]
    fn unchanged_state_pauses_with_its_last_lines() {
        let mut count = 0;
        let paused = waiter(0).until(|| {
            count += 1;
            Ok(look("waits", WaitResult::Pending))
        });
        let (arrived, object) = paused.unwrap();
        assert_eq!((arrived, object), (CommandOutcome::Paused(vec!["waits".to_owned()]), json!({"line": "waits"})));
        assert_eq!(count, 1);
        let stopped = waiter(60_000).until(|| Ok(look("a", WaitResult::Stopped("see to it".to_owned())))).unwrap();
        assert_eq!(stopped.0, CommandOutcome::Stopped("see to it".to_owned()));
    }
}
