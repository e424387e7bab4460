//! `kaas-agent snapshot`: an administrator's own snapshots. Reads and writes files directly and does not need the
//! running agent.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;
use clap::Subcommand;

use super::client::EtcdClient;
use super::snapshot::{self, Contents, Snapshot};
use crate::cluster::REQUEST;
use crate::cluster::kubernetes::PKI;
use crate::cluster::records::Records;
use crate::host::command::{Host, Runner};
use crate::host::files;
use crate::intake::config::{ControlPlane, Output};

/// The subcommands.
#[derive(Subcommand)]
pub enum Snapshots {
    /// Take a snapshot of the cluster's store now and verify it
    ///
    /// It holds all data of Kubernetes, with Secrets in encrypted form, and no CA keys.
    Save {
        /// Where to put it instead of /data/snapshots; there it counts towards the number that is kept
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
        /// The form of the answer
        #[arg(long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
    /// List the snapshots on this node's data disk, the newest first
    List {
        /// The form of the answer
        #[arg(long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
}

impl Snapshots {
    pub fn run(self, root: &Path, out: &mut impl Write) -> anyhow::Result<()> {
        match self {
            Self::Save { to, output } => save(root, to, output, out),
            Self::List { output } => list(root, output, out),
        }
    }
}

fn save(root: &Path, to: Option<PathBuf>, output: Output, out: &mut impl Write) -> anyhow::Result<()> {
    let config = Records::new(root).config()?.context("this node has no configuration yet")?;
    let config = config.control_plane()?;
    let node = config.control_node()?;
    let now = SystemTime::now();
    let (saved, contents) = match to {
        None => take(root, config, &Host, now)?,
        Some(path) => {
            let contents = snapshot::save(node, root, &Host, &path)?;
            let taken = humantime::format_rfc3339_seconds(now).to_string();
            (Snapshot { size: std::fs::metadata(&path)?.len(), path, taken }, contents)
        }
    };
    match output {
        Output::Text => {
            let (path, size) = (saved.path.display(), saved.size);
            writeln!(out, "{path}: {size} bytes, revision {}, {} keys", contents.revision, contents.total_key)?;
        }
        Output::Json => {
            let mut answer = serde_json::to_value(&saved)?;
            answer["revision"] = contents.revision.into();
            answer["keys"] = contents.total_key.into();
            writeln!(out, "{answer:#}")?;
        }
    }
    Ok(())
}

/// Takes a snapshot into the directory on the data disk.
pub fn take(
    root: &Path,
    config: &ControlPlane,
    runner: &dyn Runner,
    now: SystemTime,
) -> anyhow::Result<(Snapshot, Contents)> {
    let node = config.control_node()?;
    let pki = files::below(root, PKI);
    let status = EtcdClient::new(node, &pki, config.timeout(REQUEST))?.status()?;
    snapshot::take(&config.cluster.name, node, root, runner, status.db_size, now)
}

fn list(root: &Path, output: Output, out: &mut impl Write) -> anyhow::Result<()> {
    let snapshots = snapshot::list(root, SystemTime::now())?;
    match output {
        Output::Json => writeln!(out, "{}", serde_json::to_string_pretty(&snapshots)?)?,
        Output::Text if snapshots.is_empty() => {
            writeln!(out, "no snapshots here yet; the node of etcd's leader takes them")?;
        }
        Output::Text => {
            for snapshot in snapshots {
                writeln!(out, "{}  {:>9} KiB  {}", snapshot.taken, snapshot.size >> 10, snapshot.path.display())?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_listed_for_people_and_for_scripts() {
        let root = tempfile::tempdir().unwrap();
        let listed = |output| {
            let mut out = Vec::new();
            Snapshots::List { output }.run(root.path(), &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert!(listed(Output::Text).starts_with("no snapshots here yet"));
        assert_eq!(listed(Output::Json).trim(), "[]");
        let directory = snapshot::directory(root.path());
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("c-20261121T083000Z.db"), [0; 2048]).unwrap();
        assert!(listed(Output::Text).starts_with("2026-11-21T08:30:00Z          2 KiB  "));
        let json: serde_json::Value = serde_json::from_str(&listed(Output::Json)).unwrap();
        assert_eq!((&json[0]["taken"], &json[0]["size"]), (&"2026-11-21T08:30:00Z".into(), &2048.into()));
    }

    #[test]
    fn without_a_configuration_nothing_is_saved() {
        let root = tempfile::tempdir().unwrap();
        let save = Snapshots::Save { to: None, output: Output::Text };
        let refused = save.run(root.path(), &mut Vec::new()).unwrap_err().to_string();
        assert_eq!(refused, "this node has no configuration yet");
    }
}
