//! A lab without VMs: a cluster is deployed into it through the hypervisor contract, VM by VM.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use contract::deployer::PrivateKey;
use fleet::lease::Lease;
use tempfile::TempDir;

use super::host::{program, run};
use super::plan::{LabPlan, PlannedNode, bridge, is_on_network};
use super::records::{LONGEST_LAB, LONGEST_VM, check_name};
use super::{EngineRecord, Lab, Record, Source, name_on_host, records};

/// A lab to create.
#[derive(Clone, Debug)]
pub struct EmptyLab {
    /// Name of the lab and of its network.
    pub name: String,
    pub nodes: Vec<PlannedNode>,
    /// Address of their Kubernetes API.
    pub api: Ipv4Addr,
    pub engine: EngineRecord,
    pub source: Source,
    pub tools: PathBuf,
}

impl EmptyLab {
    /// The reason why no lab can have this name.
    pub fn refuses_name(name: &str) -> Option<String> {
        check_name("the lab's name", name, LONGEST_LAB).err().map(|error| error.to_string())
    }

    /// The reason why no node can have this name. The node's VM has the same name.
    pub fn refuses_node(name: &str) -> Option<String> {
        check_name("the node's name", name, LONGEST_VM).err().map(|error| error.to_string())
    }

    /// The reason why a lab cannot have this address, with the prefix length of its network.
    pub fn refuses_address(address: Ipv4Addr, prefix: u8) -> Option<String> {
        let network = bridge();
        (!is_on_network(address, prefix))
            .then(|| format!("{address}/{prefix} is not on a lab's network, where the host has {network}"))
    }
}

impl Lab {
    /// Creates a lab without VMs, for the cluster of a deployer.
    ///
    /// # Errors
    /// When a lab of this name exists, or the host refuses. The parts that exist by then are removed.
    pub fn create_empty(state: &Path, place: EmptyLab, deployer: &PrivateKey) -> anyhow::Result<Self> {
        let keys = tempfile::tempdir()?;
        draw_ssh_key(keys.path())?;
        let EmptyLab { name, nodes, api, engine, source, tools } = place;
        let record = Record {
            engine,
            replacements: None,
            workers: None,
            source,
            tools,
            name_on_host: name_on_host(&name),
            plan: LabPlan { name, bridge: bridge(), api, nodes, tenant: None },
            deployment: uuid::Uuid::new_v4(),
            beside: None,
        };
        Self::furnished(state, record, &keys, deployer)
    }

    /// Creates a lab and writes its operator's keys.
    pub(super) fn furnished(
        state: &Path,
        record: Record,
        keys: &TempDir,
        deployer: &PrivateKey,
    ) -> anyhow::Result<Self> {
        let lab = Self::create(state, record)?;
        let furnish = || -> anyhow::Result<()> {
            for file in ["ssh-key", "ssh-key.pub"] {
                fs::copy(keys.path().join(file), lab.directory.path().join(file))?;
            }
            records::save_text(&lab.directory.deployer_key(), deployer.pem().expose())
        };
        match furnish() {
            Ok(()) => Ok(lab),
            Err(error) => Err(lab.given_up(error)),
        }
    }

    /// Removes a lab whose creation failed, and returns the error.
    fn given_up(self, error: anyhow::Error) -> anyhow::Error {
        match self.remove() {
            Ok(()) => error,
            Err(cleanup) => anyhow::anyhow!("{error:#}; and cleaning up after it: {cleanup:#}"),
        }
    }

    /// Creates the VMs of its control-plane nodes under the lease. If another command has taken the lease over, the
    /// lab is left unchanged.
    ///
    /// # Errors
    /// As `import`. The lab is removed then.
    pub(super) async fn filled(
        self,
        hold: &Lease<'_>,
        import: impl AsyncFn(&Self, &PlannedNode) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let fill = async || {
            for node in &self.plan().nodes {
                hold.confirm().await?;
                import(&self, node).await?;
            }
            anyhow::Ok(())
        };
        let Err(error) = fill().await else { return Ok(self) };
        match hold.confirm().await {
            Ok(()) => Err(self.given_up(error)),
            Err(_) => Err(error),
        }
    }
}

/// Generates the key pair of a lab's operator in a directory, and returns the public key.
pub(super) fn draw_ssh_key(directory: &Path) -> anyhow::Result<String> {
    let key = directory.join("ssh-key");
    let mut keygen = program("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f"]);
    run(keygen.arg(&key)).context("making the lab's SSH key")?;
    Ok(fs::read_to_string(key.with_extension("pub"))?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use fleet::lease::{DirectoryStore, Store as _, TakeOver};

    use super::super::{HostLab, LabSpec, LeaseRequest, NodeSize, Up, fixture};
    use super::*;

    fn asking() -> LeaseRequest<'static> {
        LeaseRequest { what: "a test", over: TakeOver::FromTheDead, say: &|_| {} }
    }

    /// A lab of three planned nodes whose record was just written.
    fn noted(state: &Path) -> Lab {
        let lab = fixture::lab(state, 3, fixture::source(&state.join("tree")));
        records::save(&lab.directory.record(), &lab.record).unwrap();
        lab
    }

    #[test]
    fn a_second_creator_changes_nothing_of_the_lab() {
        let state = tempfile::tempdir().unwrap();
        let (size, second) = (NodeSize { memory: 1, processors: 1, data_disk: 1 << 20 }, asking());
        let lab = noted(state.path());
        let again = || Lab::open(state.path(), "x").unwrap();
        let refused = lab.with_lease(&asking(), async |_| {
            // Acquires the lease on another thread, as another process does.
            let complete = || again().complete(size, &second).map(|_| ());
            Ok(std::thread::scope(|scope| scope.spawn(complete).join().unwrap()))
        });
        let why = refused.unwrap().unwrap_err().to_string();
        assert!(why.contains("holds the lease"), "{why}");
        assert!(lab.directory.record().exists() && lab.vms().unwrap().is_empty());
        // The creator was killed before it created a VM.
        assert!(again().complete(size, &second).unwrap().is_none());
        assert!(!lab.directory.record().exists());
    }

    /// The lab `x`, not created yet.
    fn up(state: &Path) -> Up {
        let engine = EngineRecord::Container;
        Up {
            spec: LabSpec { name: "x".to_owned(), nodes: 1, timeout_factor: 1, ..LabSpec::default() },
            engine,
            replacements: engine,
            workers: engine,
            source: fixture::source(&state.join("tree")),
            tools: state.join("tools"),
            size: NodeSize { memory: 1, processors: 1, data_disk: 1 << 20 },
            beside: Some("no such lab".to_owned()),
        }
    }

    fn refused(state: &Path, over: TakeOver) -> String {
        let asking = LeaseRequest { over, ..asking() };
        format!("{:#}", Lab::import_cluster(state, up(state), &asking).err().unwrap())
    }

    #[test]
    fn a_late_creator_learns_how_to_continue() {
        let state = tempfile::tempdir().unwrap();
        let mut lab = noted(state.path());
        let beside = HostLab { lab: "lab".to_owned(), network: "lab".to_owned() };
        for (beside, goes_on) in
            [(None, "kaas-dev lab on VM --name x"), (Some(beside), "kaas-dev lab tenant up --name x")]
        {
            lab.record.beside = beside;
            records::save(&lab.directory.record(), &lab.record).unwrap();
            let why = refused(state.path(), TakeOver::FromTheDead);
            assert!(why.contains(goes_on) && !why.contains(" down "), "{why}");
            // During creation, the error names the creator.
            let second = lab.with_lease(&asking(), async |_| {
                let second = || refused(state.path(), TakeOver::FromTheDead);
                Ok(std::thread::scope(|scope| scope.spawn(second).join().unwrap()))
            });
            assert!(second.unwrap().contains("holds the lease"), "he is not");
        }
        assert!(lab.directory.record().exists());
    }

    #[tokio::test]
    async fn leases_without_a_lab_can_be_taken() {
        let state = tempfile::tempdir().unwrap();
        let store = DirectoryStore::at(state.path().join("x/upgrades"));
        // The creator was killed before it wrote its name.
        assert!(store.make(1).await.unwrap());
        let path = state.path().to_owned();
        let refused = std::thread::spawn(move || refused(&path, TakeOver::FromTheDead)).join().unwrap();
        assert!(refused.contains("holds the lease"), "{refused}");
        // The takeover is reported before the wait.
        let path = state.path().to_owned();
        let taken = std::thread::spawn(move || {
            let asking = LeaseRequest { over: TakeOver::FromAnyone, say: &|words| panic!("{words}"), ..asking() };
            Lab::import_cluster(&path, up(&path), &asking).map(drop)
        });
        let words = taken.join().unwrap_err().downcast::<String>().unwrap();
        assert!(words.starts_with("taking over from"), "{words}");
    }

    #[tokio::test]
    async fn a_lab_under_another_lease_is_left_unchanged() {
        for overtaken in [true, false] {
            let state = tempfile::tempdir().unwrap();
            let lab = noted(state.path());
            let (path, store) = (lab.directory.record(), DirectoryStore::at(lab.upgrades()));
            let hold = Lease::acquire(&store, "a test", TakeOver::FromTheDead, &|_| {}).await.unwrap();
            let nodes = Cell::new(0);
            let filled = lab.filled(&hold, async |_, _| {
                nodes.set(nodes.get() + 1);
                if nodes.get() == 2 {
                    if overtaken {
                        assert!(store.make(hold.number() + 1).await?);
                    }
                    anyhow::bail!("the host refuses");
                }
                Ok(())
            });
            assert_eq!(filled.await.err().unwrap().to_string(), "the host refuses");
            assert_eq!((nodes.get(), path.exists()), (2, overtaken));
        }
    }

    #[test]
    fn unusable_names_and_addresses_are_refused() {
        assert_eq!(EmptyLab::refuses_name("control"), None);
        assert!(EmptyLab::refuses_name("a-name-of-sixteen").unwrap().contains("1 to 15"));
        assert!(EmptyLab::refuses_node("Cp1").unwrap().contains("lower-case"));
        assert_eq!(EmptyLab::refuses_address([192, 168, 77, 11].into(), 24), None);
        for (address, prefix) in [([192, 168, 77, 11], 25), ([192, 168, 78, 11], 24), ([192, 168, 77, 1], 24)] {
            let told = EmptyLab::refuses_address(address.into(), prefix).unwrap();
            assert!(told.contains("where the host has 192.168.77.1/24"), "{told}");
        }
    }
}
