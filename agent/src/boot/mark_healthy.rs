//! `kaas-agent mark-good`: records that this boot is healthy, once the health checks of the node's role have passed for
//! a while without a failure. It is a separate unit, so that an agent that crashes or reports wrongly cannot record it.
//! An image swap is committed only after it.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail, ensure};
use contract::node::HealthySince;
use contract::paths;

use crate::boot::plan::{self, Plan};
use crate::cluster::etcd::client::EtcdClient;
use crate::cluster::join::{self, WorkerMembership};
use crate::cluster::kubernetes::PKI;
use crate::cluster::kubernetes::api::{self, Api};
use crate::cluster::records::Records;
use crate::host::disk::{Slots, is_mounted};
use crate::host::files;
use crate::host::platform::Platform;
use crate::intake::config::{Config, ControlPlane, Worker};
use crate::upgrade::swap::boot_health::{HEALTHY_FILE, read};

/// How long all checks must pass, times the timeout factor …
const WINDOW: Duration = Duration::from_secs(30);
/// … up to this limit. A slow host's answers take longer, but one healthy minute is enough.
const LONGEST_WINDOW: Duration = Duration::from_secs(60);
const PACE: Duration = Duration::from_secs(2);
/// Timeout of one request, times the timeout factor.
const ASKING: Duration = Duration::from_secs(5);
/// How many entries a member may be behind the leader: entries written while both are asked.
const BEHIND: u64 = 200;

/// Waits until the boot is healthy, records that and prints it.
pub fn command(root: &Path, out: &mut impl Write) -> anyhow::Result<()> {
    if let Some(HealthySince { since }) = read(root) {
        writeln!(out, "this boot is good since {}", shown(since))?;
        return Ok(());
    }
    let mut window = Window::default();
    loop {
        let looked = look(root);
        let length = looked.as_ref().map_or(WINDOW, |config| config.timeout(WINDOW).min(LONGEST_WINDOW));
        match window.step(looked.map(drop).map_err(|error| format!("{error:#}")), Instant::now(), length) {
            Step::Healthy => break,
            Step::News(news) => writeln!(out, "{news}")?,
            Step::Wait => {}
        }
        thread::sleep(PACE);
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let text = serde_json::to_vec(&HealthySince { since })?;
    files::write_atomically(&files::below(root, HEALTHY_FILE), &text, 0o644).context("noting it")?;
    match writeln!(out, "this boot is good") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

fn shown(since: u64) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(since)).to_string()
}

/// Since when all checks pass, and the last message.
#[derive(Default)]
struct Window {
    since: Option<Instant>,
    last_message: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Wait,
    News(String),
    Healthy,
}

impl Window {
    fn step(&mut self, looked: Result<(), String>, now: Instant, length: Duration) -> Step {
        let news = match looked {
            Ok(()) => {
                let since = *self.since.get_or_insert(now);
                if now.duration_since(since) >= length {
                    return Step::Healthy;
                }
                format!("healthy; it must stay so for {} s", length.as_secs())
            }
            Err(missing) => {
                self.since = None;
                format!("not yet: {missing}")
            }
        };
        if self.last_message.as_ref() == Some(&news) {
            return Step::Wait;
        }
        self.last_message = Some(news.clone());
        Step::News(news)
    }
}

/// Runs each check once. The first failure is the error.
fn look(root: &Path) -> anyhow::Result<Config> {
    let platform = Platform::detect(root)?;
    are_mounted(&platform, std::iter::empty())?;
    let config = Records::new(root).config()?.context("this node has no configuration")?;
    match &config {
        Config::ControlPlane(config) => {
            disk_is_ours(&platform)?;
            control_plane(config, &platform)?;
        }
        Config::Worker(config) => worker(config, &platform)?,
    }
    Ok(config)
}

/// Whether this node's etcd member and API are healthy, and Kubernetes reports the node as ready.
fn control_plane(config: &ControlPlane, platform: &Platform) -> anyhow::Result<()> {
    let pki = platform.path(PKI);
    etcd_has_caught_up(config, &pki)?;
    let kubeconfig = platform.path(api::KUBECONFIG);
    let ask = |address| Api::new(address, &kubeconfig, config.timeout(ASKING));
    let own = ask(config.address())?;
    own.ready().context("the API on this node")?;
    if let Some(address) = config.cluster.virtual_address {
        ask(address)?.ready().with_context(|| format!("the API at the virtual IP {address}"))?;
    }
    // Reads this node by its name: other Node objects say nothing about it.
    let name = &config.node.name;
    ensure!(own.node(name)?.is_some_and(|node| node.ready), "Kubernetes does not call {name} ready");
    Ok(())
}

/// Whether a worker's mounts exist, its certificate is valid, and its cluster reports it as ready.
fn worker(config: &Worker, platform: &Platform) -> anyhow::Result<()> {
    are_mounted(platform, paths::binds_of_workers())?;
    if decided(platform)?.volumes_disk().is_some() {
        ensure!(is_mounted(&platform.path(paths::LOCAL_VOLUMES))?, "the disk for local volumes is not mounted");
    }
    let standing = join::worker_membership(platform.root(), config, SystemTime::now());
    ensure!(standing == WorkerMembership::Member, "this worker does not belong to its cluster");
    let (name, timeout) = (&config.node.name, ASKING * config.timeout_factor);
    let api = Api::new(config.cluster.api_address, &platform.path(api::KUBECONFIG), timeout)?;
    let node = api.node(name).context("the Kubernetes API")?;
    ensure!(node.is_some_and(|node| node.ready), "Kubernetes does not call {name} ready");
    Ok(())
}

fn are_mounted(
    platform: &Platform,
    binds: impl Iterator<Item = (&'static str, u32, &'static str)>,
) -> anyhow::Result<()> {
    for point in std::iter::once(paths::DATA).chain(binds.map(|(.., point)| point)) {
        ensure!(is_mounted(&platform.path(point))?, "nothing is mounted on {point}");
    }
    Ok(())
}

fn decided(platform: &Platform) -> anyhow::Result<Plan> {
    let text = fs::read(platform.path(plan::PATH)).context("nothing is decided yet")?;
    serde_json::from_slice(&text).context("understanding the plan")
}

fn disk_is_ours(platform: &Platform) -> anyhow::Result<()> {
    are_mounted(platform, paths::binds())?;
    let plan = decided(platform)?;
    let disk = plan.data_disk().context("the plan has no data disk")?;
    let slots = Slots::read(disk).with_context(|| format!("reading {}", disk.display()))?;
    let identity = slots.newest().context("the data disk has lost its identity")?;
    ensure!(identity.holder == platform.bios_uuid(), "another VM holds the data disk");
    Ok(())
}

fn etcd_has_caught_up(config: &ControlPlane, pki: &Path) -> anyhow::Result<()> {
    let own = config.control_node()?;
    let ask = |node| EtcdClient::new(node, pki, config.timeout(ASKING));
    let etcd = ask(own)?;
    let status = etcd.status().context("etcd on this node")?;
    ensure!(etcd.healthy() && status.has_leader(), "etcd on this node sees no leader");
    ensure!(!status.is_learner, "etcd on this node has no vote yet");
    if status.is_leader() {
        return Ok(());
    }
    let members = etcd.members().context("etcd's members")?;
    let leader = members.iter().find(|member| member.id == status.leader).context("etcd's leader is no member")?;
    let mut nodes = config.cluster.control_nodes.iter();
    let node = nodes.find(|node| crate::cluster::etcd::replace::is_member_of(leader, node));
    let node = node.context("etcd's leader is on no control-plane node")?;
    let ahead = ask(node)?.status().with_context(|| format!("etcd's leader on {}", node.name))?.raft_applied_index;
    // Asked again after the leader: entries applied in between are no lag.
    let applied = etcd.status()?.raft_applied_index;
    if applied.saturating_add(BEHIND) < ahead {
        bail!("etcd on this node has applied {applied} of {ahead} entries");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_must_hold_without_a_break() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut window = Window::default();
        let mut step =
            |looked: Result<(), &str>, seconds| window.step(looked.map_err(str::to_owned), at(seconds), WINDOW);
        assert_eq!(step(Err("no API"), 0), Step::News("not yet: no API".into()));
        assert_eq!(step(Err("no API"), 2), Step::Wait);
        assert!(matches!(step(Ok(()), 4), Step::News(_)));
        assert_eq!(step(Ok(()), 33), Step::Wait);
        assert!(matches!(step(Err("no API"), 34), Step::News(_)));
        assert!(matches!(step(Ok(()), 36), Step::News(_)));
        assert_eq!(step(Ok(()), 65), Step::Wait);
        assert_eq!(step(Ok(()), 66), Step::Healthy);
    }

    #[test]
    fn first_failure_is_reported_and_record_is_read() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(format!("{:#}", look(root.path()).unwrap_err()), "nothing is mounted on /data");
        assert_eq!(read(root.path()), None);
        let path = files::below(root.path(), HEALTHY_FILE);
        files::write_atomically(&path, br#"{"since":1795276800}"#, 0o644).unwrap();
        assert_eq!(read(root.path()), Some(HealthySince { since: 1_795_276_800 }));
        let mut out = Vec::new();
        command(root.path(), &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "this boot is good since 2026-11-21T16:00:00Z\n");
    }
}
