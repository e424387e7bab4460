//! Waiting until objects are as they are to be: looked at again and again, and what has changed is told. Knows nothing of what
//! is waited for.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::api::Rejected;
use crate::output::{Output, PAUSED, STOPPED, say, warn};
use crate::work::TimeoutArgs;

/// How far something is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitResult {
    /// It is not at its end.
    Pending,
    /// It is as it is to be, with words on it for people.
    Ready(String),
    /// A person has to see to something first, or it stays as it is; why.
    Stopped(String),
}

pub struct Look {
    /// Lines for people, each under the name of what it is about: it is told when it is another one.
    pub lines: Vec<(String, String)>,
    pub progress: WaitResult,
    /// What there is, for programs: objects by what they are.
    pub object: Value,
}

/// Where waiting has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandOutcome {
    Done(String),
    /// The API server has taken what is wanted, and nobody waits for it.
    Accepted(String),
    /// Nothing has changed for as long as was to be waited; the last that was seen.
    Paused(Vec<String>),
    /// A person has to see to something.
    Stopped(String),
}

pub struct Waiter {
    output: Output,
    limit: Duration,
    pace: Duration,
}

impl Waiter {
    /// As a command is told. What is waited for is looked at every other second.
    pub fn new(output: Output, waiting: &TimeoutArgs) -> Self {
        Self { output, limit: waiting.timeout, pace: Duration::from_secs(2) }
    }

    /// Looks until it is so, a person has to see to something, or nothing has changed for as long as is waited. A look that has
    /// no answer is told and taken again.
    pub fn until(&self, mut look: impl FnMut() -> anyhow::Result<Look>) -> anyhow::Result<(CommandOutcome, Value)> {
        const UNSEEN: &str = "the API server";
        let (mut told, mut object) = (BTreeMap::<String, String>::new(), Value::Null);
        let mut since = Instant::now();
        loop {
            let look = match look() {
                Err(error) if error.is::<Rejected>() => return Err(error),
                Err(error) => {
                    // Not for certain that it is worse than it was: what was seen stays what is known.
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
                    told.insert(about, line);
                    since = Instant::now();
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

    /// Says where a command has come to, and what there is.
    pub fn report(&self, (arrived, mut object): (CommandOutcome, Value)) -> anyhow::Result<ExitCode> {
        let (word, exit) = match &arrived {
            CommandOutcome::Done(_) => ("done", ExitCode::SUCCESS),
            CommandOutcome::Accepted(_) => ("taken", ExitCode::SUCCESS),
            CommandOutcome::Paused(_) => ("paused", ExitCode::from(PAUSED)),
            CommandOutcome::Stopped(_) => ("stopped", ExitCode::from(STOPPED)),
        };
        let reasons = match &arrived {
            CommandOutcome::Done(_) | CommandOutcome::Accepted(_) => Vec::new(),
            CommandOutcome::Paused(last) => last.clone(),
            CommandOutcome::Stopped(why) => vec![why.clone()],
        };
        let mut said = json!({"arrived": word, "reasons": reasons});
        if let (Value::Object(said), Value::Object(objects)) = (&mut said, object.take()) {
            said.extend(objects);
        }
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
                    reasons.iter().map(|reason| format!("\n  {reason}")).collect::<String>()
                ));
            }
        }
        Ok(exit)
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    fn waiter(limit: u64) -> Waiter {
        Waiter { output: Output::Json, limit: Duration::from_millis(limit), pace: Duration::ZERO }
    }

    fn look(line: &str, come: WaitResult) -> Look {
        Look { lines: vec![("shop".to_owned(), line.to_owned())], progress: come, object: json!({"line": line}) }
    }

    #[test]
    fn a_look_without_an_answer_is_taken_again_and_one_that_is_refused_ends_it() {
        let mut looks = vec![Ok(look("b", WaitResult::Ready("it is".to_owned()))), Err(anyhow!("no route"))];
        let (arrived, object) = waiter(60_000).until(|| looks.pop().unwrap()).unwrap();
        assert_eq!((arrived, object), (CommandOutcome::Done("it is".to_owned()), json!({"line": "b"})));
        let refused = waiter(60_000).until(|| Err(Rejected::because("forbidden".to_owned()).into()));
        assert!(refused.unwrap_err().is::<Rejected>());
    }

    #[test]
    fn it_pauses_where_nothing_changes_and_keeps_what_was_seen_last() {
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
