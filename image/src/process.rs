//! Runs the host's tools. Each runs in a separate process and mount namespace that ends with this program, so that no
//! process outlives the build. Independent of what the tools do.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;

use anyhow::{Context, Result, bail};

use crate::caller::Caller;
use crate::progress::Progress;

/// How many of the last lines of each stream a failed tool's error has.
const TAIL_LINES: usize = 20;

/// A tool of the build host.
pub struct Tool {
    name: String,
    command: Command,
}

impl Tool {
    /// The host's `program`, with access to all files of the host.
    pub fn on_host(program: impl AsRef<OsStr>) -> Self {
        Self::behind(&[], program.as_ref())
    }

    /// The host's `program`, run as the user who called sudo if there is one. Its output directories
    /// must belong to that user: see [`crate::caller::lend`].
    pub fn as_caller(program: impl AsRef<OsStr>) -> Self {
        match Caller::of_environment() {
            Some(caller) => Self::behind(&caller.prefix(), program.as_ref()),
            None => Self::on_host(program),
        }
    }

    fn behind(prefix: &[String], program: &OsStr) -> Self {
        let name = program.to_string_lossy().into_owned();
        let mut command = Command::new("bwrap");
        // A killed bubblewrap ends the first process of the namespace, and with it all others. Mounts end with the
        // mount namespace.
        command.args(["--die-with-parent", "--unshare-pid", "--dev-bind", "/", "/", "--proc", "/proc"]);
        if nix::unistd::geteuid().is_root() {
            command.args(["--cap-add", "ALL"]);
        }
        command.arg("--").args(prefix).arg(program);
        Self { name, command }
    }

    /// A prepared command, such as one of the tools tree.
    pub fn prepared(name: &str, command: Command) -> Self {
        Self { name: name.to_owned(), command }
    }

    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.command.args(arguments);
        self
    }

    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Removes every environment variable whose name is `unwanted`, also those that were set here.
    pub fn without(mut self, unwanted: impl Fn(&str) -> bool) -> Self {
        let set = self.command.get_envs().filter_map(|(name, value)| value.map(|_| name.to_owned()));
        let names: Vec<_> = std::env::vars_os().map(|(name, _)| name).chain(set).collect();
        for name in names.iter().filter(|name| name.to_str().is_some_and(&unwanted)) {
            self.command.env_remove(name);
        }
        self
    }

    pub fn current_dir(mut self, directory: impl AsRef<Path>) -> Self {
        self.command.current_dir(directory);
        self
    }

    /// Runs to the end, and shows the tool's output as it comes. An error has its last lines.
    pub fn run(self, progress: &Progress) -> Result<()> {
        self.finish(progress, Kept::Nothing).map(drop)
    }

    /// Runs to the end and returns its standard output.
    pub fn output(self, progress: &Progress) -> Result<Vec<u8>> {
        self.finish(progress, Kept::Output)
    }

    /// Runs to the end and returns its standard error, on which some tools report their work.
    pub fn messages(self, progress: &Progress) -> Result<Vec<u8>> {
        self.finish(progress, Kept::Messages)
    }

    /// Runs to the end with this program's own input and output. Returns its exit status.
    pub fn pass(mut self) -> Result<ExitStatus> {
        let started = self.command.spawn();
        let mut child = started.map_err(|error| start_error(&self.name, self.command.get_program(), error))?;
        child.wait().with_context(|| format!("waiting for {}", self.name))
    }

    fn finish(mut self, progress: &Progress, kept: Kept) -> Result<Vec<u8>> {
        let mut child = self
            .command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| start_error(&self.name, self.command.get_program(), error))?;
        let [stdout, stderr] = pipes(&mut child)?;
        let (shown, mut other) = if kept == Kept::Messages { (stdout, stderr) } else { (stderr, stdout) };
        let tail = Mutex::new(VecDeque::new());
        let mut output = Vec::new();
        std::thread::scope(|scope| -> Result<()> {
            let shown = scope.spawn(|| follow(shown, &tail, progress));
            if kept == Kept::Nothing {
                follow(other, &tail, progress)?;
            } else {
                other.read_to_end(&mut output)?;
            }
            shown.join().unwrap_or_else(|_| bail!("the reader of a stream ended"))
        })
        .with_context(|| format!("reading what {} says", self.name))?;
        let status = child.wait().with_context(|| format!("waiting for {}", self.name))?;
        if status.success() {
            return Ok(output);
        }
        let mut lines = tail.into_inner().unwrap_or_default();
        // Errors may be in either stream.
        let text = String::from_utf8_lossy(&output);
        let said: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.extend(said.into_iter().rev().take(TAIL_LINES).rev());
        let said = lines.iter().fold(String::new(), |said, line| format!("{said}\n    {line}"));
        bail!("{} failed ({status}); its last lines:{said}", self.name)
    }
}

fn start_error(name: &str, program: &OsStr, error: std::io::Error) -> anyhow::Error {
    let advice = if error.kind() == std::io::ErrorKind::NotFound {
        format!(": {} is not installed on this host", program.to_string_lossy())
    } else {
        String::new()
    };
    anyhow::Error::new(error).context(format!("starting {name}{advice}"))
}

/// The stream of a tool that is returned. The others are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    Nothing,
    Output,
    Messages,
}

/// Standard output and standard error.
fn pipes(child: &mut Child) -> Result<[Box<dyn Read + Send>; 2]> {
    let stdout = child.stdout.take().context("a tool without standard output")?;
    let stderr = child.stderr.take().context("a tool without standard error")?;
    Ok([Box::new(stdout), Box::new(stderr)])
}

fn follow(from: impl Read, tail: &Mutex<VecDeque<String>>, progress: &Progress) -> Result<()> {
    let mut lines = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end().rsplit('\r').next().unwrap_or_default().to_owned();
        if text.is_empty() {
            continue;
        }
        progress.detail(&text);
        if let Ok(mut tail) = tail.lock() {
            if tail.len() == TAIL_LINES {
                tail.pop_front();
            }
            tail.push_back(text);
        }
    }
}

/// Whether a program of this name is on the search path.
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/sbin:/usr/bin:/sbin:/bin"));
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_tools_error_has_its_last_lines() {
        let script = "for i in $(seq 30); do echo line $i >&2; done; exit 3";
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let error = Tool::prepared("sh", command).run(&Progress::silent()).unwrap_err().to_string();
        assert!(error.contains("exit status: 3"), "{error}");
        assert!(error.contains("line 30") && error.contains("line 11"), "{error}");
        assert!(!error.contains("line 10\n"), "{error}");
    }

    #[test]
    fn messages_are_returned_or_in_the_error() {
        let messages = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            Tool::prepared("sh", command).messages(&Progress::silent())
        };
        assert_eq!(messages("echo out; echo said >&2").unwrap(), b"said\n");
        let error = messages("echo banner; echo said >&2; exit 3").unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.ends_with("\n    banner\n    said"), "{error}");
    }

    #[test]
    fn tools_of_the_caller_have_no_root_rights() {
        assert!(nix::unistd::geteuid().is_root(), "this test needs root: make test-fast");
        let nobody = Caller { user: 65534, group: 65534 };
        let script = "id -u; id -g; grep CapEff: /proc/self/status";
        let said = Tool::behind(&nobody.prefix(), OsStr::new("sh")).args(["-c", script]).output(&Progress::silent());
        let said = String::from_utf8(said.unwrap()).unwrap();
        assert_eq!(said.split_whitespace().collect::<Vec<_>>(), ["65534", "65534", "CapEff:", "0000000000000000"]);
    }

    #[test]
    fn a_missing_tool_is_named() {
        let command = Command::new("no-such-program");
        let error = Tool::prepared("packing", command).run(&Progress::silent()).unwrap_err().to_string();
        assert_eq!(error, "starting packing: no-such-program is not installed on this host");
    }
}
