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

use crate::cluster::REQUEST;
use crate::cluster::etcd::member;
use crate::cluster::kubernetes::{PKI, api_server};
use crate::cluster::records::Records;
use crate::host::command::Runner;
use crate::host::disk::ownership::Claimant;
use crate::host::disk::{self, DataDisk, Disk, Identity, erase};
use crate::host::image;
use crate::host::kept;
use crate::host::platform::Platform;
use crate::host::services;
use crate::host::vmware::backdoor::Port;
use crate::intake::config::{Config, ControlPlane};
use crate::intake::environment::guestinfo::{self, GuestInfo};

/// What the scratch partition holds of a node: the runtime's, the kubelet's and the pods' data, and logs.
const SCRATCH: [&str; 7] = [
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/lib/cni",
    "/var/log/pods",
    "/var/log/containers",
    "/var/log/journal",
    api_server::audit::LOGS,
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
pub enum Cluster {
    /// This node has not become part of one yet.
    Never,
    /// It goes on without a worker as before.
    Outlasts,
    /// It goes on: so many of the other members are healthy.
    GoesOn {
        /// Members besides this one that are healthy.
        healthy: usize,
    },
    /// It ends, or cannot do without this node now; says why.
    Ends(String),
}

/// What a reset of this node would mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlook {
    what: Erased,
    /// This node's name.
    pub node: String,
    /// Its cluster's.
    pub cluster_name: String,
    /// What becomes of the cluster.
    pub cluster: Cluster,
}

/// What is erased.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Erased {
    /// A data disk.
    DataDisk {
        /// The disk.
        disk: Disk,
        /// Whose it is.
        identity: Box<Identity>,
    },
    /// What a worker keeps on scratch.
    Scratch,
}

impl Outlook {
    /// What will happen, for a person who is about to type the node's name.
    pub fn words(&self) -> String {
        let Self { node, cluster_name: cluster, what, .. } = self;
        let disk = match what {
            Erased::Scratch => {
                return format!(
                    "Everything that worker {node} keeps is erased: its certificates and its configuration. It restarts as \
                     freshly deployed and needs its OVF environment again, with a new join token. Drain it before; cluster \
                     {cluster} goes on, and keeps its Node object until somebody deletes it: kubectl delete node {node}"
                );
            }
            Erased::DataDisk { disk, .. } => disk.path.display(),
        };
        let fate = match &self.cluster {
            Cluster::Outlasts => format!("Cluster {cluster} goes on."),
            Cluster::Never => "It is not part of a cluster yet.".to_owned(),
            Cluster::GoesOn { healthy } => format!(
                "Cluster {cluster} goes on with its {healthy} other members. Afterwards let a survivor take the blank \
                 node in with `kaas-agent replace-member`."
            ),
            Cluster::Ends(why) => format!("THIS ENDS CLUSTER {cluster}: {why}."),
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
        let Cluster::Ends(why) = &self.cluster else { return Ok(()) };
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
pub fn look(platform: &Platform, runner: &dyn Runner) -> anyhow::Result<Outlook> {
    if kept::is_there(platform)
        && let Some(config @ Config::Worker(_)) = Records::new(platform.root()).config()?
    {
        return Ok(Outlook {
            what: Erased::Scratch,
            node: config.node().name.clone(),
            cluster_name: config.cluster_name().to_owned(),
            cluster: Cluster::Outlasts,
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
            Cluster::Ends(format!("its configuration cannot be read, so the others cannot be asked: {error:#}"))
        }
        Ok(Some(Config::ControlPlane(_))) if !records.progress()?.etcd => Cluster::Never,
        Ok(Some(Config::ControlPlane(config))) => survivors(&config, &platform.path(PKI)),
        Ok(Some(Config::Worker(_))) => bail!("the configuration on the data disk is a worker's"),
        Ok(None) if identity.state == disk::DiskState::Formed => {
            Cluster::Ends("the data disk is not mounted, so the other members cannot be asked".to_owned())
        }
        Ok(None) => Cluster::Never,
    };
    let (node, cluster_name) = (identity.node.clone(), identity.cluster.clone());
    Ok(Outlook { what: Erased::DataDisk { disk, identity: Box::new(identity) }, node, cluster_name, cluster })
}

fn survivors(config: &ControlPlane, pki: &Path) -> Cluster {
    let timeout = config.timeout(REQUEST);
    let healthy = config.peers().filter(|node| member::healthy(node, pki, timeout)).count();
    judge(config.cluster.control_nodes.len(), healthy)
}

/// What becomes of an etcd cluster of so many members when one goes and so many of the others are healthy.
fn judge(members: usize, healthy: usize) -> Cluster {
    let quorum = members / 2 + 1;
    if members == 1 {
        Cluster::Ends("this is its only control node".to_owned())
    } else if healthy >= quorum {
        Cluster::GoesOn { healthy }
    } else {
        Cluster::Ends(format!("only {healthy} of its other members are healthy, and etcd needs {quorum}"))
    }
}

/// Marks the data disk as one to be erased and restarts the system. The person must have been asked:
/// see [`Outlook::confirmed`].
///
/// # Errors
/// The disk cannot be marked, or the system does not restart; once marked, the next start erases it.
pub fn begin(outlook: &Outlook, platform: &Platform, runner: &dyn Runner) -> anyhow::Result<()> {
    let mark = || {
        let what = match &outlook.what {
            Erased::DataDisk { disk, identity } => {
                erase::mark(disk, identity).with_context(|| format!("marking {}", disk.path.display()))?;
                disk.path.display().to_string()
            }
            Erased::Scratch => {
                kept::mark(platform).context("marking what this worker keeps")?;
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

/// As [`finish`], of a worker: what it keeps is on scratch.
///
/// # Errors
/// A finding that says what failed; doing it again goes on.
pub fn finish_worker(platform: &Platform) -> Result<(), Finding> {
    let failed = |what: String, error: io::Error| {
        let action = "It is tried again; if it stays, deploy the VM anew";
        codes::RESET_FAILED.finding("this worker", format!("{what}: {error}"), action)
    };
    empty_scratch(platform).map_err(|(directory, error)| failed(format!("emptying {directory}"), error))?;
    forget_environment(GuestInfo::of_this_machine())
        .map_err(|error| failed("removing the OVF environment".to_owned(), io::Error::other(error)))?;
    kept::erase(platform).map_err(|error| failed("erasing what it keeps".to_owned(), error))
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
    let name = disk.path.display().to_string();
    let failed = |what: &str, error: io::Error| {
        codes::RESET_FAILED.finding(
            &name,
            format!("{what}: {error}"),
            "It is tried again; if it stays, replace the data disk with an empty one",
        )
    };
    // While the disk is marked this is done again after a cut.
    empty_scratch(platform).map_err(|(directory, error)| failed(&format!("emptying {directory}"), error))?;
    // Before the disk is blank: after a cut then, the properties would count.
    forget_environment(guestinfo).map_err(|error| failed("removing the OVF environment", io::Error::other(error)))?;
    let mut tell = |share: u64| {
        progress(codes::RESET_UNDER_WAY.finding(
            &name,
            format!("{share} % of the data disk are erased"),
            "Wait; the node then begins anew and needs its OVF environment",
        ));
    };
    erase::erase(disk, runner, &mut tell).map_err(|error| failed("erasing it", error))
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
    use crate::host::vmware::backdoor::Registers;
    use crate::host::vmware::backdoor::emulated::Hypervisor;
    use crate::maintenance::space;

    fn outlook(cluster: Cluster) -> Outlook {
        let identity = Identity { holder: None, state: DiskState::Formed, ..fixture::identity() };
        let disk = Disk { path: "/dev/sdb".into(), size: 1 << 32, sector: 512, read_only: false };
        let (node, cluster_name) = (identity.node.clone(), identity.cluster.clone());
        Outlook { what: Erased::DataDisk { disk, identity: Box::new(identity) }, node, cluster_name, cluster }
    }

    #[test]
    fn a_quorum_of_the_others_decides() {
        assert_eq!(judge(3, 2), Cluster::GoesOn { healthy: 2 });
        for (members, healthy) in [(3, 1), (3, 0), (1, 0)] {
            assert!(matches!(judge(members, healthy), Cluster::Ends(_)), "{members} {healthy}");
        }
    }

    #[test]
    fn names_must_be_typed_and_be_right() {
        let lasting = outlook(Cluster::GoesOn { healthy: 2 });
        assert_eq!(lasting.confirmed("cp-1", None), Ok(()));
        for typed in ["cp-2", "", "CP-1", "cp-1 ", "yes"] {
            let refused = lasting.confirmed(typed, Some("alpha")).unwrap_err();
            assert!(refused.contains("this node is cp-1") && refused.contains("nothing was changed"), "{refused}");
        }
        let last = outlook(Cluster::Ends("this is its only control node".into()));
        assert!(last.confirmed("cp-1", None).unwrap_err().contains("--confirm-end-of alpha"));
        assert!(last.confirmed("cp-1", Some("beta")).unwrap_err().contains("the cluster is alpha"));
        assert_eq!(last.confirmed("cp-1", Some("alpha")), Ok(()));
        assert!(last.confirmed("cp-2", Some("alpha")).is_err());
    }

    #[test]
    fn a_worker_is_erased_by_its_name_and_its_cluster_goes_on() {
        let root = tempfile::tempdir().unwrap();
        let kept = root.path().join("var/lib/kaas/kaas");
        fs::create_dir_all(&kept).unwrap();
        fs::create_dir_all(root.path().join("data/kaas")).unwrap();
        let config = Config::Worker(crate::intake::config::fixture::joined());
        let records = Records::new(root.path());
        records.update_config(&config, None).unwrap();
        fs::copy(root.path().join("data/kaas/config.json"), kept.join("config.json")).unwrap();
        let platform = Platform::detect(root.path()).unwrap();
        let outlook = look(&platform, &NoPrograms).unwrap();
        assert_eq!(outlook.confirmed("worker1", None), Ok(()));
        assert!(outlook.confirmed("worker2", None).is_err());
        assert!(outlook.words().contains("cluster lab goes on"), "{}", outlook.words());
        kept::mark(&platform).unwrap();
        fs::create_dir_all(root.path().join("var/lib/kubelet/pods/x")).unwrap();
        finish_worker(&platform).unwrap();
        assert!(!kept::is_there(&platform) && !root.path().join("var/lib/kubelet/pods").exists());
    }

    #[test]
    fn what_happens_is_said_with_the_disk_and_the_cluster() {
        let words = outlook(Cluster::Ends("this is its only control node".into())).words();
        assert!(words.contains("/dev/sdb") && words.contains("THIS ENDS CLUSTER alpha"), "{words}");
        assert!(outlook(Cluster::GoesOn { healthy: 2 }).words().contains("replace-member"));
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
