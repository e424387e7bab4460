//! A vCenter for tests on this machine, whose machines have bodies: system containers on a separate network. The
//! program in `tests/vcenter` is the vCenter. This module starts it, runs its machines and removes all of it.
//! Independent of the vSphere API.

mod container_runner;
mod container_store;
mod networks;
mod protocol;
mod supervisor;
mod trees;
mod vm_container;
mod watch;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

use super::container::Containers;
use super::name_on_host;
use super::network::Network;
use super::process::{ProcessId, start};
use super::records::{self, LabDirectory};
use super::tools::Tools;
use super::wait::{obtain, until};
use container_runner::ContainerRunner;
use container_store::ContainerStore;

pub use supervisor::Running;

/// Its first user, with all privileges.
pub const USER: &str = "administrator@vsphere.local";
/// Directory of its datastores' content, below its own.
const DATASTORES: &str = "datastores";
/// How long it may take to start, and to end with all its bodies.
const MOMENT: Duration = Duration::from_secs(120);

/// The stored record of a vCenter.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    name: String,
    /// Name of its namespaces, cgroups and processes, unique on this machine.
    name_on_host: String,
    program: PathBuf,
    /// Options of the program, such as the number of hosts.
    #[serde(default)]
    options: Vec<String>,
    tools: PathBuf,
}

pub struct VCenter {
    directory: LabDirectory,
    record: Record,
    network: Network,
}

/// A machine that has had a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineStatus {
    /// Its name in the inventory at its last power-on.
    pub name: String,
    pub is_on: bool,
    pub console: PathBuf,
}

impl VCenter {
    /// Creates a vCenter: its directory and its network. It does not run yet. `options` are the program's, except
    /// those that set its directory, users and bodies.
    ///
    /// # Errors
    /// When a lab or a vCenter of this name exists, or the host refuses. The parts that exist by then are removed.
    pub fn create(state: &Path, name: &str, program: &Path, options: &[String], tools: &Path) -> anyhow::Result<Self> {
        let directory = LabDirectory::of(state, name)?;
        let _lock = directory.lock()?;
        directory.is_free()?;
        let record = Record {
            name: name.to_owned(),
            name_on_host: name_on_host(name),
            program: program.to_owned(),
            options: options.to_vec(),
            tools: tools.to_owned(),
        };
        records::save(&directory.vcenter(), &record)?;
        let made = Self::assemble(directory, record);
        match made.furnish() {
            Ok(()) => Ok(made),
            Err(error) => match made.remove_locked() {
                Ok(()) => Err(error),
                Err(cleanup) => bail!("{error:#}; and cleaning up after it: {cleanup:#}"),
            },
        }
    }

    fn furnish(&self) -> anyhow::Result<()> {
        fs::create_dir_all(self.datastores())?;
        let password = Uuid::new_v4().simple().to_string();
        let users = json!([{ "name": USER, "password": password }]);
        records::save(&self.users(), &users)?;
        records::save_text(&self.password_file(), &password)?;
        self.network.create_without_bridge()?;
        for (name, address) in networks::NETWORKS {
            self.network.ensure_bridge(&networks::bridge(name), Some(address))?;
        }
        Ok(())
    }

    /// Opens a vCenter that this or another command created.
    pub fn open(state: &Path, name: &str) -> anyhow::Result<Self> {
        let directory = LabDirectory::of(state, name)?;
        if !directory.vcenter().exists() {
            bail!("there is no vCenter {name} in {}; `kaas-dev lab vcenter up` makes one", state.display());
        }
        let record = records::load(&directory.vcenter())?;
        Ok(Self::assemble(directory, record))
    }

    fn assemble(directory: LabDirectory, record: Record) -> Self {
        let network = Network::of(&record.name_on_host);
        Self { directory, record, network }
    }

    pub fn name(&self) -> &str {
        &self.record.name
    }

    /// Directory of all its files.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The network namespace from which its machines are reachable.
    pub fn network_namespace(&self) -> PathBuf {
        self.network.path()
    }

    /// Directory of its machines' disks, with a subdirectory for each datastore.
    pub fn datastores(&self) -> PathBuf {
        self.directory().join(DATASTORES)
    }

    /// The file with the password of [`USER`].
    pub fn password_file(&self) -> PathBuf {
        self.directory().join("password")
    }

    /// The file with the certificate of its API, in PEM. It is its own CA.
    pub fn certificate_file(&self) -> PathBuf {
        self.directory().join("certificate.pem")
    }

    /// Log of the vCenter and of its bodies.
    pub fn log(&self) -> PathBuf {
        self.directory().join("vcenter.log")
    }

    fn users(&self) -> PathBuf {
        self.directory().join("users.json")
    }

    /// Arguments that identify the processes of [`VCenter::keep`] and [`VCenter::carry`].
    pub fn marks(&self) -> [String; 2] {
        ["keeps", "carries"].map(|what| format!("{}.{what}", self.record.name_on_host))
    }

    /// Starts `keeper`, which must end in [`VCenter::keep`], and waits until the API is served, at most two minutes.
    pub fn start(&self, keeper: &mut Command) -> anyhow::Result<Running> {
        let process = start(keeper, File::create(self.log())?).context("starting the vCenter")?;
        obtain("the vCenter to start", MOMENT, || {
            if !process.is_running() {
                // Stops the wait.
                return Ok(Some(None));
            }
            Ok(self.running()?.filter(|running| running.is_kept_by(&process)).map(Some))
        })?
        .with_context(|| format!("it ended: {}", self.last_words()))
    }

    fn last_words(&self) -> String {
        let text = fs::read(self.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }

    /// The running vCenter. `None` if it has not started, or has ended.
    pub fn running(&self) -> anyhow::Result<Option<Running>> {
        let path = Running::file(self.directory());
        if !path.try_exists().with_context(|| format!("looking for {}", path.display()))? {
            return Ok(None);
        }
        Ok(Some(records::load::<Running>(&path)?).filter(Running::is_running))
    }

    /// Runs the vCenter. `carrier` is a command that must end in [`VCenter::carry`] and runs its machines. The API
    /// has the same address on this machine's loopback interface and on that of the machines' network.
    pub fn keep(&self, carrier: &[String]) -> anyhow::Result<()> {
        supervisor::Supervisor {
            program: &self.record.program,
            options: &self.record.options,
            directory: self.directory(),
            datastores: &self.datastores(),
            users: &self.users(),
            certificate: &self.certificate_file(),
            network: &self.network.path(),
        }
        .keep(carrier)
    }

    /// Runs its machines: reads requests from standard input and writes replies and events to standard output.
    pub fn carry(&self) -> anyhow::Result<()> {
        let tools = Tools::at(&self.record.tools);
        let carrier =
            ContainerRunner::new(self.engine(), self.network.clone(), self.directory.clone(), tools, std::io::stdout());
        carrier.carry(std::io::stdin().lock())
    }

    fn engine(&self) -> Containers {
        Containers::new(&self.record.name_on_host, self.directory.clone(), self.network.clone())
    }

    /// The machines that have had bodies, by their names.
    pub fn machines(&self) -> anyhow::Result<Vec<MachineStatus>> {
        let engine = self.engine();
        let carried = |body: vm_container::VmContainer| MachineStatus {
            is_on: engine.runs(&body.container()),
            console: self.directory.console(&body.key),
            name: body.name,
        };
        let mut machines: Vec<_> = ContainerStore::of(self.directory.clone()).all()?.into_iter().map(carried).collect();
        machines.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(machines)
    }

    /// A program inside a machine's guest as root. The caller starts it. Fails if several machines have this name.
    pub fn command_inside(&self, machine: &str, arguments: &[&str]) -> anyhow::Result<Command> {
        let engine = self.engine();
        let mut found = ContainerStore::of(self.directory.clone()).all()?;
        found.retain(|body| body.name == machine && engine.runs(&body.container()));
        match found.as_slice() {
            [body] => engine.command_in(&body.container(), &[], arguments),
            [] => bail!("no machine {machine} is on"),
            _ => bail!("several machines are called {machine}"),
        }
    }

    /// A program on the network of its machines, where its API has the same address as on this machine's loopback
    /// interface.
    pub fn outside(&self, name: &str, arguments: &[String]) -> Command {
        self.network.command(name, arguments)
    }

    /// Ends the vCenter and all its bodies, and removes all files. A retry after an error continues.
    pub fn remove(self) -> anyhow::Result<()> {
        let _lock = self.directory.lock()?;
        self.remove_locked()
    }

    fn remove_locked(&self) -> anyhow::Result<()> {
        let [keeps, carries] = self.marks();
        // The vCenter ends after its keeper, and its carrier after the vCenter. This order lets each end normally.
        ProcessId::with_argument(&keeps).iter().try_for_each(ProcessId::kill)?;
        for mark in [supervisor::mark(&self.datastores()), carries] {
            let left = || ProcessId::with_argument(&mark);
            if until("the vCenter to end", MOMENT, || Ok(left().is_empty())).is_err() {
                left().iter().try_for_each(ProcessId::kill)?;
            }
        }
        let engine = self.engine();
        for body in ContainerStore::of(self.directory.clone()).all()? {
            engine.cut_off(&body.container()).with_context(|| format!("ending {}", body.name))?;
            engine.give_back(&body.container()).with_context(|| format!("giving back what {} had", body.name))?;
        }
        self.network.remove()?;
        // The record is removed last: until then a retry can find it.
        for part in ["vms", "trees", DATASTORES] {
            let part = self.directory().join(part);
            if part.exists() {
                fs::remove_dir_all(&part).with_context(|| format!("removing {}", part.display()))?;
            }
        }
        ensure!(!self.network.exists(), "its network still exists");
        fs::remove_dir_all(self.directory()).with_context(|| format!("removing {}", self.directory().display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EngineRecord, Lab, fixture};

    #[test]
    fn a_vcenter_and_a_lab_have_different_names() {
        let state = tempfile::tempdir().unwrap();
        let program = Path::new("/bin/true");
        let made = VCenter::create(state.path(), "x", program, &[], Path::new("/tools")).unwrap();
        assert!(made.network.exists());
        let password = fs::read_to_string(made.password_file()).unwrap();
        assert!(password.len() == 32 && fs::read_to_string(made.users()).unwrap().contains(&password));
        let again = VCenter::create(state.path(), "x", program, &[], Path::new("/tools")).err().unwrap().to_string();
        assert!(again.contains("`kaas-dev lab vcenter status --name x`") && !again.contains(" down "), "{again}");
        let wishes = crate::LabSpec { name: "x".to_owned(), nodes: 1, ..crate::LabSpec::default() };
        let source = fixture::source(&state.path().join("tree"));
        let record = fixture::record(state.path(), &wishes, source);
        assert_eq!(record.engine, EngineRecord::Container);
        let lab = Lab::create(state.path(), record).err().unwrap().to_string();
        assert_eq!(lab, again);
        let opened = VCenter::open(state.path(), "x").unwrap();
        assert_eq!((opened.running().unwrap().is_none(), opened.machines().unwrap()), (true, Vec::new()));
        opened.remove().unwrap();
        assert!(!made.network.exists() && !made.directory().exists());
        assert!(VCenter::open(state.path(), "x").is_err());
    }

    #[test]
    fn a_failed_start_reports_the_last_lines() {
        let state = tempfile::tempdir().unwrap();
        let made = VCenter::create(state.path(), "y", Path::new("/bin/true"), &[], Path::new("/tools")).unwrap();
        let mut keeper = Command::new("sh");
        let why = made.start(keeper.args(["-c", "echo no room; exit 1"])).err().unwrap();
        assert!(format!("{why:#}").contains("it ended: no room"), "{why:#}");
        made.remove().unwrap();
    }
}
