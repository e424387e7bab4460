//! The console's facts about the node. They contain no secret.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use contract::finding::Finding;
use contract::image::ImageFacts;
use contract::paths;
use contract::ports;
use contract::role::{Role, Roles};
use sha2::{Digest, Sha256};

use crate::cluster::certificates;
use crate::cluster::kubernetes::PKI;
use crate::cluster::pki::CertificateAuthorities;
use crate::cluster::pki::ssh::SshCa;
use crate::cluster::records::Records;
use crate::host::disk;
use crate::host::files;
use crate::host::image;
use crate::intake::config::Config;
use crate::node::reconfigure::Lifecycle;
use crate::status::{Phase, Status};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Access {
    /// Nothing needs protection yet. The form is open to everyone.
    Open,
    /// There is no password. Only the status is shown.
    #[default]
    StatusOnly,
    /// The menu opens with the password.
    Locked,
    /// The configuration cannot be read, so no password is known. The menu only has the reset, which asks for the names.
    ResetOnly,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Certificate {
    pub(super) name: String,
    /// Whole days from now until it expires. Negative when it has expired.
    pub(super) days: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) status: Option<Status>,
    pub(super) access: Access,
    pub(super) unconfigured: bool,
    /// A record on the data disk cannot be read, so no property can be changed.
    pub(super) damaged: bool,
    /// The cluster has formed, so some properties are fixed.
    pub(super) settled: bool,
    /// The possible roles of this image, once its description is read.
    pub(super) roles: Option<Roles>,
    /// The role of the node: from its configuration, or the only role of the image.
    pub(super) role: Option<Role>,
    pub(super) versions: Vec<(&'static str, String)>,
    pub(super) virtual_address: Option<String>,
    /// The URL of the cluster's API for clients.
    pub(super) api: Option<String>,
    /// How many control-plane nodes are configured. 0 on a worker, and before the configuration is known.
    pub(super) control_nodes: usize,
    /// How many SSH keys are configured. SSH is off without one.
    pub(super) ssh_keys: Option<usize>,
    pub(super) certificates: Vec<Certificate>,
    /// SHA-256 of the API server's certificate, for first contact.
    pub(super) fingerprint: Option<String>,
    pub(super) disk: Option<String>,
}

impl Facts {
    /// Reads the facts of the node below `root`. Facts that cannot be read are left out.
    pub(super) fn gather(root: &Path, now: SystemTime) -> Self {
        let lifecycle = Lifecycle::of(root);
        let saved = if lifecycle.is_err() { Records::new(root).config().ok().flatten() } else { None };
        let config = match &lifecycle {
            Ok(Lifecycle::Unformed(config) | Lifecycle::Settled(config)) => Some(config),
            _ => saved.as_ref(),
        };
        let password = config.is_some_and(|config| config.node().console_password_hash.is_some());
        let status = Status::read(root).ok();
        // Until the disks are known, a saved configuration may still be found.
        let looked = status.as_ref().is_some_and(|status| status.phase != Phase::Looking);
        let access = match &lifecycle {
            Ok(Lifecycle::Unconfigured) if looked => Access::Open,
            _ if password => Access::Locked,
            Ok(Lifecycle::Unformed(_)) => Access::Open,
            Err(_) if config.is_none() && looked => Access::ResetOnly,
            _ => Access::StatusOnly,
        };
        let image = image::read(root).ok();
        let pki = files::below(root, PKI);
        Self {
            status,
            access,
            unconfigured: matches!(lifecycle, Ok(Lifecycle::Unconfigured)),
            damaged: lifecycle.is_err(),
            settled: matches!(lifecycle, Ok(Lifecycle::Settled(_))),
            role: config.map(|config| config.role()).or_else(|| image.as_ref()?.roles.only()),
            roles: image.as_ref().map(|image| image.roles.clone()),
            versions: image.as_ref().map(|image| versions(root, image, config)).unwrap_or_default(),
            virtual_address: config.and_then(Config::virtual_address).map(|one| one.to_string()),
            api: config.map(api_url),
            control_nodes: config.map_or(0, |config| config.control_nodes().len()),
            ssh_keys: config.map(|config| config.node().ssh_authorized_keys.len()),
            certificates: certificates(root, now),
            fingerprint: fingerprint(&pki.join("apiserver.crt")),
            disk: space(&files::below(root, data_disk(config))),
        }
    }

    /// Whether the data disk is refused for a reason that the operator may overrule: its holder or this image.
    pub(super) fn may_force_adopt(&self) -> bool {
        let overruled = |finding: &Finding| disk::OVERRULED.iter().any(|code| finding.code == code.code);
        self.status.as_ref().is_some_and(|status| status.findings.iter().any(overruled))
    }

    /// Whether the agent still searches for the configuration.
    pub(super) fn is_searching(&self) -> bool {
        self.unconfigured || (self.damaged && self.node().is_none())
    }

    /// The reason why the console shows only the status.
    pub(super) fn why_status_only(&self) -> &'static str {
        match self.is_searching() {
            true => "The agent still looks for the configuration. Try again in a moment.",
            false => "No console password is set: this console shows status only.",
        }
    }

    pub(super) fn node(&self) -> Option<&str> {
        self.status.as_ref()?.node.as_deref()
    }
}

fn versions(root: &Path, image: &ImageFacts, config: Option<&Config>) -> Vec<(&'static str, String)> {
    let carried: Vec<&str> = image.kubernetes.iter().map(|release| release.version.as_str()).collect();
    let runs = config.map_or_else(
        || "none yet".to_owned(),
        |config| {
            let Some(minor) = config.kubernetes_minor() else { return "none yet".to_owned() };
            image
                .kubernetes(minor)
                .map_or_else(|| format!("{minor}, which this image lacks"), |one| one.version.clone())
        },
    );
    let mut rows = vec![
        ("image", image.title()),
        ("Kubernetes", runs),
        ("in the image", carried.join(", ")),
        ("etcd", image.etcd.clone()),
        ("CoreDNS", image.coredns.clone()),
    ];
    if let Ok(authority) = CertificateAuthorities::read(&files::below(root, PKI)).and_then(|all| SshCa::of(&all)) {
        rows.push(("SSH CA", authority.fingerprint()));
    }
    if let Some(identity) = identity(root) {
        rows.push((
            "data disk",
            format!("generation {}, last used by image {}", identity.generation, identity.image_version),
        ));
    }
    rows
}

/// The URL of the cluster's API: at the virtual IP, or at the only control-plane node.
fn api_url(config: &Config) -> String {
    let address = match config {
        Config::ControlPlane(config) => config.cluster.api_address(),
        Config::Worker(config) => config.cluster.api_address,
    };
    format!("https://{address}:{}", ports::API)
}

/// The mount point of the node's data disk, if it has one. A worker's counterpart of the control plane's data is on its system
/// disk.
fn data_disk(config: Option<&Config>) -> &'static str {
    match config {
        Some(Config::Worker(_)) => paths::LOCAL_VOLUMES,
        Some(Config::ControlPlane(_)) | None => paths::DATA,
    }
}

/// The identity on the data disk of this boot's plan.
fn identity(root: &Path) -> Option<crate::host::disk::Identity> {
    let text = fs::read(files::below(root, crate::boot::plan::PATH)).ok()?;
    let plan: crate::boot::plan::Plan = serde_json::from_slice(&text).ok()?;
    let disk = plan.data_disk().or(plan.volumes_disk())?;
    crate::host::disk::Slots::read(disk).ok()?.newest().cloned()
}

/// The node's certificates, the first to expire first.
fn certificates(root: &Path, now: SystemTime) -> Vec<Certificate> {
    let all = certificates::inventory(root).into_iter();
    let mut all: Vec<_> = all.map(|one| Certificate { days: one.days_left(now), name: one.name }).collect();
    all.sort_by(|one, other| one.days.cmp(&other.days).then_with(|| one.name.cmp(&other.name)));
    all
}

fn fingerprint(certificate: &Path) -> Option<String> {
    let text = fs::read(certificate).ok()?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(&text).ok()?;
    let digest: Vec<String> = Sha256::digest(&pem.contents).iter().map(|byte| format!("{byte:02X}")).collect();
    Some(digest.join(":"))
}

fn space(data: &Path) -> Option<String> {
    // If it is not mounted, this would measure another file system.
    if !crate::host::disk::is_mounted(data).ok()? {
        return None;
    }
    let space = nix::sys::statvfs::statvfs(data).ok()?;
    let block = space.fragment_size();
    let (free, total) = (space.blocks_available() * block, space.blocks() * block);
    Some(format!("{} MiB of {} MiB free", free >> 20, total >> 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn days_left_are_whole_and_negative_after_expiry() {
        let root = tempfile::tempdir().unwrap();
        let made = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        crate::cluster::pki::CertificateAuthorities::make(made)
            .unwrap()
            .ensure(&root.path().join("etc/kubernetes/pki"))
            .unwrap();
        let days = |now| certificates(root.path(), now)[0].days;
        let left = days(made);
        assert!((3_600..3_700).contains(&left), "{left}");
        let day = Duration::from_secs(86_400);
        assert_eq!(days(made + day * 10), left - 10);
        assert_eq!(days(made + day * 3_700), left - 3_700);
    }

    #[test]
    fn empty_system_gives_empty_facts() {
        let root = tempfile::tempdir().unwrap();
        let facts = Facts::gather(root.path(), SystemTime::UNIX_EPOCH);
        assert_eq!((facts.access, facts.status, facts.fingerprint), (Access::StatusOnly, None, None));
    }

    #[test]
    fn api_url_has_the_virtual_ip() {
        let mut config = crate::intake::config::fixture::three_nodes();
        config.cluster.virtual_address = Some([192, 168, 10, 10].into());
        assert_eq!(api_url(&Config::ControlPlane(config.clone())), "https://192.168.10.10:6443");
        config.cluster.virtual_address = None;
        let first = config.cluster.control_nodes[0].address;
        assert_eq!(api_url(&Config::ControlPlane(config)), format!("https://{first}:6443"));
    }

    #[test]
    fn a_damaged_record_leaves_password_and_reset() {
        let root = tempfile::tempdir().unwrap();
        let records = Records::new(root.path());
        let mut config = crate::intake::config::fixture::three_nodes();
        config.node.console_password_hash = Some("$5$x$y".into());
        records.save_config(&Config::ControlPlane(config), &contract::secret::Secret::new("s".into())).unwrap();
        crate::status::Reporter::new(root.path(), Status::default()).update(|status| status.phase = Phase::Refused);
        let gather = || Facts::gather(root.path(), SystemTime::UNIX_EPOCH);
        let damage = |record: &str| fs::write(files::below(root.path(), paths::RECORDS).join(record), "{").unwrap();
        assert_eq!((gather().access, gather().damaged), (Access::Locked, false));
        damage("progress.json");
        assert_eq!((gather().access, gather().damaged), (Access::Locked, true));
        damage("config.json");
        assert_eq!((gather().access, gather().damaged), (Access::Locked, true), "the copy has the password");
        damage("config-copy.json");
        assert_eq!((gather().access, gather().damaged), (Access::ResetOnly, true));
        fs::remove_file(files::below(root.path(), paths::RECORDS).join("config.json")).unwrap();
        assert_eq!((gather().access, gather().damaged), (Access::ResetOnly, true));
        assert!(!gather().unconfigured && !gather().settled);
    }
}
