//! Makes a blank node of this one: what is ours is erased, on the data disk
//! and on this VM's scratch partition, and nothing else. What a person must have
//! typed is checked here, for the command line and the console alike.
//!
//! The data disk is only marked while the node runs. It is erased after the
//! restart, before anything of it is mounted, and after a power cut again.

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

/// What the scratch partition holds of a node: the runtime's, the kubelet's and the pods' data, and logs.
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
    /// This node's name, typed out
    #[arg(long, value_name = "NODE")]
    confirm: String,
    /// The cluster's name, typed out as well: needed where the cluster ends with this node
    #[arg(long, value_name = "CLUSTER")]
    confirm_end_of: Option<String>,
}

/// What the cluster is without this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterImpact {
    /// This node has not become part of one yet.
    NotJoined,
    /// It goes on without a worker as before.
    Unaffected,
    /// It goes on: so many of the other members are healthy.
    Survives {
        /// Members besides this one that are healthy.
        healthy: usize,
    },
    /// It ends, or cannot do without this node now; says why.
    Ends(String),
}

/// What a reset of this node would mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResetPreview {
    what: EraseTarget,
    /// This node's name.
    pub node: String,
    /// Its cluster's; empty if a worker's configuration cannot be read.
    pub cluster_name: String,
    /// What becomes of the cluster.
    pub cluster: ClusterImpact,
}

/// What is erased.
#[derive(Clone, Debug, PartialEq, Eq)]
enum EraseTarget {
    /// A data disk.
    DataDisk {
        /// The disk.
        disk: Disk,
        /// Whose it is.
        identity: Box<Identity>,
    },
    /// What a worker keeps on scratch, and the disk of its local volumes if there is one.
    Worker {
        /// Whether it has one, and that is there.
        volumes: Volumes,
    },
}

/// The disk of a worker's local volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Volumes {
    /// The worker has none.
    None,
    /// It has one, which is not attached or cannot be read.
    Missing,
    /// It is there.
    There {
        /// The disk.
        disk: Disk,
        /// Whose it is.
        identity: Box<Identity>,
    },
}

impl Volumes {
    /// What a worker has of it, that this VM has taken.
    fn of(platform: &Platform, records: &Records) -> anyhow::Result<Self> {
        let mut taken = disk::taken_volumes(platform).context("looking at the disks")?;
        if taken.len() > 1 {
            bail!(
                "{} disks with local volumes are attached: detach all but this worker's; nothing is erased",
                taken.len()
            );
        }
        // What cannot be read is no reason to keep the rest.
        let remembered = records.entry::<VolumesDisk>().ok().flatten().and_then(|known| known.disk);
        Ok(match taken.pop() {
            Some((disk, identity)) => Self::There { disk, identity: Box::new(identity) },
            None if remembered.is_some() => Self::Missing,
            None => Self::None,
        })
    }

    /// What becomes of it, for a person.
    fn words(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::Missing => " The disk of its local volumes is not there, and stays as it is.".to_owned(),
            Self::There { disk, .. } => format!(" ALL LOCAL VOLUMES on its disk {} are erased.", disk.path.display()),
        }
    }
}

impl ResetPreview {
    /// What will happen, for a person who is about to type the node's name.
    pub fn words(&self) -> String {
        let Self { node, cluster_name: cluster, what, .. } = self;
        let disk = match what {
            EraseTarget::Worker { volumes } => {
                let cluster = if cluster.is_empty() { "its cluster".to_owned() } else { format!("cluster {cluster}") };
                return format!(
                    "Everything that worker {node} keeps is erased: its certificates and its configuration.{} It restarts as \
                     freshly deployed and needs its OVF environment again, with a new join token. Drain it before; \
                     {cluster} goes on, and keeps its Node object until somebody deletes it: kubectl delete node {node}",
                    volumes.words()
                );
            }
            EraseTarget::DataDisk { disk, .. } => disk.path.display(),
        };
        let fate = match &self.cluster {
            ClusterImpact::Unaffected => format!("Cluster {cluster} goes on."),
            ClusterImpact::NotJoined => "It is not part of a cluster yet.".to_owned(),
            ClusterImpact::Survives { healthy } => format!(
                "Cluster {cluster} goes on with its {healthy} other members. Afterwards let a survivor take the blank \
                 node in with `kaas-agent replace-member`."
            ),
            ClusterImpact::Ends(why) => format!("THIS ENDS CLUSTER {cluster}: {why}."),
        };
        format!(
            "Everything that node {node} has on its data disk {disk} is erased: its part of etcd, its certificates, its \
             configuration. It restarts as freshly deployed and needs its OVF environment again. {fate}"
        )
    }

    /// Checks what was typed: the node's name, and where the cluster ends its name too.
    ///
    /// # Errors
    /// Why nothing will be done, in words for a person.
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
                "this would end cluster {own}: {why}. Nothing was changed. If that is meant, type the cluster's name as \
                 well: --confirm-end-of {own}"
            )),
        }
    }
}

/// Looks at what a reset would mean. Changes nothing.
///
/// # Errors
/// There is no data disk that is certainly this node's.
pub fn look(platform: &Platform, runner: &dyn Runner) -> anyhow::Result<ResetPreview> {
    if worker_state::has_config(platform) {
        // What cannot be read is a worker's as well: nobody else keeps anything there.
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
        // One whose progress cannot be read counts as a member.
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

/// What the host is called: it is as good a name as a node without a configuration has.
fn host_name(platform: &Platform) -> anyhow::Result<String> {
    let name = fs::read_to_string(platform.path("/proc/sys/kernel/hostname")).context("asking for the host's name")?;
    Ok(name.trim().to_owned())
}

fn survivors(config: &ControlPlane, pki: &Path) -> ClusterImpact {
    let timeout = config.timeout(REQUEST);
    let healthy = config.peers().filter(|node| member::healthy(node, pki, timeout)).count();
    judge(config.cluster.control_nodes.len(), healthy)
}

/// What becomes of an etcd cluster of so many members when one goes and so many of the others are healthy.
fn judge(members: usize, healthy: usize) -> ClusterImpact {
    let quorum = members / 2 + 1;
    if members == 1 {
        ClusterImpact::Ends("this is its only control node".to_owned())
    } else if healthy >= quorum {
        ClusterImpact::Survives { healthy }
    } else {
        ClusterImpact::Ends(format!("only {healthy} of its other members are healthy, and etcd needs {quorum}"))
    }
}

/// Marks the data disk as one to be erased and restarts the system. The person must have been asked:
/// see [`Outlook::confirmed`].
///
/// # Errors
/// The disk cannot be marked, or the system does not restart; once marked, the next start erases it.
pub fn begin(outlook: &ResetPreview, platform: &Platform, runner: &dyn Runner) -> anyhow::Result<()> {
    let mark = || {
        let what = match &outlook.what {
            EraseTarget::DataDisk { disk, identity } => {
                erase::mark(disk, identity).with_context(|| format!("marking {}", disk.path.display()))?;
                disk.path.display().to_string()
            }
            // The disk first: a start that finds it marked goes on with the rest.
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

/// Does what the command line says.
///
/// # Errors
/// What was typed does not fit, or it cannot be done.
pub fn command(root: &Path, options: &Options, runner: &dyn Runner) -> anyhow::Result<()> {
    let platform = Platform::detect(root)?;
    let outlook = look(&platform, runner)?;
    outlook.confirmed(&options.confirm, options.confirm_end_of.as_deref()).map_err(anyhow::Error::msg)?;
    println!("{}", outlook.words());
    begin(&outlook, &platform, runner)
}

/// Finishes a reset after the restart: erases the marked data disk and this VM's scratch, and the OVF environment that the
/// hypervisor still has. `progress` is told how far it is.
///
/// # Errors
/// A finding that says what failed; doing it again goes on.
pub fn finish(
    disk: &Disk,
    platform: &Platform,
    runner: &dyn Runner,
    progress: &mut dyn FnMut(Finding),
) -> Result<(), Finding> {
    finish_beside(GuestInfo::of_this_machine(), disk, platform, runner, progress)
}

/// As [`finish`], of a worker: what it keeps is on scratch, and the mark there goes last. A disk of local volumes that is marked
/// is erased before that.
///
/// # Errors
/// A finding that says what failed; doing it again goes on.
pub fn finish_worker(
    platform: &Platform,
    runner: &dyn Runner,
    progress: &mut dyn FnMut(Finding),
) -> Result<(), Finding> {
    let failed = |what: String, error: io::Error| {
        let action = "It is tried again; if it stays, deploy the VM anew";
        codes::RESET_FAILED.finding("this worker", format!("{what}: {error}"), action)
    };
    // Until the restart that was asked for all of it is in use.
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

/// Empties what the scratch partition holds of a node; the journal of this boot stays.
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
    // While the disk is marked this is done again after a cut.
    empty_scratch(platform).map_err(|(directory, error)| failed(&format!("emptying {directory}"), error))?;
    // Before the disk is blank: after a cut then, the properties would count.
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

/// Erases a disk that is marked so.
fn erase_disk(disk: &Disk, runner: &dyn Runner, progress: &mut dyn FnMut(Finding)) -> Result<(), Finding> {
    let name = disk.path.display().to_string();
    let mut tell = |share: u64| {
        progress(codes::RESET_UNDER_WAY.finding(
            &name,
            format!("{share} % of the data disk are erased"),
            "Wait; the node then begins anew and needs its OVF environment",
        ));
    };
    erase::erase(disk, runner, &mut tell).map_err(|error| not_erased(disk, "erasing it", error))
}

/// What the hypervisor has since the last power-on is not the new node's: every pod that ran here could write it, as any
/// process of a VM can. The next power-on gives what vCenter has.
fn forget_environment(guestinfo: Option<GuestInfo<impl Port>>) -> Result<(), guestinfo::Error> {
    match guestinfo.map(|mut guestinfo| guestinfo.remove()) {
        // Nobody else can set it either, then.
        Some(Err(error @ guestinfo::Error::Refused { .. })) => {
            log::warn!("the OVF environment stays in guestinfo: {error}");
            Ok(())
        }
        Some(Err(error)) => Err(error),
        Some(Ok(true)) => {
            log::info!("the OVF environment was removed from guestinfo: the next power-on gives it anew");
            Ok(())
        }
        Some(Ok(false)) | None => Ok(()),
    }
}

/// Removes what is in a directory, except what is mounted there and what is called `stays`: the journal that this boot
/// writes.
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
    fn a_quorum_of_the_others_decides() {
        assert_eq!(judge(3, 2), ClusterImpact::Survives { healthy: 2 });
        for (members, healthy) in [(3, 1), (3, 0), (1, 0)] {
            assert!(matches!(judge(members, healthy), ClusterImpact::Ends(_)), "{members} {healthy}");
        }
    }

    #[test]
    fn names_must_be_typed_and_be_right() {
        let lasting = outlook(ClusterImpact::Survives { healthy: 2 });
        assert_eq!(lasting.confirmed("cp-1", None), Ok(()));
        for typed in ["cp-2", "", "CP-1", "cp-1 ", "yes"] {
            let refused = lasting.confirmed(typed, Some("alpha")).unwrap_err();
            assert!(refused.contains("this node is cp-1") && refused.contains("nothing was changed"), "{refused}");
        }
        let last = outlook(ClusterImpact::Ends("this is its only control node".into()));
        assert!(last.confirmed("cp-1", None).unwrap_err().contains("--confirm-end-of alpha"));
        assert!(last.confirmed("cp-1", Some("beta")).unwrap_err().contains("the cluster is alpha"));
        assert_eq!(last.confirmed("cp-1", Some("alpha")), Ok(()));
        assert!(last.confirmed("cp-2", Some("alpha")).is_err());
    }

    #[test]
    fn a_worker_is_erased_by_its_name_and_its_cluster_goes_on() {
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
        assert!(outlook.words().contains("cluster lab goes on"), "{}", outlook.words());
        // One whose configuration cannot be read goes by the host's name.
        for copy in ["config.json", "config-copy.json"] {
            fs::write(root.join("data/kaas").join(copy), "{").unwrap();
        }
        fs::create_dir_all(root.join("proc/sys/kernel")).unwrap();
        fs::write(root.join("proc/sys/kernel/hostname"), "worker7\n").unwrap();
        let outlook = look(&platform, &NoPrograms).unwrap();
        assert_eq!(outlook.confirmed("worker7", None), Ok(()));
        assert!(outlook.confirmed("worker1", None).is_err());
        assert!(outlook.words().contains("; its cluster goes on"), "{}", outlook.words());
        worker_state::mark(&platform).unwrap();
        fs::create_dir_all(root.join("var/lib/kubelet/pods/x")).unwrap();
        finish_worker(&platform, &NoPrograms, &mut |_| {}).unwrap();
        assert!(!worker_state::has_config(&platform) && !root.join("var/lib/kubelet/pods").exists());
    }

    /// A worker that keeps what a reset is to erase, with the disk of its local volumes.
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
    fn a_workers_local_volumes_go_with_it_and_a_cut_leaves_no_half_of_them() {
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
                // As long as it takes, cut off at each thing.
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
    fn a_disk_that_is_not_there_is_named_and_stays() {
        let (machine, disk) = worker_with_volumes();
        fs::remove_file(&disk.path).unwrap();
        fs::File::create(&disk.path).unwrap().set_len(disk.size).unwrap();
        let words = look(&machine.platform(), &NoPrograms).unwrap().words();
        assert!(words.contains("is not there"), "{words}");
    }

    #[test]
    fn what_happens_is_said_with_the_disk_and_the_cluster() {
        let words = outlook(ClusterImpact::Ends("this is its only control node".into())).words();
        assert!(words.contains("/dev/sdb") && words.contains("THIS ENDS CLUSTER alpha"), "{words}");
        assert!(outlook(ClusterImpact::Survives { healthy: 2 }).words().contains("replace-member"));
    }

    /// The size of a disk that is erased with zeros: a build host may keep temporary files in little memory.
    const SMALL: u64 = 16 << 20;

    /// Passes on to a hypervisor that outlives what speaks to it.
    struct Line<'a>(&'a mut Hypervisor);

    impl Port for Line<'_> {
        fn exchange(&mut self, registers: Registers) -> Registers {
            self.0.exchange(registers)
        }
    }

    /// A reset of a node whose hypervisor has this; says what the next boot finds.
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

    /// Without blkdiscard, zeros are written.
    struct NoPrograms;

    impl Runner for NoPrograms {
        fn run(&self, command: &Command) -> Result<Vec<u8>, command::Error> {
            command::Host.run(&Command::new("/nonexistent").arg(command.to_string()))
        }
    }

    #[test]
    fn what_pods_wrote_for_the_next_node_is_gone_with_this_one() {
        let forged = include_str!("../intake/environment/fixtures/three-nodes.xml");
        assert_eq!(reset_beside(&mut Hypervisor::with(guestinfo::OVF_ENVIRONMENT, forged)), None);
        assert_eq!(reset_beside(&mut Hypervisor::default()), None);
        // Where guests may set nothing, pods may not, and the reset does not wait for it.
        let mut closed = Hypervisor::with(guestinfo::OVF_ENVIRONMENT, forged);
        closed.writable = false;
        assert!(reset_beside(&mut closed).is_some());
    }

    #[test]
    fn an_erasure_says_how_far_it_is_and_why_it_stopped() {
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
        // It is blank now, and nobody wants that erased.
        let failed = finish(&disk, &platform, &crate::host::command::Host, &mut |_| {}).unwrap_err();
        assert_eq!(failed.code, "reset.failed");
        assert!(failed.seen.contains("is not one that is to be erased"), "{failed}");
    }

    #[test]
    fn nothing_that_is_known_to_use_the_scratch_partition_is_forgotten() {
        for user in space::scratch_users() {
            assert!(SCRATCH.contains(&user.as_str()), "{user} outlives a reset");
        }
    }

    #[test]
    fn directories_are_emptied_and_stay() {
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
