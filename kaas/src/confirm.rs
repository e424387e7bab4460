//! A question to whoever gave a command. It is waited for within [`LIMIT`], which is said: what it is about was looked at
//! before, and may be something else later.

use std::io::{BufRead, IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, bail};

/// How long an answer is waited for. vCenter ends a session that was not used for half an hour.
const LIMIT: Duration = Duration::from_secs(10 * 60);

/// No answer is longer, in bytes.
const LONGEST: u64 = 4096;

/// Asks on standard error, for standard output may be a script's, and returns the line that was typed, without what is
/// around it. Where standard error is no terminal and standard output is one, as with `2>log`, it is asked there: else nobody would
/// see what is waited for. `instead` says how it is answered without one.
///
/// # Errors
/// When nobody has answered within ten minutes, or there is nobody to ask.
pub fn ask(question: &str, instead: &str) -> anyhow::Result<String> {
    let from = || std::io::stdin().lock();
    match seen_on(std::io::stderr().is_terminal(), std::io::stdout().is_terminal()) {
        Seen::OnStandardError => asked(question, instead, LIMIT, from, &mut std::io::stderr()),
        Seen::OnStandardOutput => asked(question, instead, LIMIT, from, &mut std::io::stdout()),
    }
}

/// Where a person sees a question.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    OnStandardError,
    OnStandardOutput,
}

/// By which of the two are terminals.
fn seen_on(is_error_terminal: bool, is_output_terminal: bool) -> Seen {
    if !is_error_terminal && is_output_terminal { Seen::OnStandardOutput } else { Seen::OnStandardError }
}

/// Confirms that a cluster is meant by its name, which was given, or is asked for.
///
/// # Errors
/// It is another name, or nobody is there to type one: nothing was changed.
pub fn by_name(cluster: &str, given: Option<&str>, ask: impl FnOnce() -> anyhow::Result<String>) -> anyhow::Result<()> {
    let confirmed = given.map_or_else(ask, |given| Ok(given.to_owned()))?;
    if confirmed != cluster {
        bail!("not confirmed: the cluster is {cluster}; nothing was changed");
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
    // Whoever does not answer keeps a thread, which ends with the command.
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = from().take(LONGEST).read_line(&mut line);
        drop(says.send(read.map(|_| line)));
    });
    let line = match said.recv_timeout(limit) {
        Ok(line) => line.context("reading the answer")?,
        Err(RecvTimeoutError::Timeout) => bail!("nobody has answered within {minutes} min; nothing was changed"),
        Err(RecvTimeoutError::Disconnected) => bail!("the answer cannot be read; nothing was changed"),
    };
    if line.is_empty() {
        bail!("there is nobody to ask: {instead}; nothing was changed");
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
    fn a_line_is_the_answer_and_no_line_says_how_it_is_given_otherwise() {
        assert_eq!(answer(" yes \n").unwrap(), "yes");
        assert_eq!(answer("\n").unwrap(), "");
        let told = answer("").unwrap_err().to_string();
        assert_eq!(told, "there is nobody to ask: give --yes; nothing was changed");
    }

    #[test]
    fn a_question_is_asked_where_a_person_sees_it() {
        assert_eq!(seen_on(true, true), Seen::OnStandardError);
        assert_eq!(seen_on(true, false), Seen::OnStandardError);
        assert_eq!(seen_on(false, false), Seen::OnStandardError);
        assert_eq!(seen_on(false, true), Seen::OnStandardOutput);
    }

    #[test]
    fn who_does_not_answer_is_not_waited_for_for_ever() {
        let (silent, _keeps_it_open) = std::io::pipe().unwrap();
        let mut shown = Vec::new();
        let limit = Duration::from_millis(10);
        let told = asked("Sure?", "give --yes", limit, move || BufReader::new(silent), &mut shown).unwrap_err();
        assert_eq!(told.to_string(), "nobody has answered within 1 min; nothing was changed");
        assert_eq!(String::from_utf8(shown).unwrap(), "Sure? (within 1 min): ");
    }

    /// Whether this process only asks, for the one that has started it.
    const ASKS: &str = "KAAS_TEST_ASKS";

    #[test]
    fn a_question_is_no_part_of_what_a_script_reads() {
        if std::env::var_os(ASKS).is_some() {
            ask("Sure?", "give --yes").unwrap_err();
            return;
        }
        let name = "confirm::tests::a_question_is_no_part_of_what_a_script_reads";
        let mut asks = Command::new(std::env::current_exe().unwrap());
        asks.args(["--exact", name, "--nocapture"]).env(ASKS, "1").stdin(Stdio::null());
        let said = asks.output().unwrap();
        let [to_read, to_people] = [said.stdout, said.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(said.status.success() && to_read.contains("1 passed"), "{to_read}{to_people}");
        assert!(to_people.contains("Sure? (within 10 min): ") && !to_read.contains("Sure?"), "{to_read}");
    }
}
