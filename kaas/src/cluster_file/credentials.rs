//! The credentials with which commands talk to a cluster's nodes.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use contract::deployer::Fingerprint;
use fleet::hypervisor::{Hypervisor, PowerState, Vm};
use fleet::nodes::{Client, Credentials, Deployer};
use fleet::upgrade::{Given, Renewed};

use super::file::ClusterFile;
use super::provider::ClusterBackend;
use crate::control::NamedCredentials;
use crate::keys::existing_deployer_key;
use crate::output::warn;

/// The credentials for nodes. First the given kubeconfig, while it is valid. Then that of the place itself, or one that a
/// node issues for the deployer's key. Without both, the kubeconfig that the file names.
pub fn node_credentials<'p>(
    file: Option<&ClusterFile>,
    given: Option<&NamedCredentials>,
    place: &'p ClusterBackend,
) -> anyhow::Result<Renewed<'p>> {
    let first = given.map(|given| Read::of(given, place.network.as_ref())).transpose()?;
    let last = file.map(|file| &file.kubeconfig).filter(|path| path.try_exists().unwrap_or_default());
    let last = last.filter(|_| given.is_none()).and_then(|path| {
        let read = Read::at(path, place.network.as_ref());
        read.inspect_err(|error| warn(&format!("warning: {error:#}; it is not used"))).ok()
    });
    // An expired kubeconfig still identifies its cluster.
    let authorities = |read: &Option<Read>| read.as_ref().map(|read| read.authorities.clone()).unwrap_or_default();
    let known = KnownCas { given: authorities(&first), kept: authorities(&last) };
    let (first, last) = (first.map(|read| read.given), last.map(|read| read.given));
    if let Some(kept) = &place.kubeconfig {
        let (kept, network) = (Arc::clone(kept), place.network.clone());
        return Ok(Renewed::new(first, last, move || {
            let (kept, network) = (Arc::clone(&kept), network.clone());
            Box::pin(async move {
                let path = tokio::task::spawn_blocking(move || kept()).await.context("renewing the kubeconfig")??;
                Ok(Read::at(&path, network.as_ref())?.given)
            })
        }));
    }
    let file = file.context("give the cluster administrator's kubeconfig with --kubeconfig")?;
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

struct Read {
    given: Given,
    /// Fingerprints of the CAs that it verifies servers with.
    authorities: Vec<Fingerprint>,
}

impl Read {
    fn at(path: &Path, network: Option<&PathBuf>) -> anyhow::Result<Self> {
        let named = NamedCredentials { credentials: Credentials::read(path)?, name: path.display().to_string() };
        Self::of(&named, network)
    }

    fn of(
        NamedCredentials { credentials, name }: &NamedCredentials,
        network: Option<&PathBuf>,
    ) -> anyhow::Result<Self> {
        let ends = credentials.ends().with_context(|| format!("{name}: its certificate cannot be read"))?;
        let authorities = credentials.authorities().with_context(|| name.clone())?;
        let client = Client::on(credentials, network.cloned())?;
        Ok(Self { given: Given { nodes: Arc::new(client), ends, whence: name.clone() }, authorities })
    }
}

/// The cluster's CA according to kubeconfigs. The facts that a node shows through the hypervisor do not identify the cluster.
/// Its guests can write them, and everyone who may change the VM's settings.
#[derive(Clone)]
struct KnownCas {
    /// From the kubeconfig of the command line.
    given: Vec<Fingerprint>,
    /// From the kubeconfig at the path that the description names.
    kept: Vec<Fingerprint>,
}

/// The CAs that a node may belong to.
#[derive(Debug, PartialEq, Eq)]
struct TrustedCas {
    authorities: Vec<Fingerprint>,
    /// The source of these CAs, as text.
    by: &'static str,
}

impl TrustedCas {
    /// Checks the CA that a node shows.
    fn has(&self, shown: Fingerprint) -> anyhow::Result<()> {
        if self.authorities.contains(&shown) {
            return Ok(());
        }
        let believed: Vec<String> = self.authorities.iter().map(ToString::to_string).collect();
        bail!("it shows the CA {shown}, and the cluster's is {}, by {}", believed.join(" or "), self.by)
    }
}

const BY_THE_NOTE: &str = "the record of its forming";
const BY_THE_GIVEN: &str = "the kubeconfig that was given";
const BY_THE_KEPT: &str = "the kubeconfig at the path of the description, which may be of a former cluster: give this \
                           cluster's with --kubeconfig";

impl KnownCas {
    /// From the path that the description names, if it holds a kubeconfig.
    fn kept_at(path: &Path) -> Self {
        let kept = Credentials::read(path).and_then(|read| read.authorities()).unwrap_or_default();
        Self { given: Vec::new(), kept }
    }

    /// The CAs that a node may belong to. `noted` is the CA that the cluster formed with, if it was recorded. Fails if
    /// no CA is known, or the given kubeconfig is of another cluster.
    fn believed(&self, noted: Option<Fingerprint>) -> anyhow::Result<TrustedCas> {
        match noted {
            Some(noted) if !self.given.is_empty() && !self.given.contains(&noted) => {
                bail!("the kubeconfig that was given trusts another CA than {noted}, with which the cluster has formed")
            }
            Some(noted) => Ok(TrustedCas { authorities: vec![noted], by: BY_THE_NOTE }),
            None if !self.given.is_empty() => Ok(TrustedCas { authorities: self.given.clone(), by: BY_THE_GIVEN }),
            None if !self.kept.is_empty() => Ok(TrustedCas { authorities: self.kept.clone(), by: BY_THE_KEPT }),
            None => bail!(
                "the cluster's CA is unknown: it was not recorded when the cluster formed, and there is no kubeconfig \
                 where the description says"
            ),
        }
    }
}

/// A client with credentials that a node issues for the deployer's key, as [`credentials_by_key`]. `limit` is shared: each node
/// may take an equal part, and one part is left for the caller.
pub async fn client_by_key(
    deployer: &Deployer,
    place: &ClusterBackend,
    nodes: &[(String, Ipv4Addr)],
    kubeconfig: &Path,
    limit: Duration,
) -> anyhow::Result<Client> {
    let each = share(limit, nodes.len());
    deployer.client(&credentials_by_key(deployer, place, nodes, kubeconfig, Some(each)).await?)
}

/// The credentials that a node issues for the deployer's key, valid for a day. `each` limits the wait for one node. The cluster's
/// CA is the recorded one, or that of the kubeconfig at the path that the description names.
pub async fn credentials_by_key(
    deployer: &Deployer,
    place: &ClusterBackend,
    nodes: &[(String, Ipv4Addr)],
    kubeconfig: &Path,
    each: Option<Duration>,
) -> anyhow::Result<Credentials> {
    let known = KnownCas::kept_at(kubeconfig);
    Ok(first_given(deployer, place, nodes, &known, each).await?.0)
}

/// The part of `limit` for each node that is asked in turn. One more part is left for later requests.
fn share(limit: Duration, asked: usize) -> Duration {
    limit / u32::try_from(asked).unwrap_or(u32::MAX).saturating_add(1)
}

/// Awaits `asking` for at most `limit`.
pub async fn within<T>(limit: Duration, asking: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let late = || anyhow::anyhow!("there was no answer within {:.1} s", limit.as_secs_f32());
    tokio::time::timeout(limit, asking).await.unwrap_or_else(|_| Err(late()))
}

/// The credentials that a node issues for the deployer's key, valid for a day.
async fn issued(
    deployer: &Deployer,
    place: &ClusterBackend,
    nodes: &[(String, Ipv4Addr)],
    known: &KnownCas,
) -> anyhow::Result<Given> {
    let (credentials, ends, whence) = first_given(deployer, place, nodes, known, None).await?;
    Ok(Given { nodes: Arc::new(deployer.client(&credentials)?), ends, whence })
}

/// The first credentials that a node issues for the deployer's key, their expiry, and the name of its VM. `each` limits the
/// wait for one node.
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

/// The running VMs of the control-plane nodes, each with its node's address.
fn running<'v>(nodes: &[(String, Ipv4Addr)], vms: &'v [Vm]) -> Vec<(Ipv4Addr, &'v Vm)> {
    let of = |vm: &'v Vm| {
        let node = &vm.stamp.as_ref()?.node;
        let (_, address) = nodes.iter().find(|(name, _)| name == node)?;
        (vm.power == PowerState::On).then_some((*address, vm))
    };
    vms.iter().filter_map(of).collect()
}

/// The credentials that one node issues. It is verified by the facts that the hypervisor shows of it. Its CA must be a trusted
/// one.
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
    fn described_kubeconfig_gives_the_kept_ca() {
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
    async fn silent_node_takes_only_its_share_of_time() {
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
    fn only_nodes_with_running_vms_are_asked() {
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
    fn node_ca_is_checked_against_record_or_kubeconfig() {
        let [own, other] = ["own", "other"].map(|key| Fingerprint::of(key.as_bytes()));
        let known =
            |given: &[Fingerprint], kept: &[Fingerprint]| KnownCas { given: given.to_vec(), kept: kept.to_vec() };
        let of = |authorities: &[Fingerprint], by| TrustedCas { authorities: authorities.to_vec(), by };
        assert_eq!(known(&[], &[]).believed(Some(own)).unwrap(), of(&[own], BY_THE_NOTE));
        assert_eq!(known(&[own], &[]).believed(Some(own)).unwrap(), of(&[own], BY_THE_NOTE));
        // The kubeconfig at the described path may be of an earlier cluster.
        assert_eq!(known(&[], &[other]).believed(Some(own)).unwrap(), of(&[own], BY_THE_NOTE));
        assert_eq!(known(&[own, other], &[]).believed(None).unwrap(), of(&[own, other], BY_THE_GIVEN));
        let kept = known(&[], &[other]).believed(None).unwrap();
        assert_eq!(kept, of(&[other], BY_THE_KEPT));
        assert!(kept.has(other).is_ok());
        let refused = kept.has(own).unwrap_err().to_string();
        assert!(refused.contains("may be of a former cluster: give this cluster's"), "{refused}");
        let refused = known(&[other], &[]).believed(Some(own)).unwrap_err().to_string();
        assert!(refused.contains("trusts another CA than"), "{refused}");
        let refused = known(&[], &[]).believed(None).unwrap_err().to_string();
        assert!(refused.contains("the cluster's CA is unknown"), "{refused}");
    }
}
