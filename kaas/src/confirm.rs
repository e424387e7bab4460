//! Asks the operator a question. The question states the limit for the answer, [`LIMIT`]: the state that the operator confirms
//! was read before and may change.

use std::io::{BufRead, IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, bail};

use crate::output::Output;

/// How long to wait for an answer. vCenter ends a session that is idle for half an hour.
const LIMIT: Duration = Duration::from_secs(10 * 60);

/// The longest answer, in bytes.
const LONGEST: u64 = 4096;

/// Asks on standard error, because a script may read standard output. Returns the typed line without surrounding
/// spaces. If only standard output is a terminal, as with `2>log`, the question goes there, so that the operator sees
/// it. `instead` says which option replaces the answer. Fails after [`LIMIT`], or if standard input is closed.
pub fn ask(question: &str, instead: &str) -> anyhow::Result<String> {
    let from = || std::io::stdin().lock();
    match seen_on(std::io::stderr().is_terminal(), std::io::stdout().is_terminal()) {
        Seen::OnStandardError => asked(question, instead, LIMIT, from, &mut std::io::stderr()),
        Seen::OnStandardOutput => asked(question, instead, LIMIT, from, &mut std::io::stdout()),
    }
}

/// As [`ask`], for a removal that cannot be undone. Only a terminal may answer: a script confirms with the option.
pub fn ask_terminal(question: &str, instead: &str) -> anyhow::Result<String> {
    require_terminal(std::io::stdin().is_terminal(), instead)?;
    ask(question, instead)
}

fn require_terminal(is_terminal: bool, instead: &str) -> anyhow::Result<()> {
    if !is_terminal {
        bail!("not confirmed: standard input is not a terminal; nothing was changed\nhelp: {instead}");
    }
    Ok(())
}

/// The stream on which the operator sees a question.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    OnStandardError,
    OnStandardOutput,
}

fn seen_on(is_error_terminal: bool, is_output_terminal: bool) -> Seen {
    if !is_error_terminal && is_output_terminal { Seen::OnStandardOutput } else { Seen::OnStandardError }
}

/// Confirms a cluster, or something else of this kind, by its name. Asks for the name if it was not given. Fails if it is
/// another one.
pub fn by_name(
    kind: &str,
    name: &str,
    given: Option<&str>,
    ask: impl FnOnce() -> anyhow::Result<String>,
) -> anyhow::Result<()> {
    let confirmed = given.map_or_else(ask, |given| Ok(given.to_owned()))?;
    if confirmed != name {
        bail!("not confirmed: the {kind} is {name}; nothing was changed");
    }
    Ok(())
}

/// As [`by_name`], with a text on what is deleted or replaced, and where. It precedes the question. With a given name, it is
/// progress.
pub fn announced(kind: &str, name: &str, given: Option<&str>, going: &str, output: Output) -> anyhow::Result<()> {
    let question = || format!("{going}\nType the {kind}'s name to confirm it");
    by_name(kind, name, given, || ask(&question(), &format!("give the {kind}'s name with --confirm")))?;
    if given.is_some() {
        output.tell(going);
    }
    Ok(())
}

fn asked<From: BufRead>(
    question: &str,
    instead: &str,
    limit: Duration,
    from: impl FnOnce() -> From + Send + 'static,
    to: &mut impl Write,
) -> anyhow::Result<String> {
    let minutes = limit.as_secs().div_ceil(60).max(1);
    write!(to, "{question} (within {minutes} min): ").context("asking")?;
    to.flush().context("asking")?;
    let (says, said) = channel();
    // Without an answer, this thread stays until the command ends.
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = from().take(LONGEST).read_line(&mut line);
        drop(says.send(read.map(|_| line)));
    });
    let line = match said.recv_timeout(limit) {
        Ok(line) => line.context("reading the answer")?,
        Err(RecvTimeoutError::Timeout) => bail!("no answer within {minutes} min; nothing was changed"),
        Err(RecvTimeoutError::Disconnected) => bail!("the answer cannot be read; nothing was changed"),
    };
    if line.is_empty() {
        bail!("standard input is closed: {instead}; nothing was changed");
    }
    Ok(line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;
    use std::process::{Command, Stdio};

    use super::*;

    fn answer(text: &'static str) -> anyhow::Result<String> {
        asked("Sure?", "give --yes", Duration::from_secs(60), move || text.as_bytes(), &mut Vec::new())
    }

    #[test]
    fn missing_answer_names_the_option_to_give() {
        assert_eq!(answer(" yes \n").unwrap(), "yes");
        assert_eq!(answer("\n").unwrap(), "");
        let told = answer("").unwrap_err().to_string();
        assert_eq!(told, "standard input is closed: give --yes; nothing was changed");
    }

    #[test]
    fn removal_without_a_terminal_names_the_option() {
        let told = require_terminal(false, "give the lab's name with --confirm").unwrap_err().to_string();
        assert!(
            told.contains("not a terminal") && told.ends_with("help: give the lab's name with --confirm"),
            "{told}"
        );
        require_terminal(true, "").unwrap();
    }

    #[test]
    fn question_goes_to_the_stream_with_a_terminal() {
        assert_eq!(seen_on(true, true), Seen::OnStandardError);
        assert_eq!(seen_on(true, false), Seen::OnStandardError);
        assert_eq!(seen_on(false, false), Seen::OnStandardError);
        assert_eq!(seen_on(false, true), Seen::OnStandardOutput);
    }

    #[test]
    fn question_without_an_answer_times_out() {
        let (silent, _keeps_it_open) = std::io::pipe().unwrap();
        let mut shown = Vec::new();
        let limit = Duration::from_millis(10);
        let told = asked("Sure?", "give --yes", limit, move || BufReader::new(silent), &mut shown).unwrap_err();
        assert_eq!(told.to_string(), "no answer within 1 min; nothing was changed");
        assert_eq!(String::from_utf8(shown).unwrap(), "Sure? (within 1 min): ");
    }

    /// Set in the child process that only asks.
    const ASKS: &str = "KAAS_TEST_ASKS";

    #[test]
    fn question_is_not_on_standard_output() {
        if std::env::var_os(ASKS).is_some() {
            ask("Sure?", "give --yes").unwrap_err();
            return;
        }
        let name = "confirm::tests::question_is_not_on_standard_output";
        let mut asks = Command::new(std::env::current_exe().unwrap());
        asks.args(["--exact", name, "--nocapture"]).env(ASKS, "1").stdin(Stdio::null());
        let said = asks.output().unwrap();
        let [to_read, to_people] = [said.stdout, said.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(said.status.success() && to_read.contains("1 passed"), "{to_read}{to_people}");
        assert!(to_people.contains("Sure? (within 10 min): ") && !to_read.contains("Sure?"), "{to_read}");
    }
}
