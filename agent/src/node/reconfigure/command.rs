//! `kaas-agent configure`: new values of properties from the command line, a file or standard input.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use contract::finding::{Finding, Findings};
use contract::properties;
use serde_json::json;
use zeroize::Zeroizing;

use super::{Effect, Error, ReconfigureResult, apply};
use crate::intake::config::Output;

/// Largest accepted input, in bytes. Larger input is no list of properties.
const LARGEST: u64 = 1 << 20;

/// Options of `kaas-agent configure`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Properties to change, such as `gateway=192.168.10.1`; `gateway=` removes a value. Secrets are refused here,
    /// because every process can read the command line: see --from
    #[arg(value_name = "KEY=VALUE", required_unless_present = "from")]
    changes: Vec<String>,
    /// A file with a KEY=VALUE on each line, `#` before comments; `-` for standard input. Line breaks inside a value
    /// are written as `\n`
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Changes the properties of the node below `root` and prints the result. True if they were changed. Refuses a secret
/// on the command line.
pub fn command(root: &Path, options: &Options, stdin: &mut dyn Read, stdout: &mut dyn Write) -> anyhow::Result<bool> {
    let changes = gather(options, stdin)?;
    let changes: Vec<(&str, &str)> = changes.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let (made, findings, effect) = match apply(root, &changes) {
        Ok(ReconfigureResult { effect, warnings }) => (true, warnings, effect),
        Err(Error::Refused(findings)) => (false, findings, Effect::Nothing),
        Err(Error::Failed(error)) => return Err(error),
    };
    let text = match options.output {
        Output::Json => {
            let effect = match effect {
                Effect::Nothing => "nothing",
                Effect::Awaited => "awaited",
                Effect::Restarted => "restarted",
            };
            format!("{:#}\n", json!({ "made": made, "effect": effect, "findings": findings }))
        }
        Output::Text => describe(made, effect, &findings),
    };
    stdout.write_all(text.as_bytes()).context("writing the result")?;
    Ok(made)
}

fn describe(made: bool, effect: Effect, findings: &Findings) -> String {
    let mut text = match (made, effect) {
        (false, _) => "Nothing was changed:\n",
        (_, Effect::Nothing) => "The properties have these values already.\n",
        (_, Effect::Awaited) => "Saved. The agent applies it in a few seconds.\n",
        (_, Effect::Restarted) => {
            "Saved. The agent was restarted and applies it; `kaas-agent status` says how far it is.\n"
        }
    }
    .to_owned();
    for Finding { code, subject, seen, action, .. } in findings.iter() {
        text.push_str(&format!("  {subject}: {seen}.\n      {action}. [{code}]\n"));
    }
    text
}

type Changes = Vec<(String, Zeroizing<String>)>;

fn gather(options: &Options, stdin: &mut dyn Read) -> anyhow::Result<Changes> {
    let mut changes = Changes::new();
    for (index, argument) in options.changes.iter().enumerate() {
        let (key, value) = pair(argument).with_context(|| format!("argument {}", index + 1))?;
        if properties::find(&key).is_some_and(|property| property.betrays(&value)) {
            bail!(
                "{key} may hold a secret, which the command line shows to every process: write {key}=… into a file \
                 and give it with --from FILE, or on standard input with --from -"
            );
        }
        changes.push((key, value));
    }
    let Some(from) = &options.from else { return Ok(changes) };
    let mut text = Zeroizing::new(String::new());
    let read = if from == Path::new("-") {
        stdin.take(LARGEST).read_to_string(&mut text)
    } else {
        File::open(from).and_then(|file| file.take(LARGEST).read_to_string(&mut text))
    };
    read.with_context(|| format!("reading properties from {}", from.display()))?;
    for (number, line) in (1..).zip(text.lines()) {
        if !line.trim().is_empty() && !line.trim_start().starts_with('#') {
            changes.push(pair(line).with_context(|| format!("{}, line {number}", from.display()))?);
        }
    }
    Ok(changes)
}

/// The error never repeats the text, which may be a secret.
fn pair(text: &str) -> anyhow::Result<(String, Zeroizing<String>)> {
    let (key, value) = text.split_once('=').context("it does not have the form KEY=VALUE")?;
    Ok((key.trim().to_owned(), Zeroizing::new(value.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(changes: &[&str], from: Option<&str>) -> Options {
        Options {
            changes: changes.iter().map(|text| (*text).to_owned()).collect(),
            from: from.map(PathBuf::from),
            output: Output::Text,
        }
    }

    #[test]
    fn secrets_on_the_command_line_are_refused() {
        for (argument, secret) in [
            ("deployment-secret=x7$Qm!p2<Wz", "x7$Qm"),
            ("join-token=abcdef.0123456789abcdef", "0123"),
            ("console-password-hash=$6$salt$hash", "salt"),
            ("http-proxy=http://me:word@proxy:3128", "word"),
            ("snapshot-target=https://me:word@files/snapshots/", "word"),
        ] {
            let error = format!("{:#}", gather(&options(&[argument], None), &mut std::io::empty()).unwrap_err());
            assert!(error.contains("--from -") && !error.contains(secret), "{error}");
        }
        let plain = options(&["http-proxy=http://proxy:3128", "gateway="], None);
        assert_eq!(gather(&plain, &mut std::io::empty()).unwrap().len(), 2);
    }

    #[test]
    fn standard_input_values_keep_their_spaces() {
        let mut text: &[u8] = b"# remarks\n\n deployment-secret= x=7 \"#\"\ngateway=10.0.0.1\n";
        let changes = gather(&options(&[], Some("-")), &mut text).unwrap();
        let changes: Vec<_> = changes.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(changes, [("deployment-secret", " x=7 \"#\""), ("gateway", "10.0.0.1")]);
        let mut text: &[u8] = b"gateway=1\nx7$Qm";
        let error = format!("{:#}", gather(&options(&[], Some("-")), &mut text).unwrap_err());
        assert_eq!(error, "-, line 2: it does not have the form KEY=VALUE");
    }
}
