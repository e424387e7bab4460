//! Certificates that the control-plane nodes' endpoints refuse although the cluster's CA has signed them. Each node keeps the
//! list on its data disk, where its endpoint reads it without etcd; the nodes share it through etcd, whose snapshots may be
//! older: nothing is taken from the list. The Kubernetes API knows no such list.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{anyhow, ensure};
use serde::{Deserialize, Serialize};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::issue;
use crate::cluster::etcd::client::EtcdClient;
use crate::cluster::pki::BACKDATE;
use crate::cluster::records::{Entry, Records};

/// Below it each name of the list has a key in etcd.
const PREFIX: &str = "/kaas/revoked/";

/// Fewer hexadecimal digits are a user's name. Serial numbers that nodes draw have 40.
const SHORTEST_SERIAL: usize = 16;

/// The list: what is refused, `serial/DIGITS` or `user/NAME`, and since when, in seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revoked {
    #[serde(default)]
    since: BTreeMap<String, u64>,
}

impl Entry for Revoked {
    const FILE: &'static str = "revoked.json";
    const WHAT: &'static str = "the list of revoked certificates";
}

impl Revoked {
    fn refuses(&self, certificate: &X509Certificate<'_>) -> bool {
        let digits: String = certificate.raw_serial().iter().map(|byte| format!("{byte:02X}")).collect();
        let user = certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
        let since = user.and_then(|user| self.since.get(&format!("user/{user}")));
        // A certificate is valid from so long before it is issued. What is issued to the user later is admitted.
        let begins = u64::try_from(certificate.validity().not_before.timestamp()).unwrap_or_default();
        self.since.contains_key(&serial(&digits)) || since.is_some_and(|since| begins + BACKDATE.as_secs() <= *since)
    }
}

/// OpenSSL leaves leading zeros out in some places.
fn serial(digits: &str) -> String {
    format!("serial/{}", digits.trim_start_matches('0').to_ascii_uppercase())
}

/// Whether a certificate, in DER, was revoked.
///
/// # Errors
/// The list cannot be read or understood: whether it was is not known.
pub fn refuses(root: &Path, certificate: &[u8]) -> anyhow::Result<bool> {
    let Some(revoked) = Records::new(root).entry::<Revoked>()? else { return Ok(false) };
    let (_, certificate) = X509Certificate::from_der(certificate).map_err(|error| anyhow!("reading it: {error}"))?;
    Ok(revoked.refuses(&certificate))
}

/// What the list calls a serial number, as `openssl x509 -serial` or `issued.log` writes it, or a user.
///
/// # Errors
/// It is neither.
pub fn name(text: &str) -> anyhow::Result<String> {
    let digits = text.replace(':', "");
    if digits.len() >= SHORTEST_SERIAL && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(serial(&digits));
    }
    ensure!(
        issue::is_usable(text),
        "{text:?} is neither a serial number in hexadecimal digits nor the name of a user that `kaas-agent kubeconfig` takes: \
         /data/kaas/issued.log lists both"
    );
    Ok(format!("user/{text}"))
}

/// Revokes what the list calls so on this node.
///
/// # Errors
/// The list cannot be read or understood, or the file system's: nothing was revoked then.
pub fn revoke(root: &Path, name: &str, now: SystemTime) -> anyhow::Result<()> {
    let records = Records::new(root);
    let mut revoked = records.entry::<Revoked>()?.unwrap_or_default();
    let now = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    revoked.since.insert(name.to_owned(), now);
    records.update_entry(&revoked)?;
    log::warn!("{name} is revoked: this node's endpoint refuses it");
    Ok(())
}

/// Takes over what other nodes have revoked, and tells them what this one has. A list that is damaged is made again.
///
/// # Errors
/// etcd does not answer, or the file system's; doing it again completes it.
pub fn share(root: &Path, etcd: &EtcdClient) -> anyhow::Result<()> {
    let records = Records::new(root);
    let stored: BTreeMap<String, u64> = etcd.list(PREFIX)?.into_iter().filter_map(read).collect();
    let (own, damaged) = match records.entry::<Revoked>() {
        Ok(own) => (own.unwrap_or_default(), false),
        Err(error) => {
            log::error!("{error:#}: the list is made again from etcd");
            (Revoked::default(), true)
        }
    };
    let mut all = own.clone();
    for (name, since) in &stored {
        let known = all.since.entry(name.clone()).or_default();
        *known = (*known).max(*since);
    }
    if damaged {
        records.begin_entry(&all)?;
    } else if all != own {
        records.update_entry(&all)?;
    }
    for (name, since) in all.since.iter().filter(|(name, since)| stored.get(*name) < Some(*since)) {
        etcd.put(&format!("{PREFIX}{name}"), since.to_string().as_bytes())?;
    }
    Ok(())
}

/// An entry of etcd; none if it is not understood.
fn read((key, since): (String, Vec<u8>)) -> Option<(String, u64)> {
    Some((key.strip_prefix(PREFIX)?.to_owned(), std::str::from_utf8(&since).ok()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::REQUEST;
    use crate::cluster::etcd::fake::FakeEtcd;
    use crate::cluster::kubernetes::PKI;
    use crate::cluster::pki::{self, Authorities, Leaf};
    use crate::host::{files, tls};
    use crate::intake::config::fixture::three_nodes;

    #[test]
    fn a_serial_number_and_a_user_are_told_apart() {
        let said = |text: &str| name(text).map_err(|error| error.to_string());
        assert_eq!(said("0a:1b:2c:3d:4e:5f:60:71").unwrap(), "serial/A1B2C3D4E5F6071");
        assert_eq!(said("cafe").unwrap(), "user/cafe");
        assert_eq!(said("anna@site").unwrap(), "user/anna@site");
        for text in ["", "system:kaas:deployer:1", "a b"] {
            assert!(said(text).unwrap_err().contains("issued.log lists both"), "{text}");
        }
    }

    #[test]
    fn a_user_is_refused_with_what_was_issued_before_and_a_serial_number_alone() {
        let root = tempfile::tempdir().unwrap();
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let authority = Authorities::make(now).unwrap().kubernetes;
        let issued = |user: &str, at| Leaf::client(user).issue(&authority, at).unwrap().certificate;
        let refused = |pem: &str| refuses(root.path(), &tls::certificates(pem).unwrap()[0]).unwrap();
        let (anna, other, ben) = (issued("anna", now), issued("anna", now), issued("ben", now));
        assert!(!refused(&anna), "there is no list");
        revoke(root.path(), &name(&pki::serial(&anna).unwrap()).unwrap(), now).unwrap();
        assert_eq!([&anna, &other, &ben].map(|one| refused(one)), [true, false, false]);
        revoke(root.path(), "user/anna", now).unwrap();
        assert_eq!([&anna, &other, &ben].map(|one| refused(one)), [true, true, false]);
        assert!(!refused(&issued("anna", now + Duration::from_secs(1))), "what was issued since is good");
        std::fs::write(root.path().join("data/kaas/revoked.json"), "{").unwrap();
        assert!(refuses(root.path(), &tls::certificates(&ben).unwrap()[0]).is_err(), "nobody knows");
    }

    #[test]
    fn each_node_learns_what_any_has_revoked_and_an_older_store_forgets_nothing() {
        let (one, two, mut config) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), three_nodes());
        let pki = files::below(one.path(), PKI);
        let fake = FakeEtcd::start(&mut config, &pki);
        let etcd = EtcdClient::new(&config.cluster.control_nodes[0], &pki, REQUEST).unwrap();
        let kept = |root: &Path| Records::new(root).entry::<Revoked>().unwrap().unwrap_or_default().since;
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        std::fs::create_dir_all(one.path().join("data/kaas")).unwrap();
        std::fs::create_dir_all(two.path().join("data/kaas")).unwrap();
        revoke(one.path(), "user/anna", at(10)).unwrap();
        share(one.path(), &etcd).unwrap();
        assert_eq!(fake.below(PREFIX), [("/kaas/revoked/user/anna".to_owned(), "10".to_owned())]);
        share(two.path(), &etcd).unwrap();
        assert_eq!(kept(two.path()), kept(one.path()));
        // Again, later, on another node.
        revoke(two.path(), "user/anna", at(20)).unwrap();
        share(two.path(), &etcd).unwrap();
        share(one.path(), &etcd).unwrap();
        assert_eq!(kept(one.path()), [("user/anna".to_owned(), 20)].into());
        // A restored store, and one that a later version has written to.
        fake.set("/kaas/revoked/user/anna", "10");
        fake.set("/kaas/revoked/user/strange", "{}");
        share(two.path(), &etcd).unwrap();
        assert_eq!(fake.below("/kaas/revoked/user/anna")[0].1, "20");
        std::fs::write(two.path().join("data/kaas/revoked.json"), "{").unwrap();
        share(two.path(), &etcd).unwrap();
        assert_eq!(kept(two.path()), kept(one.path()), "a damaged list is made again");
    }
}
