//! What the command writes. What only accompanies work is written if it can be: a full disk, a closed pipe or a terminal
//! that is gone ends no work, least of all one that has a node away. What a script reads is written, or the command
//! fails. Names of VMs, pods and products come from others: nothing of them moves, colours or hides what a terminal shows.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::ValueEnum;
use fleet::nodes::is_plain;
use log::{Level, LevelFilter, Log, Metadata, Record};
use serde::Serialize;

/// Says how far something is, or what has come of it, on standard output: as `println!`, if it can be written.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::say(&format!($($text)*)) };
}

/// What a command prints.
#[derive(Clone, Copy, ValueEnum)]
pub enum Output {
    /// Lines for people.
    Text,
    /// One JSON object.
    Json,
}

impl Output {
    /// Says how far something is: beside a JSON object, not in it.
    pub fn tell(self, what: &str) {
        match self {
            Self::Text => say(what),
            Self::Json => warn(what),
        }
    }
}

/// Says how far something is, on standard output.
pub fn say(text: &str) {
    accompany(&mut io::stdout().lock(), text);
}

/// Says what is wrong, or where something has come to otherwise than was wanted, on standard error.
pub fn warn(text: &str) {
    accompany(&mut io::stderr().lock(), text);
}

/// Exit status of a command that is not at its end: the same command goes on.
pub const PAUSED: u8 = 3;
/// Exit status of a command that ended otherwise than was asked for.
pub const STOPPED: u8 = 4;

/// Says where a run has come to, and gives its exit status.
pub fn ended(exit: u8, text: &str) -> ExitCode {
    match exit {
        0 => say(text),
        PAUSED => warn(text),
        _ => warn(&format!("error: {text}")),
    }
    ExitCode::from(exit)
}

/// Writes what was asked for, on standard output.
///
/// # Errors
/// When not all of it could be written.
pub fn result(text: &str) -> anyhow::Result<()> {
    hand_over(&mut io::stdout().lock(), &plain(text))
}

/// Writes what a script asked for, on standard output.
///
/// # Errors
/// When not all of it could be written.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    hand_over(&mut io::stdout().lock(), &serde_json::to_string_pretty(value)?)
}

/// Lines, if they can be written.
fn accompany(to: &mut impl Write, text: &str) {
    let _ = writeln!(to, "{}", plain(text)).and_then(|()| to.flush());
}

/// A text of lines without what does more than stand there.
fn plain(text: &str) -> String {
    let plain = |c| if is_plain(c) || matches!(c, '\n' | '\t') { c } else { ' ' };
    text.trim_end_matches('\n').chars().map(plain).collect()
}

fn hand_over(to: &mut impl Write, text: &str) -> anyhow::Result<()> {
    let written = writeln!(to, "{}", text.trim_end_matches('\n')).and_then(|()| to.flush());
    written.context("writing the result")
}

/// Shows what the crates log.
struct Logger;

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Other people's crates log for those who develop with them.
        let room = metadata.target().split("::").next().unwrap_or_default();
        ["fleet", "image", "kaas", "lab", "ova", "vsphere"].contains(&room)
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            match record.level() {
                Level::Error | Level::Warn => warn(&format!("warning: {}", record.args())),
                _ => warn(&record.args().to_string()),
            }
        }
    }

    fn flush(&self) {}
}

/// From now on, what is logged is shown on standard error; with `verbose`, what only those want who look for a fault, too.
pub fn show_log(verbose: bool) {
    static LOGGER: Logger = Logger;
    if log::set_logger(&LOGGER).is_ok() {
        log::set_max_level(if verbose { LevelFilter::Debug } else { LevelFilter::Info });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that is full, or a pipe that nobody reads.
    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }

    #[test]
    fn progress_that_cannot_be_written_ends_nothing_and_a_result_that_cannot_be_is_an_error() {
        accompany(&mut Full, "1/9 verify the OVA");
        assert_eq!(hand_over(&mut Full, "{}").unwrap_err().to_string(), "writing the result");
        let mut text = Vec::new();
        accompany(&mut text, "a step");
        hand_over(&mut text, "a plan\n").unwrap();
        assert_eq!(text, b"a step\na plan\n");
    }

    #[test]
    fn what_our_own_crates_log_is_shown_and_nothing_of_others() {
        let shown = |target| Logger.enabled(&Metadata::builder().level(Level::Warn).target(target).build());
        for own in ["vsphere::import::lease", "vsphere", "fleet::vcenter::power", "image", "kaas::deploy", "lab", "ova"]
        {
            assert!(shown(own), "{own}");
        }
        for others in ["vsphere_api", "hyper::client", "rustls", ""] {
            assert!(!shown(others), "{others}");
        }
    }

    #[test]
    fn a_name_from_somebody_else_does_nothing_to_the_terminal() {
        let mut text = Vec::new();
        accompany(&mut text, "error: the VM web\u{1b}[2J\u{9b}8m\r\u{202e} is a copy\n  of two\n");
        assert_eq!(String::from_utf8(text).unwrap(), "error: the VM web [2J 8m   is a copy\n  of two\n");
    }
}
