//! Renews the node's certificates well before they end, starts those again
//! that use them, and says which ones nobody here can renew.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::certificates::api::ApiCertificate;
use crate::certificates::{self, API, AUTHORITIES, Certificate, renewal, users};
use crate::codes;
use crate::finding::Findings;
use crate::kubernetes::kubeadm::Kubeadm;
use crate::steps::Machine;

/// How long before its end an authority becomes a finding, in seconds: a year.
const AUTHORITY: i64 = 365 * DAY;

/// How long before its end the operator's own certificate becomes one, in seconds.
const OPERATORS: i64 = 30 * DAY;

const DAY: i64 = 24 * 60 * 60;

pub(super) fn look(machine: &Machine) -> anyhow::Result<Findings> {
    let (root, now) = (machine.platform.root(), SystemTime::now());
    let kubeadm = Kubeadm::new(root, machine.runner());
    // Whatever was cut off before is seen in the state itself.
    kubeadm.lay(&machine.config, &machine.platform, machine.kubernetes_version()?)?;
    renewal::all_if_due(root, &machine.config, machine.runner(), now)?;
    if !kubeadm.manifests_are_current() && kubeadm.manifests()? {
        log::info!("the control plane starts again with renewed credentials");
    }
    for unit in users::units() {
        if users::have_new(root, unit)? {
            log::info!("{unit} starts again with renewed credentials");
            machine.services().restart(unit)?;
            users::note(root, unit)?;
        }
    }
    let present = certificates::inventory(root);
    let mut findings = judge(&present, now);
    if let Err(error) = ApiCertificate::installed(root, &machine.config) {
        findings.push(codes::API_CERTIFICATE_UNUSABLE.finding(
            "your API certificate",
            format!("it is not used: {error:#}"),
            "Install it again, or remove it: kaas-agent certificate",
        ));
    }
    machine.reporter.update(|status| status.certificates = present);
    Ok(findings)
}

/// What a person has to see to.
fn judge(certificates: &[Certificate], now: SystemTime) -> Findings {
    let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX));
    let mut findings = Findings::default();
    for one in certificates.iter().filter(|one| AUTHORITIES.contains(&one.name.as_str())) {
        let subject = format!("authority {}", one.name);
        let days = (one.ends - now) / DAY;
        if one.ends <= now {
            findings.push(codes::AUTHORITY_EXPIRED.finding(
                subject,
                format!("it ended {} days ago", -days),
                "Check the clock. If it is right, the cluster has come to its end: bring its workloads to a new one",
            ));
        } else if one.ends <= now + AUTHORITY {
            findings.push(codes::AUTHORITY_ENDS.finding(
                subject,
                format!("it ends in {days} days, and no certificate that it has signed is accepted afterwards"),
                "Plan a new cluster, or an image that renews authorities, before that day",
            ));
        }
    }
    for one in certificates.iter().filter(|one| one.name == API && one.ends <= now + OPERATORS) {
        let days = (one.ends - now) / DAY;
        let action = "Install the next one on each control node: kaas-agent certificate install";
        findings.push(if one.ends <= now {
            codes::API_CERTIFICATE_EXPIRED.finding(
                "your API certificate",
                format!("it ended {} days ago", -days),
                action,
            )
        } else {
            codes::API_CERTIFICATE_ENDS.finding("your API certificate", format!("it ends in {days} days"), action)
        });
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn authorities_are_told_of_a_year_before_their_end() {
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let end = |name: &str, days: i64| Certificate { name: name.into(), ends: 1_800_000_000 + days * DAY };
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
