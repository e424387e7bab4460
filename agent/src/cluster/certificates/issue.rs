//! Credentials for users and programs outside of the cluster, signed by the cluster's CA on this node. No part of the
//! key is kept. Each issue is recorded on the data disk before the credential is returned.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail, ensure};
use contract::deployer;
use contract::kubeconfig::Kubeconfig;
use contract::paths;
use contract::ports;
use serde_json::json;
use zeroize::Zeroizing;

use crate::cluster::kubernetes::PKI;
use crate::cluster::pki::groups::MONITORING;
use crate::cluster::pki::{self, CertificateAuthorities, Leaf};
use crate::host::files;
use crate::intake::config::ControlPlane;

/// The record of issued credentials, a JSON object on each line, below [`paths::RECORDS`].
const RECORD: &str = "issued.log";

/// The longest validity of a credential, in days.
pub const LONGEST: u32 = 90;

/// The user of each node's `admin.conf` (kubeadm's `cmd/kubeadm/app/phases/kubeconfig`), also after a renewal.
pub const ADMINISTRATOR: &str = "kubernetes-admin";

/// A text with fewer hexadecimal digits is a name. Serial numbers that nodes draw have 40. Those of kubeadm have 16,
/// one in 128 has 14.
const SHORTEST_SERIAL: usize = 14;

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The rights of the holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Purpose {
    /// Everything, in the whole cluster.
    Administrator,
    /// Read status and metrics of the nodes' endpoints; nothing in the API.
    Monitoring,
}

impl Purpose {
    /// The group in the certificate. Administrators get kubeadm's. It has its rights from a cluster role binding:
    /// unlike those of `system:masters`, they can be withdrawn.
    pub fn group(self) -> &'static str {
        match self {
            Self::Administrator => "kubeadm:cluster-admins",
            Self::Monitoring => MONITORING,
        }
    }
}

pub struct IssuedCredential {
    /// The API's address and CA, with the client's certificate and key.
    pub kubeconfig: Kubeconfig,
    /// The name of user and context in the kubeconfig.
    pub context: String,
    pub ends: SystemTime,
    /// The certificate's serial number, as `openssl x509` writes it.
    pub serial: String,
}

impl IssuedCredential {
    /// Certificate, key and CA certificate in one PEM file, for programs that take files.
    pub fn pem(&self) -> Zeroizing<String> {
        let Kubeconfig { authority, certificate, key, .. } = &self.kubeconfig;
        Zeroizing::new([certificate.as_str(), key.expose(), authority].concat())
    }
}

/// Issues a credential of `group` in the name of `name`, valid for `days`. After an error nothing was issued.
pub fn issue(
    root: &Path,
    config: &ControlPlane,
    group: &str,
    name: &str,
    days: u32,
    now: SystemTime,
) -> anyhow::Result<IssuedCredential> {
    ensure!(
        is_usable(name),
        "the name {name:?} cannot be used: it takes 1 to 63 letters, digits and . @ _ -, and is neither a serial number nor \
         {ADMINISTRATOR}"
    );
    ensure!(
        (1..=LONGEST).contains(&days),
        "a credential is valid for 1 to {LONGEST} days, not {days}: issue the next one in time"
    );
    let authority = CertificateAuthorities::read(&files::below(root, PKI))?.kubernetes;
    let ends = now + DAY * days;
    let last = pki::expiry(&authority.certificate)?;
    ensure!(
        ends <= last,
        "the cluster's CA expires before that: in {} days",
        last.duration_since(now).unwrap_or_default().as_secs() / DAY.as_secs()
    );
    let leaf = Leaf { group: Some(group.to_owned()), ..Leaf::client(name) };
    let client = leaf.issue_for(&authority, now, DAY * days)?;
    let serial = pki::serial(&client.certificate)?;
    note(root, group, name, &serial, now, ends, None).context("noting what is issued")?;
    let server = format!("https://{}:{}", config.cluster.api_address(), ports::API);
    let kubeconfig = pki::kubeconfig(server, authority.certificate, client);
    Ok(IssuedCredential { kubeconfig, context: format!("{name}@{}", config.cluster.name), ends, serial })
}

/// Whether a credential can be issued in this name. Names of the system's own users are refused: they have a colon.
pub fn is_usable(name: &str) -> bool {
    let usable = |byte: u8| byte.is_ascii_alphanumeric() || b".@_-".contains(&byte);
    (1..=63).contains(&name.len()) && name.bytes().all(usable) && !is_serial(name) && name != ADMINISTRATOR
}

/// The beginnings of the names that Kubernetes, kubeadm and this product use. Certificates with such names may have rights.
const RESERVED: [&str; 3] = ["system:", "kubeadm:", "kaas:"];

/// Refuses a group of a member: it has one of the [`RESERVED`] beginnings, or does not fit a certificate.
pub fn check_member_group(group: &str) -> anyhow::Result<()> {
    if let Some(reserved) = RESERVED.iter().find(|reserved| group.starts_with(**reserved)) {
        bail!(
            "the group {group:?} cannot be used: {reserved} is reserved; name a group of your own, such as team-blue"
        );
    }
    let usable = |byte: u8| byte.is_ascii_alphanumeric() || b".@_-:/".contains(&byte);
    ensure!(
        (1..=63).contains(&group.len()) && group.bytes().all(usable),
        "the group {group:?} cannot be used: it takes 1 to 63 letters, digits and . @ _ - : /"
    );
    Ok(())
}

/// Whether a text without colons is a certificate's serial number and no user's name.
pub fn is_serial(digits: &str) -> bool {
    digits.len() >= SHORTEST_SERIAL && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Issues an administrator's certificate for `holder`, the public key that a deployer named who has proved `key`, `from` an
/// address. Its rights end with the certificate, or when the node has another key. After an error nothing was issued.
pub fn for_deployer(
    root: &Path,
    config: &ControlPlane,
    (key, holder): (&deployer::PublicKey, &deployer::PublicKey),
    from: &str,
    now: SystemTime,
) -> anyhow::Result<deployer::Issued> {
    let authority = CertificateAuthorities::read(&files::below(root, PKI))?.kubernetes;
    let (life, user) = (HOUR * deployer::HOURS, deployer::user(key));
    let ends = now + life;
    ensure!(ends <= pki::expiry(&authority.certificate)?, "the cluster's CA expires before that");
    let leaf = Leaf { group: Some(deployer::GROUP.to_owned()), ..Leaf::client(&user) };
    let public = rcgen::SubjectPublicKeyInfo::from_der(&holder.der()).context("using the holder's key")?;
    let certificate = leaf.certify(&public, &authority, now, life)?;
    let serial = pki::serial(&certificate)?;
    note(root, deployer::GROUP, &user, &serial, now, ends, Some(from)).context("noting what is issued")?;
    log::info!(
        "issued an administrator's certificate for the deployer's key {}, requested from {from}, valid until {}, serial \
         {serial}",
        key.fingerprint(),
        humantime::format_rfc3339_seconds(ends)
    );
    Ok(deployer::Issued {
        ca: authority.certificate,
        certificate,
        server: format!("https://{}:{}", config.cluster.api_address(), ports::API),
        cluster: config.cluster.name.clone(),
        ends: seconds(ends),
    })
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn note(
    root: &Path,
    group: &str,
    name: &str,
    serial: &str,
    now: SystemTime,
    ends: SystemTime,
    from: Option<&str>,
) -> anyhow::Result<()> {
    let mut line = json!({
        "issued": seconds(now), "name": name, "group": group, "serial": serial, "ends": seconds(ends),
    });
    if let Some(from) = from {
        line["from"] = from.into();
    }
    let path = files::below(root, paths::RECORDS).join(RECORD);
    let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    file.write_all(format!("{line}\n").as_bytes())?;
    Ok(file.sync_all()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::config::fixture::three_nodes;

    fn stage() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let authorities = CertificateAuthorities::make(SystemTime::now()).unwrap();
        authorities.ensure(&root.path().join("etc/kubernetes/pki")).unwrap();
        std::fs::create_dir_all(root.path().join("data/kaas")).unwrap();
        root
    }

    #[test]
    fn credential_has_name_and_end_and_is_recorded() {
        let root = stage();
        let now = SystemTime::now();
        let issued = issue(root.path(), &three_nodes(), Purpose::Administrator.group(), "anna@site", 30, now).unwrap();
        assert_eq!(issued.kubeconfig.server, "https://10.0.0.10:6443", "the virtual IP");
        let ends = pki::expiry(&issued.kubeconfig.certificate).unwrap();
        assert!(now + 30 * DAY - ends.min(now + 30 * DAY).duration_since(now).unwrap() <= now + DAY / 1000);
        let authority = CertificateAuthorities::read(&root.path().join("etc/kubernetes/pki")).unwrap().kubernetes;
        let Kubeconfig { certificate, key, .. } = issued.kubeconfig.clone();
        pki::verified(&pki::CertificateWithKey { certificate, key }, &authority, now).unwrap();
        let noted = std::fs::read_to_string(root.path().join("data/kaas/issued.log")).unwrap();
        let noted: serde_json::Value = serde_json::from_str(&noted).unwrap();
        assert_eq!((&noted["name"], &noted["serial"]), (&json!("anna@site"), &json!(issued.serial)));
        assert!(!noted.to_string().contains("KEY"));
        assert_eq!(issued.pem().matches("-----BEGIN").count(), 3);
    }

    #[test]
    fn unrecorded_or_invalid_credential_is_not_issued() {
        let root = stage();
        let now = SystemTime::now();
        let refused = |name: &str, days| match issue(root.path(), &three_nodes(), MONITORING, name, days, now) {
            Ok(_) => panic!("{name} for {days} days was issued"),
            Err(error) => format!("{error:#}"),
        };
        for name in
            ["", "system:admin", "kubeadm:anna", "kaas:anna", "a b", &"x".repeat(64), "20261129120000", ADMINISTRATOR]
        {
            assert!(refused(name, 1).contains("cannot be used"));
        }
        for days in [0, 91] {
            assert!(refused("a", days).contains("1 to 90 days"));
        }
        let late = now + 3600 * DAY;
        let error = issue(root.path(), &three_nodes(), MONITORING, "a", 90, late).err().unwrap().to_string();
        assert!(error.contains("the cluster's CA expires before that"), "{error}");
        std::fs::remove_dir(root.path().join("data/kaas")).unwrap();
        assert!(refused("a", 1).contains("noting what is issued"));
    }

    // Finding 1 of controller.md: a member's certificate alone gives no right.
    #[test]
    fn member_group_is_recorded_and_never_reserved() {
        let root = stage();
        check_member_group("team-blue").unwrap();
        let issued = issue(root.path(), &three_nodes(), "team-blue", "anna", 1, SystemTime::now()).unwrap();
        let noted = std::fs::read_to_string(root.path().join("data/kaas/issued.log")).unwrap();
        let noted: serde_json::Value = serde_json::from_str(&noted).unwrap();
        assert_eq!((&noted["group"], &noted["serial"]), (&json!("team-blue"), &json!(issued.serial)));
        for reserved in
            ["system:masters", "system:nodes", "kubeadm:cluster-admins", "kaas:monitoring", "kaas:deployers"]
        {
            let refused = check_member_group(reserved).unwrap_err().to_string();
            assert!(refused.contains("is reserved"), "{refused}");
        }
        for other in ["", "a b", "x\ny", &"x".repeat(64)] {
            assert!(check_member_group(other).unwrap_err().to_string().contains("1 to 63 letters"), "{other}");
        }
    }
}
