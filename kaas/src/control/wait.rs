//! Waiting until objects are as they are to be: looked at again and again, and what has changed is told. Knows nothing of what
//! is waited for.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::api::Refused;
use crate::output::{Output, PAUSED, STOPPED, json, say, warn};
use crate::work::Waiting;

/// How far something is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Come {
    /// It is not at its end.
    Goes,
    /// It is as it is to be, with words on it for people.
    There(String),
    /// A person has to see to something first, or it stays as it is; why.
    Stopped(String),
}

pub struct Look {
    /// Lines for people, each under the name of what it is about: it is told when it is another one.
    pub lines: Vec<(String, String)>,
    pub come: Come,
    /// What there is, for programs: objects by what they are.
    pub object: Value,
}

/// Where waiting has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrived {
    Done(String),
    /// The API server has taken what is wanted, and nobody waits for it.
    Taken(String),
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
    pub fn new(output: Output, waiting: &Waiting) -> Self {
        Self { output, limit: Duration::from_secs(waiting.pause_limit), pace: Duration::from_secs(2) }
    }

    /// Looks until it is so, a person has to see to something, or nothing has changed for as long as is waited. A look that has
    /// no answer is told and taken again.
    pub fn until(&self, mut look: impl FnMut() -> anyhow::Result<Look>) -> anyhow::Result<(Arrived, Value)> {
        const UNSEEN: &str = "the API server";
        let (mut told, mut object) = (BTreeMap::<String, String>::new(), Value::Null);
        let mut since = Instant::now();
        loop {
            let look = match look() {
                Err(error) if error.is::<Refused>() => return Err(error),
                Err(error) => {
                    // Not for certain that it is worse than it was: what was seen stays what is known.
                    let unseen = (UNSEEN.to_owned(), format!("waiting: {error:#}"));
                    Look { lines: vec![unseen], come: Come::Goes, object: object.take() }
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
            match look.come {
                Come::There(words) => return Ok((Arrived::Done(words), object)),
                Come::Stopped(why) => return Ok((Arrived::Stopped(why), object)),
                Come::Goes if since.elapsed() >= self.limit => {
                    let last = told.into_values().collect();
                    return Ok((Arrived::Paused(last), object));
                }
                Come::Goes => std::thread::sleep(self.pace.min(self.limit)),
            }
        }
    }

    /// Says where a command has come to, and what there is.
    pub fn arrived(&self, (arrived, mut object): (Arrived, Value)) -> anyhow::Result<ExitCode> {
        let (word, exit) = match &arrived {
            Arrived::Done(_) => ("done", ExitCode::SUCCESS),
            Arrived::Taken(_) => ("taken", ExitCode::SUCCESS),
            Arrived::Paused(_) => ("paused", ExitCode::from(PAUSED)),
            Arrived::Stopped(_) => ("stopped", ExitCode::from(STOPPED)),
        };
        let reasons = match &arrived {
            Arrived::Done(_) | Arrived::Taken(_) => Vec::new(),
            Arrived::Paused(last) => last.clone(),
            Arrived::Stopped(why) => vec![why.clone()],
        };
        if let Output::Json = self.output {
            let mut said = json!({"arrived": word, "reasons": reasons});
            if let (Value::Object(said), Value::Object(objects)) = (&mut said, object.take()) {
                said.extend(objects);
            }
            json(&said)?;
            return Ok(exit);
        }
        match arrived {
            Arrived::Done(words) | Arrived::Taken(words) => say(&words),
            Arrived::Stopped(why) => warn(&format!("error: {why}")),
            Arrived::Paused(_) => {
                let seconds = self.limit.as_secs();
                warn(&format!(
                    "paused: nothing has changed for {seconds} s. What was asked for stands, and whoever gives the command again waits \
                     on{}",
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

    fn look(line: &str, come: Come) -> Look {
        Look { lines: vec![("shop".to_owned(), line.to_owned())], come, object: json!({"line": line}) }
    }

    #[test]
    fn a_look_without_an_answer_is_taken_again_and_one_that_is_refused_ends_it() {
        let mut looks = vec![Ok(look("b", Come::There("it is".to_owned()))), Err(anyhow!("no route"))];
        let (arrived, object) = waiter(60_000).until(|| looks.pop().unwrap()).unwrap();
        assert_eq!((arrived, object), (Arrived::Done("it is".to_owned()), json!({"line": "b"})));
        let refused = waiter(60_000).until(|| Err(Refused::because("forbidden".to_owned()).into()));
        assert!(refused.unwrap_err().is::<Refused>());
    }

    #[test]
    fn it_pauses_where_nothing_changes_and_keeps_what_was_seen_last() {
        let mut count = 0;
        let paused = waiter(0).until(|| {
            count += 1;
            Ok(look("waits", Come::Goes))
        });
        let (arrived, object) = paused.unwrap();
        assert_eq!((arrived, object), (Arrived::Paused(vec!["waits".to_owned()]), json!({"line": "waits"})));
        assert_eq!(count, 1);
        let stopped = waiter(60_000).until(|| Ok(look("a", Come::Stopped("see to it".to_owned())))).unwrap();
        assert_eq!(stopped.0, Arrived::Stopped("see to it".to_owned()));
    }
}
