//! Renews the node's certificates well before they expire, restarts the programs that use them, and reports the certificates
//! that this node cannot renew.

use std::path::Path;
use std::sync::PoisonError;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use contract::codes;
use contract::finding::Findings;

use super::health::yield_virtual_address;
use crate::cluster::certificates::api::ApiCertificate;
use crate::cluster::certificates::{self, API, CA_NAMES, Certificate, renewal, users};
use crate::cluster::kubernetes::kubeadm::Kubeadm;
use crate::cluster::kubernetes::kubelet;
use crate::intake::config::ControlPlane;
use crate::intake::preflight::show;
use crate::node::context::{NodeContext, Replacement};

/// How many days before a CA expires it becomes a finding: a year.
const AUTHORITY: i64 = 365;

/// How many days before the operator's own certificate expires it becomes a finding.
const OPERATORS: i64 = 30;

/// The shortest pause between two restarts of the kubelet for certificates. While the clock of their signer is ahead, the next
/// certificates are not valid yet either.
const PAUSE: Duration = Duration::from_secs(60 * 60);

pub(super) fn look(node: &NodeContext) -> anyhow::Result<Findings> {
    let (config, root, now) = (node.control_plane()?, node.platform.root(), SystemTime::now());
    let kubeadm = Kubeadm::new(root, node.runner());
    // A former image made it permanently, and may run again until its swap is committed.
    if node.endpoint.swaps().state().is_none() && kubeadm.forget_super_administrator()? {
        log::info!("removed the kubeconfig of the group system:masters: it is no longer used");
    }
    // Interrupted work shows in the state itself.
    kubeadm.lay(config, &node.platform, node.kubernetes_version()?)?;
    renewal::all_if_due(root, config, node.runner(), now)?;
    if !kubeadm.manifests_are_current() {
        yield_virtual_address(config, node.platform.root(), &node.reporter)?;
        if kubeadm.manifests()? {
            log::info!("the control plane starts again with renewed credentials");
        }
    }
    let replaced = replace_the_kubelets(node, now);
    for unit in users::units() {
        if users::needs_restart(root, unit)? {
            log::info!("{unit} starts again with renewed credentials");
            node.services().restart(unit)?;
            users::mark_restarted(root, unit)?;
        }
    }
    let present = certificates::inventory(root);
    let mut findings = judge(&present, now);
    findings.extend(unusable(root, config));
    node.reporter.update(|status| status.certificates = present);
    replaced.map(|()| findings)
}

/// A finding if the operator's own certificate is damaged.
fn unusable(root: &Path, config: &ControlPlane) -> Findings {
    let Err(error) = ApiCertificate::installed(root, config) else { return Findings::default() };
    let action =
        "Install it again with `kaas-agent certificate install`, or remove it: `kaas-agent certificate remove`";
    codes::API_CERTIFICATE_UNUSABLE.finding("your API certificate", format!("it is not used: {error:#}"), action).into()
}

/// Restarts the kubelet without the certificates that it cannot use. It then asks for others.
pub(super) fn replace_the_kubelets(node: &NodeContext, now: SystemTime) -> anyhow::Result<()> {
    let mut memory = node.replacement.lock().unwrap_or_else(PoisonError::into_inner);
    replace(
        &mut memory,
        now,
        || Ok(kubelet::replace_unusable_certificates(node.root(), now)?),
        || kubelet::try_restart(node.runner()),
    )
}

fn replace(
    memory: &mut Replacement,
    now: SystemTime,
    replace: impl FnOnce() -> anyhow::Result<bool>,
    restart: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // After the clock was set, other certificates may be valid.
    let pauses = memory.last.is_some_and(|last| now.duration_since(last).is_ok_and(|since| since < PAUSE));
    if !pauses && replace()? {
        *memory = Replacement { restart: true, last: Some(now) };
    }
    if memory.restart {
        restart()?;
        memory.restart = false;
    }
    Ok(())
}

/// Certificates that are not valid yet.
pub(super) fn early(certificates: &[Certificate], now: SystemTime, action: &str) -> Findings {
    let mut findings = Findings::default();
    for one in certificates.iter().filter(|one| one.is_early(now)) {
        let begins = show(UNIX_EPOCH + Duration::from_secs(one.begins.unsigned_abs()));
        findings.push(codes::CERTIFICATE_EARLY.finding(
            format!("certificate {}", one.name),
            format!("it begins {begins}, and nothing accepts it before"),
            action,
        ));
    }
    findings
}

fn judge(certificates: &[Certificate], now: SystemTime) -> Findings {
    let mut findings = Findings::default();
    for one in certificates.iter().filter(|one| CA_NAMES.contains(&one.name.as_str())) {
        let (subject, end) = (format!("certificate authority {}", one.name), one.end(now));
        match one.days_left(now) {
            ..0 => findings.push(codes::AUTHORITY_EXPIRED.finding(
                subject,
                format!("it {end}"),
                "Check the clock. If it is right, the cluster has come to its end: bring its workloads to a new one",
            )),
            0..AUTHORITY => findings.push(codes::AUTHORITY_ENDS.finding(
                subject,
                format!("it {end}, and no certificate that it has signed is accepted afterwards"),
                "Plan a new cluster, or an image that renews certificate authorities, before that day",
            )),
            _ => {}
        }
    }
    let action = "Check the clocks of this node and of those that it asks for the time. If they are right, the clock was ahead when the \
                  certificate was made: the node makes its own again, and you install yours again with \
                  `kaas-agent certificate install`";
    findings.extend(early(certificates, now, action));
    for one in certificates.iter().filter(|one| one.name == API) {
        let code = match one.days_left(now) {
            ..0 => &codes::API_CERTIFICATE_EXPIRED,
            0..OPERATORS => &codes::API_CERTIFICATE_ENDS,
            _ => continue,
        };
        findings.push(code.finding(
            "your API certificate",
            format!("it {}", one.end(now)),
            "Install the next one on each control-plane node: `kaas-agent certificate install`",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files;

    #[test]
    fn finding_names_a_damaged_api_certificate() {
        let (root, config) = (tempfile::tempdir().unwrap(), crate::intake::config::fixture::three_nodes());
        assert!(unusable(root.path(), &config).is_empty(), "there is none");
        let installed = files::below(root.path(), certificates::api::PATH);
        std::fs::create_dir_all(installed.parent().unwrap()).unwrap();
        std::fs::write(installed, "half a certif").unwrap();
        let findings = unusable(root.path(), &config);
        let found: Vec<_> = findings.iter().map(|finding| finding.code.as_str()).collect();
        assert_eq!(found, ["api-certificate.unusable"]);
        assert!(findings.to_string().contains("`kaas-agent certificate remove`"), "{findings}");
    }

    #[test]
    fn kubelet_is_restarted_once_an_hour_for_certificates() {
        let (mut memory, replaced) = (Replacement::default(), std::cell::Cell::new(0));
        let mut look = |minute: u64, succeeds: bool| {
            let now = UNIX_EPOCH + Duration::from_secs(60 * minute);
            let count = || {
                replaced.set(replaced.get() + 1);
                Ok(true)
            };
            let restart = || if succeeds { Ok(()) } else { anyhow::bail!("systemctl failed") };
            (replace(&mut memory, now, count, restart).is_ok(), replaced.get())
        };
        assert_eq!(look(100, false), (false, 1));
        assert_eq!(look(110, false), (false, 1), "the restart is tried again");
        assert_eq!(look(120, true), (true, 1));
        assert_eq!(look(130, false), (true, 1), "nothing is due");
        assert_eq!(look(160, true), (true, 2));
        assert_eq!(look(50, true), (true, 3), "the clock was set");
    }

    #[test]
    fn finding_names_a_certificate_not_yet_valid() {
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let begins =
            |seconds: i64| Certificate { name: "ca".into(), ends: 3_000_000_000, begins: 1_800_000_000 + seconds };
        assert!(judge(&[begins(-1)], now).is_empty());
        let findings = judge(&[begins(60)], now);
        let found: Vec<_> = findings.iter().map(|finding| finding.code.as_str()).collect();
        assert_eq!(found, ["certificate.not-yet-valid"]);
        assert!(findings.to_string().contains("certificate ca: it begins Jan 15 08:01:00 2027"), "{findings}");
    }

    #[test]
    fn expiring_cas_are_reported_a_year_before() {
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let end = |name: &str, days: i64| Certificate {
            name: name.into(),
            ends: 1_800_000_000 + days * 24 * 60 * 60,
            begins: 0,
        };
        assert!(judge(&[end("ca", 366), end("apiserver", 1)], now).is_empty());
        let findings = judge(&[end("ca", 364), end("etcd-ca", -2)], now);
        let codes: Vec<&str> = findings.iter().map(|finding| finding.code.as_str()).collect();
        assert_eq!(codes, ["authority.ends-soon", "authority.expired"]);
        assert!(judge(&[end("api", 31)], now).is_empty());
        let operators = judge(&[end("api", 29), end("api", -1)], now);
        let codes: Vec<&str> = operators.iter().map(|finding| finding.code.as_str()).collect();
        assert_eq!(codes, ["api-certificate.ends-soon", "api-certificate.expired"]);
        assert!(findings.to_string().contains("authority ca: it ends in 364 days"), "{findings}");
    }
}
