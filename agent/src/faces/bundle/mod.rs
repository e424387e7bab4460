//! The support bundle: one .tar.gz with information to diagnose a node from afar. It is plain text and JSON, has a size limit,
//! and contains no secrets. A source that fails becomes a line in its index.

mod sources;

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, bail};
use clap::Args;
use contract::secret::Secret;
use serde::Serialize;
use serde_json::Value;
use support_bundle::{Bundle, Entry, Outcome, Part, Redactor, directory_name};

use crate::cluster::records::Records;
use crate::host::command::Runner;
use crate::host::files;
use crate::intake::config::{Config, Output};
use crate::status::Status;

/// The directory of bundles without `--file`.
const DIRECTORY: &str = "/var/tmp";

/// `kaas-agent support-bundle`
#[derive(Args)]
pub struct Options {
    /// The file to write, `-` for standard output; in /var/tmp unless given
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// How large the file may get, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 25, value_parser = clap::value_parser!(u64).range(1..=1024))]
    limit_mib: u64,
    /// The form of the summary, on standard output (on standard error if the bundle goes there)
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The file. `None` if the bundle went to standard output.
    pub file: Option<PathBuf>,
    /// Its size in bytes.
    pub bytes: u64,
    entries: Vec<Entry>,
}

impl Summary {
    pub fn incomplete(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().filter(|entry| entry.outcome != Outcome::Whole).map(|entry| entry.name.as_str())
    }
}

/// Progress is on standard error. A source that is cut or missing is not an error.
pub fn command(root: &Path, options: &Options, runner: &dyn Runner) -> anyhow::Result<()> {
    let to_stdout = options.file.as_deref() == Some(Path::new("-"));
    let mut progress = |what: &str| eprintln!("{what}");
    let limit = options.limit_mib << 20;
    let summary = if to_stdout {
        let mut count = Count { writer: io::stdout().lock(), bytes: 0 };
        let entries = fill(root, runner, SystemTime::now(), limit, &mut count, &mut progress)?;
        Summary { file: None, bytes: count.bytes, entries }
    } else {
        write(root, runner, options.file.as_deref(), limit, &mut progress)?
    };
    let text = match options.output {
        Output::Json => serde_json::to_string_pretty(&summary)?,
        Output::Text => {
            let file = summary.file.as_ref().map_or("standard output".into(), |file| file.display().to_string());
            let lacking = summary.incomplete().count();
            let more = if lacking == 0 {
                String::new()
            } else {
                format!("; {lacking} parts are not whole, see its README.txt")
            };
            format!("{file}: {} KiB{more}", summary.bytes.div_ceil(1024))
        }
    };
    if to_stdout {
        eprintln!("{text}")
    } else {
        println!("{text}")
    }
    Ok(())
}

/// Writes a bundle of at most `limit` bytes to `file`, or to a new file below /var/tmp. The file is complete or missing, and
/// readable only by root. `progress` is called with the current group of sources.
pub fn write(
    root: &Path,
    runner: &dyn Runner,
    file: Option<&Path>,
    limit: u64,
    progress: &mut dyn FnMut(&str),
) -> anyhow::Result<Summary> {
    let now = SystemTime::now();
    let file = match file {
        Some(file) => file.to_owned(),
        None => files::below(root, DIRECTORY).join(format!("{}.tar.gz", name(root, now))),
    };
    let temporary = files::beside(&file).with_context(|| format!("{} is not a file's name", file.display()))?;
    let _ = fs::remove_file(&temporary);
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary);
    let made = made.with_context(|| format!("writing {}", file.display()))?;
    let filled = || -> anyhow::Result<(u64, Vec<Entry>)> {
        let mut count = Count { writer: io::BufWriter::new(made), bytes: 0 };
        let entries = fill(root, runner, now, limit, &mut count, progress)?;
        let written = count.writer.into_inner().map_err(io::IntoInnerError::into_error)?;
        written.sync_all()?;
        files::put_in_place(&temporary, &file)?;
        Ok((count.bytes, entries))
    };
    match filled() {
        Ok((bytes, entries)) => Ok(Summary { file: Some(file), bytes, entries }),
        Err(error) => {
            let _ = fs::remove_file(&temporary);
            Err(error.context(format!("writing {}", file.display())))
        }
    }
}

fn fill(
    root: &Path,
    runner: &dyn Runner,
    now: SystemTime,
    limit: u64,
    writer: &mut Count<impl Write>,
    progress: &mut dyn FnMut(&str),
) -> anyhow::Result<Vec<Entry>> {
    let directory = name(root, now);
    let redactor = Redactor::new(known_secrets(root));
    let sources = sources::all(root);
    let weights: u64 = sources.iter().map(|source| source.weight).sum();
    let mut bundle = Bundle::new(&mut *writer, &directory, now, limit, weights);
    let mut group = "";
    for source in &sources {
        let next = source.name.split_once('/').map_or("this node", |(directory, _)| directory);
        if next != group {
            progress(&format!("gathering: {next}"));
            group = next;
        }
        let part = Part { name: &source.name, about: &source.what, weight: source.weight, keep: source.keep };
        let text = source.get(root, runner).map(|text| redactor.redact(&text));
        bundle.add(&part, text.map_err(|error| redactor.redact(&format!("{error:#}"))))?;
    }
    let (out, entries) = bundle.finish("a KaaS appliance node")?;
    out.flush()?;
    if writer.bytes > limit {
        bail!("the bundle came to {} bytes, which is more than it may be", writer.bytes);
    }
    Ok(entries)
}

/// Possible secrets in a configuration that another version of the agent has saved: all texts in the fields where this version
/// keeps secrets. If it is not JSON, the whole text.
fn secrets_of_unknown_config(text: &Secret) -> Vec<Secret> {
    fn collect(value: &Value, secret: bool, found: &mut Vec<Secret>) {
        match value {
            Value::String(text) if secret => found.push(Secret::new(text.clone())),
            Value::Array(values) => values.iter().for_each(|value| collect(value, secret, found)),
            Value::Object(fields) => fields.iter().for_each(|(name, value)| {
                let named = ["proxy", "snapshot_target", "console_password_hash"].contains(&name.as_str());
                collect(value, secret || named, found);
            }),
            _ => {}
        }
    }
    let Ok(value) = serde_json::from_str::<Value>(text.expose()) else { return vec![text.clone()] };
    let mut found = Vec::new();
    collect(&value, false, &mut found);
    found
}

/// The secrets that redaction knows by value.
fn known_secrets(root: &Path) -> Vec<Secret> {
    let records = Records::new(root);
    let mut secrets: Vec<Secret> = records.secret().ok().flatten().into_iter().collect();
    match records.config() {
        Err(_) => secrets.extend(records.config_text().iter().flat_map(secrets_of_unknown_config)),
        Ok(None) => {}
        Ok(Some(config)) => {
            let target = match &config {
                Config::ControlPlane(config) => config.snapshot_target.clone(),
                Config::Worker(_) => None,
            };
            let node = config.node();
            let proxy = node.proxy.iter().flat_map(|proxy| [&proxy.http, &proxy.https]).flatten().cloned();
            let addresses = proxy.map(Secret::new).chain(target.clone());
            secrets.extend(addresses.filter_map(|address| {
                url::Url::parse(address.expose()).ok()?.password().map(|password| Secret::new(password.to_owned()))
            }));
            secrets.extend(target);
            secrets.extend(node.console_password_hash.clone().map(Secret::new));
        }
    }
    secrets
}

fn name(root: &Path, now: SystemTime) -> String {
    let node = Status::read(root).ok().and_then(|status| status.node).unwrap_or_else(|| "node".to_owned());
    directory_name(&node, now)
}

struct Count<W> {
    writer: W,
    bytes: u64,
}

impl<W: Write> Write for Count<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.writer.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

#[cfg(test)]
mod tests;
