//! Runs the host's programs. Every caller takes a [`Runner`], so that a test can replace the host.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::os::unix::process::CommandExt as _;
use std::panic::resume_unwind;
use std::process::{self, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// How much of a failing program's output its error contains, in bytes.
const TAIL: usize = 2000;

/// Usual time limit of a program.
const USUAL: Duration = Duration::from_secs(10 * 60);

/// Time limit of a program whose work grows with the cluster's data, images or a disk. No program may run longer,
/// because the watchdog of the main loop kills the agent.
pub const LONG: Duration = Duration::from_secs(110 * 60);

/// A program with its arguments, environment, standard input and time limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    program: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    input: Option<Vec<u8>>,
    limit: Duration,
}

impl Command {
    pub fn new(program: impl Into<OsString>) -> Self {
        Self { program: program.into(), arguments: Vec::new(), environment: Vec::new(), input: None, limit: USUAL }
    }

    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    pub fn args<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// The program's standard input. Secrets are passed this way.
    pub fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = Some(input.into());
        self
    }

    /// Kills the program and its child processes after this time.
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }
}

#[cfg(test)]
impl Command {
    pub(crate) fn given(&self) -> &[u8] {
        self.input.as_deref().unwrap_or_default()
    }

    pub(crate) fn limit(&self) -> Duration {
        self.limit
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

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program could not be started, or its pipes broke.
    #[error("running {command}: {source}")]
    Start { command: String, source: io::Error },
    /// The program ended with a failure.
    #[error("{command}: {status}: {tail}")]
    Failed {
        command: String,
        status: process::ExitStatus,
        /// The last lines of standard error, or of standard output if that is empty.
        tail: String,
    },
    /// The program ran too long and was killed.
    #[error("{command}: killed because it did not end within {} s", .limit.as_secs())]
    Late { command: String, limit: Duration },
    /// The program's standard input could not be produced.
    #[error("feeding {command}: {source}")]
    Feed { command: String, source: io::Error },
}

pub type Feed<'a> = &'a mut (dyn FnMut(&mut dyn Write) -> io::Result<()> + Send);

pub trait Runner: Send + Sync {
    /// Returns the standard output. After an error, changes that the program made remain.
    fn run(&self, command: &Command) -> Result<Vec<u8>, Error>;

    /// As [`Runner::run`], for input that does not fit into memory. After [`Error::Feed`] the program has seen the end
    /// of its input too early, and has ended.
    fn run_fed(&self, command: &Command, feed: Feed<'_>) -> Result<Vec<u8>, Error> {
        let mut input = Vec::new();
        feed(&mut input).map_err(|source| Error::Feed { command: command.to_string(), source })?;
        self.run(&command.clone().input(input))
    }
}

pub struct Host;

impl Runner for Host {
    fn run(&self, command: &Command) -> Result<Vec<u8>, Error> {
        match &command.input {
            None => run(command, None),
            // A program that closes its input early reports the reason with its exit status.
            Some(input) => run(command, Some(&mut |stdin| stdin.write_all(input))),
        }
    }

    fn run_fed(&self, command: &Command, feed: Feed<'_>) -> Result<Vec<u8>, Error> {
        run(command, Some(feed))
    }
}

/// The host of a node with this timeout factor.
pub struct SlowHost(pub u32);

impl SlowHost {
    fn slow(&self, command: &Command) -> Command {
        command.clone().within((command.limit * self.0).min(LONG))
    }
}

impl Runner for SlowHost {
    fn run(&self, command: &Command) -> Result<Vec<u8>, Error> {
        Host.run(&self.slow(command))
    }

    fn run_fed(&self, command: &Command, feed: Feed<'_>) -> Result<Vec<u8>, Error> {
        Host.run_fed(&self.slow(command), feed)
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
        .process_group(0)
        .spawn()
        .map_err(start)?;
    let (stdin, group) = (child.stdin.take(), i32::try_from(child.id()).map(Pid::from_raw));
    let (ended, end) = channel::<()>();
    let (fed, output, late) = std::thread::scope(|scope| {
        let watch = scope.spawn(move || {
            let late = end.recv_timeout(command.limit) == Err(RecvTimeoutError::Timeout);
            if late && let Ok(group) = group {
                // Its child processes may hold the pipes open.
                let _ = killpg(group, Signal::SIGKILL);
            }
            late
        });
        // A program may fill its output pipe before it has read all of its input. Therefore a separate thread writes
        // the input.
        let feeding = stdin.zip(feed).map(|(mut stdin, feed)| scope.spawn(move || feed(&mut stdin)));
        let output = child.wait_with_output();
        drop(ended);
        let fed = feeding.map_or(Ok(()), |thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        (fed, output, watch.join().unwrap_or_else(|panic| resume_unwind(panic)))
    });
    if late {
        return Err(Error::Late { command: command.to_string(), limit: command.limit });
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn hanging_program_is_killed_with_its_children() {
        let begun = Instant::now();
        // The child holds the pipes open after its parent has ended.
        for script in ["sleep 600 & wait", "sleep 600 & exit 0"] {
            let hangs = Command::new("sh").args(["-c", script]).within(Duration::from_millis(100));
            let error = Host.run(&hangs).unwrap_err();
            assert!(matches!(error, Error::Late { .. }), "{error}");
            assert!(error.to_string().starts_with("sh -c sleep 600"), "{error}");
        }
        assert!(begun.elapsed() < Duration::from_secs(300));
    }

    #[test]
    fn killed_program_gets_no_more_input() {
        let hangs = Command::new("sleep").arg("600").within(Duration::from_millis(100));
        let mut endless = |to: &mut dyn Write| -> io::Result<()> {
            loop {
                to.write_all(&[0; 4096])?;
            }
        };
        assert!(matches!(Host.run_fed(&hangs, &mut endless), Err(Error::Late { .. })));
    }

    #[test]
    fn program_that_ends_in_time_is_not_late() {
        let echo = Command::new("cat").input("said").within(LONG);
        assert_eq!(Host.run(&echo).unwrap(), b"said");
    }

    #[test]
    fn programs_of_a_slow_host_have_more_time() {
        let waits = Command::new("sleep").arg("1").within(Duration::from_millis(50));
        assert!(matches!(Host.run(&waits), Err(Error::Late { .. })));
        SlowHost(1000).run(&waits).unwrap();
        let slow = |command: Command| SlowHost(20).slow(&command).limit();
        assert_eq!([slow(Command::new("kubeadm")), slow(Command::new("e2fsck").within(LONG))], [LONG, LONG]);
    }
}
