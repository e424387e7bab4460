//! How a command gets at a deployment, whatever runs its VMs, and ends.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use contract::deployer::Fingerprint;
use fleet::Cancelled;
use fleet::hypervisor::{Hypervisor, PowerState, Vm};
use fleet::nodes::{Client, Credentials, Deployer};
use fleet::upgrade::{Deployment, Given, Nodes, Notice, Renewed};
use uuid::Uuid;

use super::arguments::{DeploymentArgs, OtherClusterArgs, ResumeArgs};
use super::words;
use crate::cluster_file::{ClusterBackend, ClusterFile, LabSite, Site, SiteSession};
use crate::deploy::existing_deployer_key;
use crate::output::{Output, PAUSED, warn};
use crate::signals::SignalPolicy;

/// What a command does that cannot ask nodes now: without credentials, or with all VMs off.
#[derive(Clone, Copy)]
pub(super) enum MissingCredentials {
    Fail,
    /// It goes on without them, by the journal and the hypervisor, and asks them as soon as one gives credentials.
    Continue,
}

impl ResumeArgs {
    /// Does what goes on only with nodes that can be asked.
    pub(super) fn with(
        &self,
        what: &str,
        act: impl AsyncFnOnce(&Deployment<'_>, &dyn Site) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        self.lacking(what, MissingCredentials::Fail, act)
    }

    /// Does what goes on also while no node can be asked: all may be off.
    pub(super) fn with_or_without_nodes(
        &self,
        what: &str,
        act: impl AsyncFnOnce(&Deployment<'_>, &dyn Site) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        self.lacking(what, MissingCredentials::Continue, act)
    }

    fn lacking(
        &self,
        what: &str,
        lacking: MissingCredentials,
        act: impl AsyncFnOnce(&Deployment<'_>, &dyn Site) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        let pause_limit = Duration::from_secs(self.waiting.pause_limit);
        self.at.with(what, Some(&self.whose), pause_limit, lacking, SignalPolicy::WhereItCanBeContinued, act)
    }
}

/// Where the VMs run, as the command line names it.
struct SelectedSite {
    site: SiteSession,
    /// The description of the cluster, if the command line names one.
    file: Option<ClusterFile>,
}

impl DeploymentArgs {
    fn open(&self) -> anyhow::Result<SelectedSite> {
        match (&self.lab, &self.file) {
            (Some(lab), _) => {
                let site = SiteSession::with(|_| Ok(Box::new(LabSite::named(lab))))?;
                Ok(SelectedSite { site, file: None })
            }
            (None, Some(path)) => {
                let file = ClusterFile::read(path)?;
                let site = SiteSession::of(&file)?;
                Ok(SelectedSite { site, file: Some(file) })
            }
            (None, None) => anyhow::bail!("say with --file or --lab where the VMs run"),
        }
    }

    /// Does what changes nothing that would have to be continued.
    pub(super) fn looking(
        &self,
        what: &str,
        whose: Option<&OtherClusterArgs>,
        act: impl AsyncFnOnce(&Deployment<'_>, &dyn Site) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        self.with(what, whose, Duration::ZERO, MissingCredentials::Fail, SignalPolicy::AtOnce, act)
    }

    /// Does what can be continued when it was asked to end.
    pub(super) fn changing(
        &self,
        what: &str,
        whose: Option<&OtherClusterArgs>,
        pause_limit: Duration,
        act: impl AsyncFnOnce(&Deployment<'_>, &dyn Site) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        self.with(what, whose, pause_limit, MissingCredentials::Fail, SignalPolicy::WhereItCanBeContinued, act)
    }

    /// Does what a person confirms: as long as it looks, and asks, it ends at once where it is asked to; what then changes something ends where
    /// it can be continued, and gives the deployment back. `look` says what is changed; none if nothing is.
    pub(super) fn confirming<T>(
        &self,
        what: &str,
        look: impl AsyncFnOnce(&Deployment<'_>) -> anyhow::Result<Option<T>>,
        act: impl AsyncFnOnce(&Deployment<'_>, T) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        self.reaching(what, None, Duration::ZERO, MissingCredentials::Fail, |reached| {
            match reached.run(SignalPolicy::AtOnce, async |deployment, _| look(deployment).await)? {
                None => Ok(ExitCode::SUCCESS),
                Some(confirmed) => {
                    let ending = SignalPolicy::WhereItCanBeContinued;
                    reached.run(ending, async |deployment, _| act(deployment, confirmed).await)
                }
            }
        })
    }

    pub(super) fn with(
        &self,
        what: &str,
        whose: Option<&OtherClusterArgs>,
        pause_limit: Duration,
        lacking: MissingCredentials,
        ending: SignalPolicy,
        act: impl AsyncFnOnce(&Deployment<'_>, &dyn Site) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        self.reaching(what, whose, pause_limit, lacking, |reached| reached.run(ending, act))
    }

    fn reaching(
        &self,
        what: &str,
        whose: Option<&OtherClusterArgs>,
        pause_limit: Duration,
        lacking: MissingCredentials,
        act: impl FnOnce(&ConnectedDeployment<'_>) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        let named = self.open()?;
        let site: &SiteSession = &named.site;
        let place = site.find()?.with_context(|| format!("{} is not there", site.words()))?;
        let nodes = named.nodes(self.kubeconfig.as_deref(), &place)?;
        match (site.run(SignalPolicy::AtOnce, async |_| nodes.ready().await), lacking) {
            (Ok(()), _) => {}
            (Err(error), MissingCredentials::Continue) => {
                warn(&format!("warning: no node can be asked now: {error:#}"))
            }
            (Err(error), MissingCredentials::Fail) => return Err(error),
        }
        let other_cluster = whose.and_then(|whose| whose.other_cluster);
        let output = self.output;
        let reached =
            ConnectedDeployment { site, place: &place, nodes: &nodes, what, pause_limit, other_cluster, output };
        match act(&reached) {
            Err(error) if error.is::<Cancelled>() => {
                warn(&format!("{error:#}"));
                Ok(ExitCode::from(PAUSED))
            }
            acted => acted.map_err(words::advised),
        }
    }
}

struct ConnectedDeployment<'a> {
    site: &'a SiteSession,
    place: &'a ClusterBackend,
    nodes: &'a dyn Nodes,
    what: &'a str,
    pause_limit: Duration,
    other_cluster: Option<Uuid>,
    output: Output,
}

impl ConnectedDeployment<'_> {
    /// Does something there, and ends as the command is asked to.
    fn run<T>(
        &self,
        ending: SignalPolicy,
        act: impl AsyncFnOnce(&Deployment<'_>, &dyn Site) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let output = self.output;
        self.site.run(ending, async |cancelled| {
            let deployment = Deployment {
                hypervisor: &*self.place.hypervisor,
                nodes: self.nodes,
                store: &*self.place.store,
                snapshots: &*self.place.snapshots,
                what: self.what,
                watch: &|notice: &Notice<'_>| words::tell(output, notice),
                pace: Duration::from_secs(1),
                pause_limit: self.pause_limit,
                other_cluster: self.other_cluster,
                cancelled,
            };
            act(&deployment, &**self.site).await
        })
    }
}

impl SelectedSite {
    /// How nodes are asked: with the kubeconfig that is given, as long as it lasts, and then with what the place itself keeps or
    /// a node gives for the deployer's key; where neither is to be had, with what was put where the file says.
    fn nodes<'p>(&self, given: Option<&Path>, place: &'p ClusterBackend) -> anyhow::Result<Renewed<'p>> {
        let first = given.map(|path| Read::of(path, place.network.as_ref())).transpose()?;
        let last = self.file.as_ref().map(|file| &file.kubeconfig).filter(|path| path.try_exists().unwrap_or_default());
        let last = last.filter(|_| given.is_none()).and_then(|path| {
            let read = Read::of(path, place.network.as_ref());
            read.inspect_err(|error| warn(&format!("warning: {error:#}; it is not used"))).ok()
        });
        // Also what has ended says which cluster it was of.
        let authorities = |read: &Option<Read>| read.as_ref().map(|read| read.authorities.clone()).unwrap_or_default();
        let known = KnownCas { given: authorities(&first), kept: authorities(&last) };
        let (first, last) = (first.map(|read| read.given), last.map(|read| read.given));
        if let Some(kept) = &place.kubeconfig {
            let (kept, network) = (Arc::clone(kept), place.network.clone());
            return Ok(Renewed::new(first, last, move || {
                let (kept, network) = (Arc::clone(&kept), network.clone());
                Box::pin(async move {
                    let path =
                        tokio::task::spawn_blocking(move || kept()).await.context("renewing the kubeconfig")??;
                    Ok(Read::of(&path, network.as_ref())?.given)
                })
            }));
        }
        let file = self.file.as_ref().context("give the cluster administrator's kubeconfig with --kubeconfig")?;
        let key = existing_deployer_key(&file.deployer_key)?;
        let deployer = key.map(|key| place.deployer(key)).transpose()?;
        let (nodes, key) = (file.addresses(), file.deployer_key.display().to_string());
        Ok(Renewed::new(first, last, move || {
            let (deployer, nodes, key, known) = (deployer.clone(), nodes.clone(), key.clone(), known.clone());
            Box::pin(async move {
                let why = "no node gives its deployer credentials: give a --kubeconfig";
                let deployer = deployer.with_context(|| format!("there is no {key}")).context(why)?;
                issued(&deployer, place, &nodes, &known).await.context(why)
            })
        }))
    }
}

struct Read {
    given: Given,
    /// Fingerprints of the authorities that it knows servers by.
    authorities: Vec<Fingerprint>,
}

impl Read {
    fn of(path: &Path, network: Option<&PathBuf>) -> anyhow::Result<Self> {
        let credentials = Credentials::read(path)?;
        let ends = credentials.ends().with_context(|| format!("{}: its certificate is none", path.display()))?;
        let authorities = credentials.authorities().with_context(|| path.display().to_string())?;
        let client = match network {
            Some(network) => Client::from_inside(path, network.clone())?,
            None => Client::of_kubeconfig(path)?,
        };
        Ok(Self { given: Given { nodes: Arc::new(client), ends, whence: path.display().to_string() }, authorities })
    }
}

/// What kubeconfigs say of the cluster's authority. What a node shows through the hypervisor its guests can write, and others who
/// may change the VM's settings: it does not say which cluster this is.
#[derive(Clone)]
struct KnownCas {
    /// The one that the command line names.
    given: Vec<Fingerprint>,
    /// The one that is where the description says.
    kept: Vec<Fingerprint>,
}

/// The authorities of which a node may be.
#[derive(Debug, PartialEq, Eq)]
struct TrustedCas {
    authorities: Vec<Fingerprint>,
    /// What says so, for people.
    by: &'static str,
}

impl TrustedCas {
    /// Refuses what a node shows.
    ///
    /// # Errors
    /// When it is of none of them.
    fn has(&self, shown: Fingerprint) -> anyhow::Result<()> {
        if self.authorities.contains(&shown) {
            return Ok(());
        }
        let believed: Vec<String> = self.authorities.iter().map(ToString::to_string).collect();
        bail!("it shows the authority {shown}, and the cluster's is {}, by {}", believed.join(" or "), self.by)
    }
}

const BY_THE_NOTE: &str = "what was noted when it had formed";
const BY_THE_GIVEN: &str = "the kubeconfig that was given";
const BY_THE_KEPT: &str = "the kubeconfig that lies where the description says, which may be of a cluster that was described \
                           there before: give this one's with --kubeconfig";

impl KnownCas {
    /// What lies where the description says, if that is a kubeconfig.
    fn kept_at(path: &Path) -> Self {
        let kept = Credentials::read(path).and_then(|read| read.authorities()).unwrap_or_default();
        Self { given: Vec::new(), kept }
    }

    /// The authorities of which a node may be, by what the cluster has formed with if that was noted.
    ///
    /// # Errors
    /// Nothing says it, or the kubeconfig that was given is of another cluster.
    fn believed(&self, noted: Option<Fingerprint>) -> anyhow::Result<TrustedCas> {
        match noted {
            Some(noted) if !self.given.is_empty() && !self.given.contains(&noted) => bail!(
                "the kubeconfig that was given knows servers by another authority than {noted}, with which the cluster has formed"
            ),
            Some(noted) => Ok(TrustedCas { authorities: vec![noted], by: BY_THE_NOTE }),
            None if !self.given.is_empty() => Ok(TrustedCas { authorities: self.given.clone(), by: BY_THE_GIVEN }),
            None if !self.kept.is_empty() => Ok(TrustedCas { authorities: self.kept.clone(), by: BY_THE_KEPT }),
            None => bail!(
                "nothing says which authority is the cluster's: neither was it noted when that formed, nor is there a kubeconfig \
                 where the description says"
            ),
        }
    }
}

/// A client by what a node gives for the deployer's key, good for a day, for who has only so long: each node is asked for its share of it,
/// and as much is left. The cluster's authority is the noted one, or that of the kubeconfig which lies where the description says.
///
/// # Errors
/// Why no node gives it.
pub async fn client_by_key(
    deployer: &Deployer,
    place: &ClusterBackend,
    nodes: &[(String, Ipv4Addr)],
    kubeconfig: &Path,
    limit: Duration,
) -> anyhow::Result<Client> {
    let known = KnownCas::kept_at(kubeconfig);
    let (credentials, ..) = first_given(deployer, place, nodes, &known, Some(share(limit, nodes.len()))).await?;
    deployer.client(&credentials)
}

/// Of so long, the part of each of so many that are asked in turn, where as much is left for what comes after them.
fn share(limit: Duration, asked: usize) -> Duration {
    limit / u32::try_from(asked).unwrap_or(u32::MAX).saturating_add(1)
}

/// What comes of asking, if it comes in time.
///
/// # Errors
/// As of what is asked; or it has not answered by then.
pub async fn within<T>(limit: Duration, asking: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let late = || anyhow::anyhow!("there was no answer within {:.1} s", limit.as_secs_f32());
    tokio::time::timeout(limit, asking).await.unwrap_or_else(|_| Err(late()))
}

/// What a node gives for the deployer's key, good for a day.
async fn issued(
    deployer: &Deployer,
    place: &ClusterBackend,
    nodes: &[(String, Ipv4Addr)],
    known: &KnownCas,
) -> anyhow::Result<Given> {
    let (credentials, ends, whence) = first_given(deployer, place, nodes, known, None).await?;
    Ok(Given { nodes: Arc::new(deployer.client(&credentials)?), ends, whence })
}

/// The first credentials that a node gives for the deployer's key, when they end, and by which VM. With `each`, no node is waited for longer.
async fn first_given(
    deployer: &Deployer,
    place: &ClusterBackend,
    nodes: &[(String, Ipv4Addr)],
    known: &KnownCas,
    each: Option<Duration>,
) -> anyhow::Result<(Credentials, SystemTime, String)> {
    let mut last = anyhow::anyhow!("no VM of the deployment is on");
    let noted = fleet::control_plane::authority(&*place.store, place.hypervisor.deployment()).await?;
    let believed = known.believed(noted)?;
    for (address, vm) in running(nodes, &place.hypervisor.vms().await?) {
        let asking = asked(deployer, &*place.hypervisor, address, vm, &believed);
        let given = match each {
            Some(each) => within(each, asking).await,
            None => asking.await,
        };
        match given {
            Ok((credentials, ends)) => return Ok((credentials, ends, vm.name.clone())),
            Err(error) => last = error.context(vm.name.clone()),
        }
    }
    Err(last)
}

/// The VMs of the control nodes that are on, each with its node's address.
fn running<'v>(nodes: &[(String, Ipv4Addr)], vms: &'v [Vm]) -> Vec<(Ipv4Addr, &'v Vm)> {
    let of = |vm: &'v Vm| {
        let node = &vm.stamp.as_ref()?.node;
        let (_, address) = nodes.iter().find(|(name, _)| name == node)?;
        (vm.power == PowerState::On).then_some((*address, vm))
    };
    vms.iter().filter_map(of).collect()
}

/// What one node gives. It is known by what the hypervisor shows of it, and that has to be of an authority that is believed.
async fn asked(
    deployer: &Deployer,
    hypervisor: &dyn Hypervisor,
    address: Ipv4Addr,
    vm: &Vm,
    believed: &TrustedCas,
) -> anyhow::Result<(Credentials, SystemTime)> {
    let shown = hypervisor.fingerprints(&vm.reference).await?.context("it shows no cluster yet")?;
    believed.has(shown.ca)?;
    let credentials = deployer.credentials(address, &shown).await?;
    let ends = credentials.ends().context("what it gives does not say when it ends")?;
    Ok((credentials, ends))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn what_lies_where_the_description_says_is_known_and_what_is_no_kubeconfig_says_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubeconfig");
        assert!(KnownCas::kept_at(&path).kept.is_empty());
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::default().self_signed(&key).unwrap();
        let written = contract::kubeconfig::Kubeconfig {
            server: "https://10.0.0.10:6443".to_owned(),
            server_name: None,
            authority: certificate.pem(),
            certificate: certificate.pem(),
            key: contract::secret::Secret::new(key.serialize_pem()),
        };
        std::fs::write(&path, &*written.render("admin")).unwrap();
        let known = KnownCas::kept_at(&path);
        assert_eq!(known.kept, [Fingerprint::of_key_of(certificate.der()).unwrap()]);
        assert_eq!(known.believed(None).unwrap().by, BY_THE_KEPT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_node_takes_its_share_of_the_time_and_leaves_theirs_to_the_others() {
        let limit = Duration::from_secs(10);
        let (each, begun) = (share(limit, 3), tokio::time::Instant::now());
        for _ in 0..3 {
            let late = within(each, std::future::pending::<anyhow::Result<()>>()).await.unwrap_err().to_string();
            assert_eq!(late, "there was no answer within 2.5 s");
        }
        assert!(begun.elapsed() < limit, "nothing is left for the question itself");
        assert_eq!(within(each, async { Ok(7) }).await.unwrap(), 7);
        let refused = within(each, async { anyhow::Result::<()>::Err(anyhow::anyhow!("no")) }).await.unwrap_err();
        assert_eq!((refused.to_string().as_str(), share(limit, 0)), ("no", limit));
    }

    #[test]
    fn nodes_are_asked_whose_vms_are_on_at_the_addresses_of_the_file() {
        let vm = |name: &str, node: Option<&str>, power: &str| -> Vm {
            let stamp = node.map(|node| json!({"deployment": Uuid::nil(), "node": node}));
            serde_json::from_value(json!({
                "uuid": Uuid::nil(), "id": name, "name": name, "stamp": stamp, "power": power, "disks": [],
                "adapters": [], "snapshots": [], "tasks": [], "version": "1",
            }))
            .unwrap()
        };
        let vms = [
            vm("a", Some("cp1"), "off"),
            vm("b", Some("cp1"), "on"),
            vm("c", Some("cp2"), "on"),
            vm("d", Some("cp9"), "on"),
            vm("e", None, "on"),
        ];
        let nodes = [1, 2, 3].map(|number| (format!("cp{number}"), Ipv4Addr::new(10, 0, 0, number)));
        let running: Vec<_> =
            running(&nodes, &vms).into_iter().map(|(address, vm)| (address.octets()[3], vm.name.as_str())).collect();
        assert_eq!(running, [(1, "b"), (2, "c")]);
    }

    #[test]
    fn what_a_node_shows_is_held_against_the_note_or_else_against_a_kubeconfig_and_is_never_believed_alone() {
        let [own, other] = ["own", "other"].map(|key| Fingerprint::of(key.as_bytes()));
        let known =
            |given: &[Fingerprint], kept: &[Fingerprint]| KnownCas { given: given.to_vec(), kept: kept.to_vec() };
        let of = |authorities: &[Fingerprint], by| TrustedCas { authorities: authorities.to_vec(), by };
        assert_eq!(known(&[], &[]).believed(Some(own)).unwrap(), of(&[own], BY_THE_NOTE));
        assert_eq!(known(&[own], &[]).believed(Some(own)).unwrap(), of(&[own], BY_THE_NOTE));
        // What lies where the description says may be an earlier cluster's.
        assert_eq!(known(&[], &[other]).believed(Some(own)).unwrap(), of(&[own], BY_THE_NOTE));
        assert_eq!(known(&[own, other], &[]).believed(None).unwrap(), of(&[own, other], BY_THE_GIVEN));
        let kept = known(&[], &[other]).believed(None).unwrap();
        assert_eq!(kept, of(&[other], BY_THE_KEPT));
        assert!(kept.has(other).is_ok());
        let refused = kept.has(own).unwrap_err().to_string();
        assert!(refused.contains("may be of a cluster that was described there before: give this one's"), "{refused}");
        let refused = known(&[other], &[]).believed(Some(own)).unwrap_err().to_string();
        assert!(refused.contains("by another authority than"), "{refused}");
        let refused = known(&[], &[]).believed(None).unwrap_err().to_string();
        assert!(refused.contains("nothing says which authority"), "{refused}");
    }
}
