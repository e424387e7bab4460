//! Takes snapshots of the store on the node of etcd's leader, at the configured pace. Copies them off the node if a target is
//! configured.
//!
//! Each node considers only the snapshots on its own disk. A node that becomes the leader takes a snapshot within a
//! minute if its own newest is old. Therefore there may be more than one per period, but never fewer.

use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{fs, io};

use anyhow::bail;
use contract::codes;
use contract::finding::Findings;
use contract::properties::Period;

use super::job::Job;
use crate::cluster::REQUEST;
use crate::cluster::etcd::client::EtcdClient;
use crate::cluster::etcd::snapshot::{self, Snapshot};
use crate::cluster::etcd::target::Target;
use crate::cluster::etcd::upkeep;
use crate::host::command::SlowHost;
use crate::host::files;
use crate::intake::config::{ControlPlane, clear_text};
use crate::node::context::NodeContext;

/// The name of the file that names the snapshot that was sent last, in the directory of snapshots.
const SENT: &str = "sent";

pub(super) fn prepare(node: &NodeContext) -> anyhow::Result<Option<Job>> {
    let (config, pki, root) = (node.control_plane()?.clone(), node.pki(), node.platform.root().to_owned());
    Ok(Some(Box::new(move |_| {
        let mut findings = Findings::default();
        if let Err(error) = take_if_due(&config, &pki, &root) {
            findings.push(codes::SNAPSHOT_FAILED.finding(
                "snapshots of etcd",
                format!("no snapshot could be taken: {error:#}"),
                "It is tried again every minute; without snapshots a lost quorum cannot be restored",
            ));
        }
        Ok(findings)
    })))
}

/// A separate task, so that a slow server delays no snapshot.
pub(super) fn prepare_copies(node: &NodeContext) -> anyhow::Result<Option<Job>> {
    let (config, root) = (node.control_plane()?.clone(), node.platform.root().to_owned());
    Ok(Some(Box::new(move |_| {
        let clear = config.snapshot_target.as_ref().and_then(clear_text);
        let mut findings = clear.map(Findings::from).unwrap_or_default();
        if let Err(error) = send_newest(&config, &root, SystemTime::now()) {
            findings.push(codes::SNAPSHOT_NOT_SENT.finding(
                "snapshot-target",
                format!("the newest snapshot was not copied: {error:#}"),
                "It is tried again every minute; fix the server or the property",
            ));
        }
        Ok(findings)
    })))
}

fn take_if_due(config: &ControlPlane, pki: &Path, root: &Path) -> anyhow::Result<()> {
    let is_due = || is_due(root, SystemTime::now(), config.snapshot_every).unwrap_or(true);
    let Some(node) = config.control_node().ok().filter(|_| is_due()) else {
        return Ok(());
    };
    let status = EtcdClient::new(node, pki, config.timeout(REQUEST))?.status()?;
    if !status.is_leader() {
        return Ok(());
    }
    // A snapshot also contains the alarms: a cluster that is restored from it would refuse writes.
    if upkeep::is_corrupt(&status) {
        bail!("the data of etcd's members differ: see the finding etcd.corrupt");
    }
    let host = SlowHost(config.timeout_factor);
    let taken = snapshot::take(&config.cluster.name, node, root, &host, status.db_size, SystemTime::now())?;
    log::info!("took the snapshot {}: revision {}, {} keys", taken.0.name(), taken.1.revision, taken.1.total_key);
    Ok(())
}

/// Whether the newest snapshot is old. Also true if all are from the future, because a clock was wrong.
fn is_due(root: &Path, now: SystemTime, every: Period) -> io::Result<bool> {
    let newest = snapshot::list(root, now)?.into_iter().next();
    Ok(newest.and_then(|newest| newest.age(now)).is_none_or(|age| age >= every.duration()))
}

fn send_newest(config: &ControlPlane, root: &Path, now: SystemTime) -> anyhow::Result<()> {
    let Some(address) = &config.snapshot_target else { return Ok(()) };
    let Some(newest) = unsent(root, now)? else { return Ok(()) };
    let target = Target::new(address, config.node.proxy.as_ref(), config.timeout_factor)?;
    target.send(&newest)?;
    log::info!("sent the snapshot {} to {}", newest.name(), target.shown());
    files::write_atomically(&sent(root), newest.name().as_bytes(), 0o600)?;
    Ok(())
}

fn sent(root: &Path) -> PathBuf {
    snapshot::directory(root).join(SENT)
}

/// The newest snapshot, unless it was sent.
fn unsent(root: &Path, now: SystemTime) -> io::Result<Option<Snapshot>> {
    let Some(newest) = snapshot::list(root, now)?.into_iter().next() else { return Ok(None) };
    match fs::read_to_string(sent(root)) {
        Ok(name) if name == newest.name() => Ok(None),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(Some(newest)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cluster::etcd::fake;
    use crate::cluster::kubernetes::PKI;
    use crate::intake::config::Config;
    use crate::maintenance::job::SharedFindings;
    use contract::secret::Secret;

    #[test]
    fn snapshot_is_due_when_the_newest_is_old() {
        let root = tempfile::tempdir().unwrap();
        let at = |text: &str| humantime::parse_rfc3339(text).unwrap();
        let now = at("2026-11-21T14:30:00Z");
        let is_due = |now, every| is_due(root.path(), now, every).unwrap();
        assert!(is_due(now, Period::days(7)));
        let directory = snapshot::directory(root.path());
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("c-20261121T083000Z.db"), "").unwrap();
        for (every, due) in [
            (Period::minutes(15), "2026-11-21T08:45:00Z"),
            (Period::hours(6), "2026-11-21T14:30:00Z"),
            (Period::days(7), "2026-11-28T08:30:00Z"),
        ] {
            assert!(is_due(at(due), every), "{every}");
            assert!(!is_due(at(due) - Duration::from_secs(1), every), "{every}");
            assert!(is_due(at("2020-01-01T00:00:00Z"), every), "{every}");
        }
    }

    /// No server listens, so a snapshot that is due fails.
    #[test]
    fn the_pace_is_the_one_that_is_set() {
        let root = tempfile::tempdir().unwrap();
        let mut config = crate::intake::config::fixture::one_node();
        let pki = files::below(root.path(), PKI);
        fake::off(&mut config, &pki);
        let directory = snapshot::directory(root.path());
        fs::create_dir_all(&directory).unwrap();
        let taken = SystemTime::now() - Duration::from_secs(3600);
        fs::write(directory.join(format!("c-{}.db", files::stamp(taken))), "").unwrap();
        let mut is_due = |every| {
            config.snapshot_every = every;
            take_if_due(&config, &pki, root.path()).is_err()
        };
        assert!(is_due(Period::minutes(15)));
        assert!(!is_due(Period::hours(6)) && !is_due(Period::days(7)));
    }

    #[test]
    fn no_snapshot_while_the_members_data_differ() {
        let (root, mut config) = (tempfile::tempdir().unwrap(), crate::intake::config::fixture::three_nodes());
        let pki = files::below(root.path(), PKI);
        let etcd = fake::FakeEtcd::start(&mut config, &pki);
        etcd.raise(0, upkeep::CORRUPT);
        let refused = take_if_due(&config, &pki, root.path()).unwrap_err().to_string();
        assert!(refused.contains("etcd.corrupt") && !snapshot::directory(root.path()).exists(), "{refused}");
    }

    #[test]
    fn snapshots_and_copies_report_their_own_failures() {
        let root = tempfile::tempdir().unwrap();
        let mut config = crate::intake::config::fixture::one_node();
        fake::off(&mut config, &files::below(root.path(), PKI));
        // No server listens there.
        let target = format!("http://{}:1/snapshots/", config.control_node().unwrap().address);
        config.snapshot_target = Some(Secret::new(target));
        let directory = snapshot::directory(root.path());
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("c-20200101T000000Z.db"), "").unwrap();
        let node = crate::node::fixture::node(root.path(), Config::ControlPlane(config));
        for (job, codes) in [
            (prepare(&node), &["snapshot.failed"][..]),
            (prepare_copies(&node), &["snapshot-target.clear-text", "snapshot.not-sent"]),
        ] {
            let findings = job.unwrap().unwrap()(&SharedFindings::default()).unwrap();
            let found: Vec<_> = findings.iter().map(|finding| finding.code.as_str()).collect();
            assert_eq!(found, codes);
            assert!(!findings.has_errors(), "the node does its part all the same");
        }
    }

    #[test]
    fn only_the_newest_snapshot_is_sent_and_once() {
        let root = tempfile::tempdir().unwrap();
        let now = humantime::parse_rfc3339("2026-11-21T14:30:00Z").unwrap();
        let unsent = || unsent(root.path(), now).unwrap();
        assert!(unsent().is_none());
        let directory = snapshot::directory(root.path());
        fs::create_dir_all(&directory).unwrap();
        for name in ["c-20261121T083000Z.db", "c-20261121T143000Z.db"] {
            fs::write(directory.join(name), "").unwrap();
        }
        let newest = unsent().unwrap();
        assert_eq!(newest.name(), "c-20261121T143000Z.db");
        fs::write(sent(root.path()), newest.name()).unwrap();
        assert!(unsent().is_none());
    }

    #[test]
    fn snapshots_from_the_future_hinder_none() {
        let root = tempfile::tempdir().unwrap();
        let now = humantime::parse_rfc3339("2026-11-21T14:30:00Z").unwrap();
        let directory = snapshot::directory(root.path());
        fs::create_dir_all(&directory).unwrap();
        let ahead = "c-20270601T000000Z.db";
        fs::write(directory.join(ahead), "").unwrap();
        fs::write(sent(root.path()), ahead).unwrap();
        let is_due = |now| is_due(root.path(), now, Period::hours(6)).unwrap();
        assert!(is_due(now));
        fs::write(directory.join("c-20261121T143000Z.db"), "").unwrap();
        assert!(!is_due(now + Duration::from_secs(60)), "one every minute");
        assert_eq!(unsent(root.path(), now).unwrap().unwrap().name(), "c-20261121T143000Z.db");
    }
}
