//! Runs the host's programs. Everything that runs one takes a [`Runner`], so
//! that a test can stand in for the host.

use std::ffi::OsString;
use std::fmt;
use std::io::Write;
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

    /// Adds one argument.
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds arguments.
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
        source: std::io::Error,
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
}

/// Runs commands.
pub trait Runner: Send + Sync {
    /// Runs to the end and returns standard output.
    ///
    /// # Errors
    /// [`Error`] when it cannot be started or ends with a failure; whatever it
    /// did until then remains.
    fn run(&self, command: &Command) -> Result<Vec<u8>, Error>;
}

/// The host itself.
pub struct Host;

impl Runner for Host {
    fn run(&self, command: &Command) -> Result<Vec<u8>, Error> {
        let start = |source| Error::Start { command: command.to_string(), source };
        let mut child = process::Command::new(&command.program)
            .args(&command.arguments)
            .envs(command.environment.iter().map(|(name, value)| (name, value)))
            .stdin(if command.input.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(start)?;
        let stdin = child.stdin.take();
        let output = std::thread::scope(|scope| {
            // A program may fill its output pipe before it has read all its
            // input: feed it from a thread of its own. One that closes its
            // input early says why with its exit status.
            if let (Some(mut stdin), Some(input)) = (stdin, &command.input) {
                scope.spawn(move || {
                    let _ = stdin.write_all(input);
                });
            }
            child.wait_with_output()
        })
        .map_err(start)?;
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
}
