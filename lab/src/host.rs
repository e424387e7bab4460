//! Runs programs of this host to their end.

use std::process::{Command, Stdio};

use anyhow::{Context, bail};

/// How much of a failed program's output its error has, in bytes.
const TAIL: usize = 2000;

pub fn program<A: AsRef<std::ffi::OsStr>>(name: &str, arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(name);
    command.args(arguments);
    command
}

/// Runs a program and returns its output. An error has the last lines of its output.
pub fn run(command: &mut Command) -> anyhow::Result<String> {
    let line = line(command);
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("starting {line}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = if output.stderr.is_empty() { &output.stdout } else { &output.stderr };
    let tail = String::from_utf8_lossy(&said[said.len().saturating_sub(TAIL)..]).trim().to_owned();
    bail!("{line}: {}: {tail}", output.status)
}

/// Runs `ip`. Spaces separate the arguments.
pub fn ip(arguments: &str) -> anyhow::Result<String> {
    run(&mut program("ip", arguments.split_ascii_whitespace()))
}

fn line(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_command_and_last_lines() {
        let error = run(&mut program("sh", ["-c", "echo no such thing >&2; exit 3"])).unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.ends_with("no such thing"), "{error}");
    }
}
