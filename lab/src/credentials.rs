//! The operator's credentials for a lab: those of a deployer with the lab's own key. They are fetched from the nodes
//! over the network. Fingerprints that nodes show through the lab prove their identity, as on any hypervisor.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use contract::deployer::{Fingerprints, PrivateKey};
use contract::kubeconfig::Kubeconfig;
use fleet::hypervisor::PowerState;
use fleet::nodes::Deployer;
use zeroize::Zeroizing;

use super::records::VmRecord;
use super::{Lab, records, shown};

/// Credentials that expire sooner are renewed.
const LASTING: Duration = Duration::from_secs(6 * 60 * 60);

/// Credentials that expire sooner are not used: a command may run as long.
const ENDING: Duration = Duration::from_secs(60 * 60);

/// User name in the kubeconfig. The API server reads the certificate instead.
pub(super) const USER: &str = "deployer";

impl Lab {
    /// A kubeconfig with the deployer's credentials. Fetched from a node if the stored one expires within hours. If
    /// no node answers, the stored one is used until shortly before it expires.
    ///
    /// # Errors
    /// When no node gives one, and the stored one is missing or about to expire.
    pub fn kubeconfig(&self) -> anyhow::Result<PathBuf> {
        let (path, now) = (self.directory.path().join("kubeconfig"), SystemTime::now());
        if lasts(&path, now + LASTING) {
            return Ok(path);
        }
        match self.fetch_kubeconfig().context("fetching the kubeconfig") {
            Ok(fetched) => records::save_text(&path, &fetched)?,
            Err(error) if lasts(&path, now + ENDING) => log::warn!("the kubeconfig ends soon, and is used: {error:#}"),
            Err(error) => return Err(error),
        }
        Ok(path)
    }

    fn fetch_kubeconfig(&self) -> anyhow::Result<Zeroizing<String>> {
        let mut last = anyhow::anyhow!("the lab has no nodes");
        for record in self.control_nodes()? {
            match self.ask_for_kubeconfig(&record) {
                Ok(kubeconfig) => return Ok(kubeconfig),
                Err(error) => last = error.context(record.name),
            }
        }
        Err(last)
    }

    /// The VMs of its control-plane nodes. Worker nodes run workloads of tenants, so fingerprints that they show are
    /// not trusted.
    pub(super) fn control_nodes(&self) -> anyhow::Result<Vec<VmRecord>> {
        let all = self.directory.vms()?;
        let all = all.iter().filter_map(|vm| self.directory.recall_vm(vm).transpose());
        // VMs that were imported by hand have no stamp.
        let of_them = |vm: &VmRecord| vm.stamp.as_ref().is_none_or(|stamp| stamp.deployment == self.deployment());
        all.filter(|vm| vm.as_ref().is_ok_and(of_them) || vm.is_err()).collect()
    }

    fn ask_for_kubeconfig(&self, vm: &VmRecord) -> anyhow::Result<Zeroizing<String>> {
        if self.power_state(&vm.name)? != PowerState::On {
            bail!("it is not on");
        }
        let (key, shown) = (self.deployer_key()?, self.shown_fingerprints(vm)?);
        let shown = shown.context("it does not show its fingerprints yet")?;
        let address: Ipv4Addr = vm.address.as_deref().context("it has no address")?.parse()?;
        let deployer = Deployer::from_inside(key, self.network_namespace())?;
        Ok(deployer.wait(deployer.credentials(address, &shown))?.kubeconfig(USER))
    }

    fn deployer_key(&self) -> anyhow::Result<PrivateKey> {
        let path = self.directory.deployer_key();
        let text = Zeroizing::new(fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?);
        PrivateKey::of_pem(&text).with_context(|| format!("understanding {}", path.display()))
    }

    /// Fingerprints that a node shows through the lab.
    pub(super) fn shown_fingerprints(&self, vm: &VmRecord) -> anyhow::Result<Option<Fingerprints>> {
        self.engines.of(vm).fingerprints(vm)
    }
}

/// Whether the file has a kubeconfig that is valid until then.
fn lasts(path: &Path, until: SystemTime) -> bool {
    let text = fs::read_to_string(path).map(Zeroizing::new).unwrap_or_default();
    let ends = Kubeconfig::parse(&text).ok().and_then(|kubeconfig| kubeconfig.valid_until());
    ends.is_some_and(|ends| ends > until)
}

/// Fingerprints in a file that a guest can write: the content is not trusted.
pub(super) fn read_fingerprints(path: &Path) -> anyhow::Result<Option<Fingerprints>> {
    Ok(shown::read(path)?.and_then(|text| Fingerprints::read(&text)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use contract::deployer::Fingerprint;
    use contract::secret::Secret;

    use super::super::fixture;
    use super::*;

    #[test]
    fn a_kubeconfig_is_used_until_it_expires() {
        let directory = tempfile::tempdir().unwrap();
        // The lab has no nodes, so none can be fetched.
        let lab = fixture::lab(directory.path(), 1, fixture::source(&directory.path().join("tree")));
        fs::create_dir_all(lab.directory.path()).unwrap();
        let path = lab.directory.path().join("kubeconfig");
        let now = SystemTime::now();
        assert!(!lasts(&path, now) && lab.kubeconfig().is_err());
        let key = rcgen::KeyPair::generate().unwrap();
        let hours = |count: u64| Duration::from_secs(count * 60 * 60);
        for (life, good, used) in [(24, true, true), (7, true, true), (5, false, true), (0, false, false)] {
            let mut parameters = rcgen::CertificateParams::default();
            (parameters.not_before, parameters.not_after) = ((now - hours(1)).into(), (now + hours(life)).into());
            let certificate = parameters.self_signed(&key).unwrap().pem();
            let kubeconfig = Kubeconfig {
                server: "https://192.168.77.10:6443".to_owned(),
                server_name: None,
                authority: certificate.clone(),
                certificate,
                key: Secret::new(key.serialize_pem()),
            };
            fs::write(&path, kubeconfig.render(USER).as_bytes()).unwrap();
            assert_eq!((lasts(&path, now + LASTING), lab.kubeconfig().is_ok()), (good, used), "{life} hours");
        }
        fs::write(&path, "damaged").unwrap();
        assert!(!lasts(&path, now) && lab.kubeconfig().is_err());
    }

    #[test]
    fn bad_fingerprints_of_a_guest_do_no_harm() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fingerprints.json");
        assert_eq!(read_fingerprints(&path).unwrap(), None);
        let fingerprints = Fingerprints { ca: Fingerprint::of(b"a"), endpoint: Fingerprint::of(b"e") };
        fs::write(&path, fingerprints.to_string()).unwrap();
        assert_eq!(read_fingerprints(&path).unwrap(), Some(fingerprints));
        fs::rename(&path, directory.path().join("elsewhere")).unwrap();
        symlink(directory.path().join("elsewhere"), &path).unwrap();
        assert!(read_fingerprints(&path).is_err(), "a link out of its directory");
        fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(read_fingerprints(&path).is_err(), "nobody is waited for");
        fs::remove_file(&path).unwrap();
        fs::write(&path, "x".repeat(1 << 20)).unwrap();
        assert_eq!(read_fingerprints(&path).unwrap(), None);
        assert!(shown::read(&path).unwrap().unwrap().len() < 1 << 20, "all of it is read");
    }
}
