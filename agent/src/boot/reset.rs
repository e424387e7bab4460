//! Resets this node: erases the node's state on the data disk and on this VM's scratch partition, and nothing else. The
//! confirmation is checked here, for the command line and the console.
//!
//! While the node runs, the data disk is only marked. The node erases it after the restart, before it mounts anything
//! of it, and again after a power cut.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context as _, bail};
use clap::Args;
use contract::codes;
use contract::finding::Finding;
use contract::paths;

use crate::boot::volumes::VolumesDisk;
use crate::cluster::REQUEST;
use crate::cluster::etcd::member;
use crate::cluster::kubernetes::PKI;
use crate::cluster::records::Records;
use crate::host::command::Runner;
use crate::host::disk::ownership::Claimant;
use crate::host::disk::{self, DataDisk, Disk, Identity, erase};
use crate::host::image;
use crate::host::platform::Platform;
use crate::host::services;
use crate::host::vmware::backdoor::Port;
use crate::host::worker_state;
use crate::intake::config::{Config, ControlPlane};
use crate::intake::environment::guestinfo::{self, GuestInfo};

/// A node's directories on the scratch partition: data of the runtime, the kubelet and pods, and logs.
const SCRATCH: [&str; 6] = [
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/lib/cni",
    "/var/log/pods",
    "/var/log/containers",
    "/var/log/journal",
];

/// `kaas-agent reset`
#[derive(Args)]
pub struct Options {
    /// This node's name, as confirmation
    #[arg(long, value_name = "NODE")]
    confirm: String,
    /// The cluster's name as well; required if the reset ends the cluster
    #[arg(long, value_name = "CLUSTER")]
    confirm_end_of: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterImpact {
    /// This node is not part of a cluster yet.
    NotJoined,
    /// The cluster does not need this worker.
    Unaffected,
    /// The cluster continues.
    Survives {
        /// Number of healthy members without this one.
        healthy: usize,
    },
    /// The cluster ends, or cannot work without this node now. Contains the reason.
    Ends(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResetPreview {
    what: EraseTarget,
    pub node: String,
    /// The cluster's name. Empty if a worker's configuration cannot be read.
    pub cluster_name: String,
    pub cluster: ClusterImpact,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum EraseTarget {
    DataDisk {
        disk: Disk,
        identity: Box<Identity>,
    },
    /// A worker's state on scratch, and its disk for local volumes if there is one.
    Worker {
        volumes: Volumes,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Volumes {
    None,
    /// The worker has a disk, but it is not attached or cannot be read.
    Missing,
    There {
        disk: Disk,
        identity: Box<Identity>,
    },
}

impl Volumes {
    /// The disk that this VM has taken, if the worker has one.
    fn of(platform: &Platform, records: &Records) -> anyhow::Result<Self> {
        let mut taken = disk::taken_volumes(platform).context("looking at the disks")?;
        if taken.len() > 1 {
            bail!(
                "{} disks with local volumes are attached: detach all but this worker's; nothing is erased",
                taken.len()
            );
        }
        // An unreadable record is no reason to keep the other state.
        let remembered = records.entry::<VolumesDisk>().ok().flatten().and_then(|known| known.disk);
        Ok(match taken.pop() {
            Some((disk, identity)) => Self::There { disk, identity: Box::new(identity) },
            None if remembered.is_some() => Self::Missing,
            None => Self::None,
        })
    }

    fn words(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::Missing => " The disk of its local volumes is missing, and is not erased.".to_owned(),
            Self::There { disk, .. } => format!(" ALL LOCAL VOLUMES on its disk {} are erased.", disk.path.display()),
        }
    }
}

impl ResetPreview {
    /// The effect of the reset, for the operator who is about to type the node's name.
    pub fn words(&self) -> String {
        let Self { node, cluster_name: cluster, what, .. } = self;
        let disk = match what {
            EraseTarget::Worker { volumes } => {
                let cluster = if cluster.is_empty() { "its cluster".to_owned() } else { format!("cluster {cluster}") };
                return format!(
                    "Everything that worker {node} keeps is erased: its certificates and its configuration.{} It restarts as \
                     freshly deployed and needs its OVF environment again, with a new join token. Drain it before; \
                     {cluster} continues, and keeps its Node object until you delete it: kubectl delete node {node}",
                    volumes.words()
                );
            }
            EraseTarget::DataDisk { disk, .. } => disk.path.display(),
        };
        let fate = match &self.cluster {
            ClusterImpact::Unaffected => format!("Cluster {cluster} continues."),
            ClusterImpact::NotJoined => "It is not part of a cluster yet.".to_owned(),
            ClusterImpact::Survives { healthy } => format!(
                "Cluster {cluster} continues with its {healthy} other members. Afterwards run `kaas-agent replace-member` \
                 on one of them, so that this node can join again."
            ),
            ClusterImpact::Ends(why) => format!("THIS ENDS CLUSTER {cluster}: {why}."),
        };
        format!(
            "Everything that node {node} has on its data disk {disk} is erased: its part of etcd, its certificates, its \
             configuration. It restarts as freshly deployed and needs its OVF environment again. {fate}"
        )
    }

    /// Checks the confirmation: the node's name, and the cluster's name if the cluster ends.
    pub fn confirmed(&self, node: &str, cluster: Option<&str>) -> Result<(), String> {
        if node != self.node {
            return Err(format!("this node is {}, not {node:?}: nothing was changed", self.node));
        }
        let ClusterImpact::Ends(why) = &self.cluster else { return Ok(()) };
        let own = &self.cluster_name;
        match cluster {
            Some(typed) if typed == own => Ok(()),
            Some(typed) => Err(format!("the cluster is {own}, not {typed:?}: nothing was changed")),
            None => Err(format!(
                "this would end cluster {own}: {why}. Nothing was changed. If you want that, type the cluster's name as \
                 well: --confirm-end-of {own}"
            )),
        }
    }
}

/// Determines the effect of a reset. Changes nothing. An error if no data disk certainly belongs to this node.
pub fn look(platform: &Platform, runner: &dyn Runner) -> anyhow::Result<ResetPreview> {
    if worker_state::has_config(platform) {
        // Unreadable records are a worker's as well: no other role stores anything there.
        let records = Records::new(platform.root());
        let config = records.config().ok().flatten();
        let named = config.map(|config| (config.node().name.clone(), config.cluster_name().to_owned()));
        let (node, cluster_name) = match named {
            Some(named) => named,
            None => (host_name(platform)?, String::new()),
        };
        let volumes = Volumes::of(platform, &records)?;
        return Ok(ResetPreview {
            what: EraseTarget::Worker { volumes },
            node,
            cluster_name,
            cluster: ClusterImpact::Unaffected,
        });
    }
    let claimant = Claimant::of(platform, &image::read(platform.root())?);
    let examination = disk::examine(platform, &claimant, platform.root(), runner).context("looking at the disks")?;
    let DataDisk::Ours { disk, identity } = examination.data_disk else {
        bail!("there is no data disk that is certainly this node's, so nothing is erased\n{}", examination.findings);
    };
    let records = Records::new(platform.root());
    let cluster = match records.config() {
        Err(error) => {
            ClusterImpact::Ends(format!("its configuration cannot be read, so the others cannot be asked: {error:#}"))
        }
        // A node with unreadable progress counts as a member.
        Ok(Some(Config::ControlPlane(_))) if records.progress().is_ok_and(|progress| !progress.etcd) => {
            ClusterImpact::NotJoined
        }
        Ok(Some(Config::ControlPlane(config))) => survivors(&config, &platform.path(PKI)),
        Ok(Some(Config::Worker(_))) => bail!("the configuration on the data disk is a worker's"),
        Ok(None) if identity.state == disk::DiskState::Formed => {
            ClusterImpact::Ends("the data disk is not mounted, so the other members cannot be asked".to_owned())
        }
        Ok(None) => ClusterImpact::NotJoined,
    };
    let (node, cluster_name) = (identity.node.clone(), identity.cluster.clone());
    Ok(ResetPreview { what: EraseTarget::DataDisk { disk, identity: Box::new(identity) }, node, cluster_name, cluster })
}

/// The host name, in place of the name in a configuration.
fn host_name(platform: &Platform) -> anyhow::Result<String> {
    let name = fs::read_to_string(platform.path("/proc/sys/kernel/hostname")).context("asking for the host's name")?;
    Ok(name.trim().to_owned())
}

fn survivors(config: &ControlPlane, pki: &Path) -> ClusterImpact {
    let timeout = config.timeout(REQUEST);
    let healthy = config.peers().filter(|node| member::healthy(node, pki, timeout)).count();
    judge(config.cluster.control_nodes.len(), healthy)
}

/// The effect on an etcd cluster with `members` members: this one is lost, and `healthy` of the others are healthy.
fn judge(members: usize, healthy: usize) -> ClusterImpact {
    let quorum = members / 2 + 1;
    if members == 1 {
        ClusterImpact::Ends("this is its only control-plane node".to_owned())
    } else if healthy >= quorum {
        ClusterImpact::Survives { healthy }
    } else {
        ClusterImpact::Ends(format!("only {healthy} of its other members are healthy, and etcd needs {quorum}"))
    }
}

/// Marks the state to be erased and restarts the system. The operator must have confirmed it with
/// [`ResetPreview::confirmed`]. A marked disk is erased at the next start, also after an error.
pub fn begin(outlook: &ResetPreview, platform: &Platform, runner: &dyn Runner) -> anyhow::Result<()> {
    let mark = || {
        let what = match &outlook.what {
            EraseTarget::DataDisk { disk, identity } => {
                erase::mark(disk, identity).with_context(|| format!("marking {}", disk.path.display()))?;
                disk.path.display().to_string()
            }
            // The disk comes first: a start that finds it marked continues with the rest.
            EraseTarget::Worker { volumes } => {
                if let Volumes::There { disk, identity } = volumes {
                    erase::mark(disk, identity).with_context(|| format!("marking {}", disk.path.display()))?;
                }
                worker_state::mark(platform).context("marking what this worker keeps")?;
                "what this worker keeps".to_owned()
            }
        };
        log::warn!("{what} is marked to be erased, as was confirmed");
        Ok(())
    };
    services::write_and_reboot(runner, mark, "it is erased at the next start")
}

pub fn command(root: &Path, options: &Options, runner: &dyn Runner) -> anyhow::Result<()> {
    let platform = Platform::detect(root)?;
    let outlook = look(&platform, runner)?;
    outlook.confirmed(&options.confirm, options.confirm_end_of.as_deref()).map_err(anyhow::Error::msg)?;
    println!("{}", outlook.words());
    begin(&outlook, &platform, runner)
}

/// Finishes a reset after the restart. It erases the marked data disk, this VM's scratch partition, and the
/// hypervisor's copy of the OVF environment. `progress` receives the share that is done. After an error another call
/// continues.
pub fn finish(
    disk: &Disk,
    platform: &Platform,
    runner: &dyn Runner,
    progress: &mut dyn FnMut(Finding),
) -> Result<(), Finding> {
    finish_beside(GuestInfo::of_this_machine(), disk, platform, runner, progress)
}

/// As [`finish`], for a worker. Its state is on scratch, and the mark there is removed last. A marked disk of local
/// volumes is erased before that.
pub fn finish_worker(
    platform: &Platform,
    runner: &dyn Runner,
    progress: &mut dyn FnMut(Finding),
) -> Result<(), Finding> {
    let failed = |what: String, error: io::Error| {
        let action = "It is tried again; if it stays, deploy the VM again";
        codes::RESET_FAILED.finding("this worker", format!("{what}: {error}"), action)
    };
    // The state is in use until the requested restart.
    let mounted = disk::is_mounted(&platform.path(paths::LOCAL_VOLUMES));
    if mounted.map_err(|error| failed("reading the mounts".to_owned(), error))? {
        return Err(codes::RESET_FAILED.finding("this worker", "its local volumes are in use", "Restart the VM"));
    }
    empty_scratch(platform).map_err(|(directory, error)| failed(format!("emptying {directory}"), error))?;
    forget_environment(GuestInfo::of_this_machine())
        .map_err(|error| failed("removing the OVF environment".to_owned(), io::Error::other(error)))?;
    let taken = disk::taken_volumes(platform).map_err(|error| failed("listing the disks".to_owned(), error))?;
    for (disk, _) in taken.iter().filter(|(_, identity)| identity.state == disk::DiskState::Erasing) {
        erase_disk(disk, runner, progress)?;
    }
    worker_state::erase(platform).map_err(|error| failed("erasing what it keeps".to_owned(), error))
}

/// Empties the node's directories on the scratch partition. The journal of this boot stays.
fn empty_scratch(platform: &Platform) -> Result<(), (&'static str, io::Error)> {
    let machine_id = fs::read_to_string(platform.path("/etc/machine-id")).unwrap_or_default();
    SCRATCH.into_iter().try_for_each(|directory| {
        empty(&platform.path(directory), machine_id.trim()).map_err(|error| (directory, error))
    })
}

fn finish_beside(
    guestinfo: Option<GuestInfo<impl Port>>,
    disk: &Disk,
    platform: &Platform,
    runner: &dyn Runner,
    progress: &mut dyn FnMut(Finding),
) -> Result<(), Finding> {
    let failed = |what: &str, error: io::Error| not_erased(disk, what, error);
    // While the disk is marked, this is repeated after a power cut.
    empty_scratch(platform).map_err(|(directory, error)| failed(&format!("emptying {directory}"), error))?;
    // This precedes the erasure: after a power cut in between, the old properties would be used.
    forget_environment(guestinfo).map_err(|error| failed("removing the OVF environment", io::Error::other(error)))?;
    erase_disk(disk, runner, progress)
}

fn not_erased(disk: &Disk, what: &str, error: io::Error) -> Finding {
    codes::RESET_FAILED.finding(
        disk.path.display().to_string(),
        format!("{what}: {error}"),
        "It is tried again; if it stays, replace the data disk with an empty one",
    )
}

fn erase_disk(disk: &Disk, runner: &dyn Runner, progress: &mut dyn FnMut(Finding)) -> Result<(), Finding> {
    let name = disk.path.display().to_string();
    let mut tell = |share: u64| {
        progress(codes::RESET_UNDER_WAY.finding(
            &name,
            format!("{share} % of the data disk are erased"),
            "Wait; the node then starts again and needs its OVF environment",
        ));
    };
    erase::erase(disk, runner, &mut tell).map_err(|error| not_erased(disk, "erasing it", error))
}

/// Removes the OVF environment of the last power-on, which is not for the new node. Every process of a VM can write it,
/// and so could each pod here. The next power-on restores vCenter's environment.
fn forget_environment(guestinfo: Option<GuestInfo<impl Port>>) -> Result<(), guestinfo::Error> {
    match guestinfo.map(|mut guestinfo| guestinfo.remove()) {
        // Then pods cannot set it either.
        Some(Err(error @ guestinfo::Error::Refused { .. })) => {
            log::warn!("the OVF environment stays in guestinfo: {error}");
            Ok(())
        }
        Some(Err(error)) => Err(error),
        Some(Ok(true)) => {
            log::info!("the OVF environment was removed from guestinfo: the next power-on restores it");
            Ok(())
        }
        Some(Ok(false)) | None => Ok(()),
    }
}

/// Removes the content of a directory, except mounts and the entry `stays`, which is the journal of this boot.
fn empty(directory: &Path, stays: &str) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        if entry.file_name() == stays || disk::is_mounted(&path)? {
            continue;
        }
        if entry.file_type()?.is_dir() { fs::remove_dir_all(&path)? } else { fs::remove_file(&path)? }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::command::{self, Command};
    use crate::host::disk::{DiskState, fixture};
    use crate::host::files::power;
    use crate::host::vmware::backdoor::Registers;
    use crate::host::vmware::backdoor::emulated::Hypervisor;
    use crate::maintenance::space;

    fn outlook(cluster: ClusterImpact) -> ResetPreview {
        let identity = Identity { holder: None, state: DiskState::Formed, ..fixture::identity() };
        let disk = Disk { path: "/dev/sdb".into(), size: 1 << 32, sector: 512, read_only: false };
        let (node, cluster_name) = (identity.node.clone(), identity.cluster.clone());
        ResetPreview { what: EraseTarget::DataDisk { disk, identity: Box::new(identity) }, node, cluster_name, cluster }
    }

    #[test]
    fn cluster_survives_with_a_quorum_of_the_others() {
        assert_eq!(judge(3, 2), ClusterImpact::Survives { healthy: 2 });
        for (members, healthy) in [(3, 1), (3, 0), (1, 0)] {
            assert!(matches!(judge(members, healthy), ClusterImpact::Ends(_)), "{members} {healthy}");
        }
    }

    #[test]
    fn confirmation_requires_the_right_names() {
        let lasting = outlook(ClusterImpact::Survives { healthy: 2 });
        assert_eq!(lasting.confirmed("cp-1", None), Ok(()));
        for typed in ["cp-2", "", "CP-1", "cp-1 ", "yes"] {
            let refused = lasting.confirmed(typed, Some("alpha")).unwrap_err();
            assert!(refused.contains("this node is cp-1") && refused.contains("nothing was changed"), "{refused}");
        }
        let last = outlook(ClusterImpact::Ends("this is its only control-plane node".into()));
        assert!(last.confirmed("cp-1", None).unwrap_err().contains("--confirm-end-of alpha"));
        assert!(last.confirmed("cp-1", Some("beta")).unwrap_err().contains("the cluster is alpha"));
        assert_eq!(last.confirmed("cp-1", Some("alpha")), Ok(()));
        assert!(last.confirmed("cp-2", Some("alpha")).is_err());
    }

    #[test]
    fn worker_reset_requires_only_its_name() {
        let machine = fixture::Machine::new();
        let root = machine.directory.path();
        let kept = root.join("var/lib/kaas/kaas");
        fs::create_dir_all(&kept).unwrap();
        fs::create_dir_all(root.join("data/kaas")).unwrap();
        let config = Config::Worker(crate::intake::config::fixture::joined());
        let records = Records::new(root);
        records.update_config(&config, None).unwrap();
        fs::copy(root.join("data/kaas/config.json"), kept.join("config.json")).unwrap();
        let platform = machine.platform();
        let outlook = look(&platform, &NoPrograms).unwrap();
        assert_eq!(outlook.confirmed("worker1", None), Ok(()));
        assert!(outlook.confirmed("worker2", None).is_err());
        assert!(outlook.words().contains("cluster lab continues"), "{}", outlook.words());
        // A worker with an unreadable configuration has the host's name.
        for copy in ["config.json", "config-copy.json"] {
            fs::write(root.join("data/kaas").join(copy), "{").unwrap();
        }
        fs::create_dir_all(root.join("proc/sys/kernel")).unwrap();
        fs::write(root.join("proc/sys/kernel/hostname"), "worker7\n").unwrap();
        let outlook = look(&platform, &NoPrograms).unwrap();
        assert_eq!(outlook.confirmed("worker7", None), Ok(()));
        assert!(outlook.confirmed("worker1", None).is_err());
        assert!(outlook.words().contains("; its cluster continues"), "{}", outlook.words());
        worker_state::mark(&platform).unwrap();
        fs::create_dir_all(root.join("var/lib/kubelet/pods/x")).unwrap();
        finish_worker(&platform, &NoPrograms, &mut |_| {}).unwrap();
        assert!(!worker_state::has_config(&platform) && !root.join("var/lib/kubelet/pods").exists());
    }

    /// A worker with state that a reset erases, and with a disk for local volumes.
    fn worker_with_volumes() -> (fixture::Machine, Disk) {
        let mut machine = fixture::Machine::new();
        let path = machine.add("volumes");
        let disk = Disk::open(&path, &machine.platform()).unwrap();
        let local_volumes = Some(disk::LocalVolumes { ca_hash: "sha256:ours".to_owned() });
        let identity = Identity { state: DiskState::Formed, local_volumes, ..fixture::identity() };
        disk::layout::write_table(&path, identity.disk, disk.size, disk.sector, &command::Host).unwrap();
        disk::slots::write(&path, &identity).unwrap();
        disk::slots::write(&path, &identity).unwrap();
        let root = machine.directory.path();
        fs::create_dir_all(root.join("data/kaas")).unwrap();
        fs::create_dir_all(root.join("var/lib/kaas/kaas")).unwrap();
        let records = Records::new(root);
        records.update_config(&Config::Worker(crate::intake::config::fixture::joined()), None).unwrap();
        records.begin_entry(&VolumesDisk { disk: Some(identity.disk) }).unwrap();
        fs::copy(root.join("data/kaas/config.json"), root.join("var/lib/kaas/kaas/config.json")).unwrap();
        (machine, disk)
    }

    #[test]
    fn interrupted_worker_reset_erases_its_local_volumes() {
        struct Systemd;
        impl Runner for Systemd {
            fn run(&self, _: &Command) -> Result<Vec<u8>, command::Error> {
                Ok(Vec::new())
            }
        }
        let mut things = 0;
        loop {
            let (machine, disk) = worker_with_volumes();
            let platform = machine.platform();
            let outlook = look(&platform, &NoPrograms).unwrap();
            assert!(outlook.words().contains("ALL LOCAL VOLUMES"), "{}", outlook.words());
            let (begun, cut) = power::with(things, || begin(&outlook, &platform, &Systemd));
            assert!(cut || begun.is_ok(), "{begun:?}");
            let disks = || disk::Disks::look(&platform, platform.root(), &command::Host).unwrap();
            let marked = disks().erasing_volumes(platform.bios_uuid()).is_some();
            assert!(marked || !worker_state::is_marked(&platform), "after {things} things: the disk is marked first");
            if !cut {
                // The erasure is interrupted at each write and repeated until it succeeds.
                let mut cuts = 0;
                while power::with(cuts, || finish_worker(&platform, &fixture::Holes, &mut |_| {})).0.is_err() {
                    assert!(worker_state::is_marked(&platform), "after {cuts} things of the end");
                    cuts += 1;
                }
                assert!(!worker_state::has_config(&platform) && !worker_state::is_marked(&platform));
                assert!(disk::Slots::read(&disk.path).unwrap().newest().is_none(), "the disk is blank");
                break;
            }
            things += 1;
        }
        assert!(things >= 3, "only {things} things were saved");
    }

    #[test]
    fn missing_volumes_disk_is_named() {
        let (machine, disk) = worker_with_volumes();
        fs::remove_file(&disk.path).unwrap();
        fs::File::create(&disk.path).unwrap().set_len(disk.size).unwrap();
        let words = look(&machine.platform(), &NoPrograms).unwrap().words();
        assert!(words.contains("is missing"), "{words}");
    }

    #[test]
    fn preview_names_disk_and_cluster() {
        let words = outlook(ClusterImpact::Ends("this is its only control-plane node".into())).words();
        assert!(words.contains("/dev/sdb") && words.contains("THIS ENDS CLUSTER alpha"), "{words}");
        assert!(outlook(ClusterImpact::Survives { healthy: 2 }).words().contains("replace-member"));
    }

    /// The size of a disk that is erased with zeros. A build host may keep temporary files in little memory.
    const SMALL: u64 = 16 << 20;

    struct Line<'a>(&'a mut Hypervisor);

    impl Port for Line<'_> {
        fn exchange(&mut self, registers: Registers) -> Registers {
            self.0.exchange(registers)
        }
    }

    /// Resets a node with this hypervisor. Returns the environment that the next boot finds.
    fn reset_beside(hypervisor: &mut Hypervisor) -> Option<Vec<u8>> {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("disk");
        fs::File::create(&path).unwrap().set_len(SMALL).unwrap();
        let erasing = Identity { holder: None, state: DiskState::Erasing, ..fixture::identity() };
        disk::slots::write(&path, &erasing).unwrap();
        let disk = Disk { path, size: SMALL, sector: 512, read_only: false };
        let platform = Platform::detect(root.path()).unwrap();
        finish_beside(Some(GuestInfo::new(Line(hypervisor))), &disk, &platform, &NoPrograms, &mut |_| {}).unwrap();
        assert!(disk::Slots::read(&disk.path).unwrap().newest().is_none(), "the disk is blank");
        GuestInfo::new(Line(hypervisor)).environment().unwrap()
    }

    /// Without blkdiscard, the erasure writes zeros.
    struct NoPrograms;

    impl Runner for NoPrograms {
        fn run(&self, command: &Command) -> Result<Vec<u8>, command::Error> {
            command::Host.run(&Command::new("/nonexistent").arg(command.to_string()))
        }
    }

    #[test]
    fn reset_removes_an_environment_written_by_pods() {
        let forged = include_str!("../intake/environment/fixtures/three-nodes.xml");
        assert_eq!(reset_beside(&mut Hypervisor::with(guestinfo::OVF_ENVIRONMENT, forged)), None);
        assert_eq!(reset_beside(&mut Hypervisor::default()), None);
        // If guests cannot set values, pods cannot either, and the reset does not wait for it.
        let mut closed = Hypervisor::with(guestinfo::OVF_ENVIRONMENT, forged);
        closed.writable = false;
        assert!(reset_beside(&mut closed).is_some());
    }

    #[test]
    fn erasure_reports_progress_and_failure() {
        let root = tempfile::tempdir().unwrap();
        let platform = Platform::detect(root.path()).unwrap();
        let path = root.path().join("disk");
        fs::File::create(&path).unwrap().set_len(SMALL).unwrap();
        let identity = Identity { state: DiskState::Erasing, ..fixture::identity() };
        disk::slots::write(&path, &identity).unwrap();
        let disk = Disk { path, size: SMALL, sector: 512, read_only: false };
        let mut told = Vec::new();
        finish(&disk, &platform, &crate::host::command::Host, &mut |finding| told.push(finding)).unwrap();
        assert!(told.iter().all(|finding| finding.code == "reset.under-way"), "{told:?}");
        assert!(told.last().unwrap().seen.starts_with("100 % "), "{told:?}");
        // The disk is blank now and may not be erased.
        let failed = finish(&disk, &platform, &crate::host::command::Host, &mut |_| {}).unwrap_err();
        assert_eq!(failed.code, "reset.failed");
        assert!(failed.seen.contains("is not one that is to be erased"), "{failed}");
    }

    #[test]
    fn reset_covers_all_users_of_scratch() {
        for user in space::scratch_users() {
            assert!(SCRATCH.contains(&user.as_str()), "{user} outlives a reset");
        }
    }

    #[test]
    fn emptied_directories_stay() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("kubelet");
        fs::create_dir_all(directory.join("pods/a")).unwrap();
        fs::write(directory.join("state"), "x").unwrap();
        fs::create_dir(directory.join("0123")).unwrap();
        empty(&directory, "0123").unwrap();
        empty(&root.path().join("nowhere"), "").unwrap();
        let left: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["0123"]);
    }
}
