//! Runs the host's programs. Everything that runs one takes a [`Runner`], so
//! that a test can stand in for the host.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::panic::resume_unwind;
use std::process::{self, Stdio};

/// How much of a failing program's output its error carries, in bytes.
const TAIL: usize = 2000;

/// A program, its arguments and what it is given on standard input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    program: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    input: Option<Vec<u8>>,
}

impl Command {
    /// A program without arguments.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self { program: program.into(), arguments: Vec::new(), environment: Vec::new(), input: None }
    }

    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    pub fn args<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// What the program reads on standard input: the way to hand over secrets.
    pub fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = Some(input.into());
        self
    }
}

#[cfg(test)]
impl Command {
    pub(crate) fn given(&self) -> &[u8] {
        self.input.as_deref().unwrap_or_default()
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.program.to_string_lossy())?;
        for argument in &self.arguments {
            write!(f, " {}", argument.to_string_lossy())?;
        }
        Ok(())
    }
}

/// Why a program did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be started, or its pipes broke.
    #[error("running {command}: {source}")]
    Start {
        /// The command line.
        command: String,
        /// The cause.
        source: io::Error,
    },
    /// It ended with a failure.
    #[error("{command}: {status}: {tail}")]
    Failed {
        /// The command line.
        command: String,
        /// How it ended.
        status: process::ExitStatus,
        /// The last lines it wrote to standard error (or output).
        tail: String,
    },
    /// What it was to read on standard input could not be produced.
    #[error("feeding {command}: {source}")]
    Feed {
        /// The command line.
        command: String,
        /// The cause.
        source: io::Error,
    },
}

/// Writes what a program is to read on standard input.
pub type Feed<'a> = &'a mut (dyn FnMut(&mut dyn Write) -> io::Result<()> + Send);

/// Runs commands.
pub trait Runner: Send + Sync {
    /// Runs to the end and returns standard output.
    ///
    /// # Errors
    /// [`Error`] when it cannot be started or ends with a failure; whatever it
    /// did until then remains.
    fn run(&self, command: &Command) -> Result<Vec<u8>, Error>;

    /// As [`Runner::run`], with input that is written while the program reads:
    /// for what is too large to be held in memory.
    ///
    /// # Errors
    /// As [`Runner::run`], and [`Error::Feed`] when `feed` fails: the program
    /// has seen the end of its input too early then, and has ended.
    fn run_fed(&self, command: &Command, feed: Feed<'_>) -> Result<Vec<u8>, Error> {
        let mut input = Vec::new();
        feed(&mut input).map_err(|source| Error::Feed { command: command.to_string(), source })?;
        self.run(&command.clone().input(input))
    }
}

/// The host itself.
pub struct Host;

impl Runner for Host {
    fn run(&self, command: &Command) -> Result<Vec<u8>, Error> {
        match &command.input {
            None => run(command, None),
            // A program that closes its input early says why with its exit status.
            Some(input) => run(command, Some(&mut |stdin| stdin.write_all(input))),
        }
    }

    fn run_fed(&self, command: &Command, feed: Feed<'_>) -> Result<Vec<u8>, Error> {
        run(command, Some(feed))
    }
}

fn run(command: &Command, feed: Option<Feed<'_>>) -> Result<Vec<u8>, Error> {
    let start = |source| Error::Start { command: command.to_string(), source };
    let mut child = process::Command::new(&command.program)
        .args(&command.arguments)
        .envs(command.environment.iter().map(|(name, value)| (name, value)))
        .stdin(if feed.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(start)?;
    let stdin = child.stdin.take();
    let (fed, output) = std::thread::scope(|scope| {
        // A program may fill its output pipe before it has read all its input:
        // feed it from a thread of its own.
        let feeding = stdin.zip(feed).map(|(mut stdin, feed)| scope.spawn(move || feed(&mut stdin)));
        let output = child.wait_with_output();
        let fed = feeding.map_or(Ok(()), |thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        (fed, output)
    });
    let output = output.map_err(start)?;
    if let Err(source) = fed
        && source.kind() != io::ErrorKind::BrokenPipe
    {
        return Err(Error::Feed { command: command.to_string(), source });
    }
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = if output.stderr.is_empty() { &output.stdout } else { &output.stderr };
    let tail = &said[said.len().saturating_sub(TAIL)..];
    Err(Error::Failed {
        command: command.to_string(),
        status: output.status,
        tail: String::from_utf8_lossy(tail).trim().to_owned(),
    })
}
