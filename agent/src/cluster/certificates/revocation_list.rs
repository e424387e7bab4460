//! Certificates that the control-plane nodes' endpoints refuse although the cluster's CA has signed them. Each node
//! keeps the list on its data disk, where its endpoint reads it without etcd. The nodes share it through etcd. A
//! restored snapshot may be older, so names are never removed from the list. The Kubernetes API does not use this list.
//!
//! All certificates of a revoked user are refused, later ones too. The time at which a certificate was issued is not
//! certain: clocks differ, and certificates begin with their CA.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{anyhow, ensure};
use serde::{Deserialize, Serialize};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::issue;
use crate::cluster::etcd::client::EtcdClient;
use crate::cluster::records::{Entry, Records};

/// Each name of the list is a key in etcd with this prefix.
const PREFIX: &str = "/kaas/revoked/";

/// The refused names: `serial/DIGITS` or `user/NAME`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevocationList {
    #[serde(default)]
    names: BTreeSet<String>,
}

impl Entry for RevocationList {
    const FILE: &'static str = "revoked.json";
    const WHAT: &'static str = "the list of revoked certificates";
}

/// The list's name for a serial number, without leading zeros: OpenSSL leaves them out in some places.
fn serial(digits: &str) -> String {
    format!("serial/{}", digits.trim_start_matches('0').to_ascii_uppercase())
}

fn user_named(name: &str) -> String {
    format!("user/{name}")
}

/// Whether a certificate, in DER, was revoked. Unknown after an error.
pub fn refuses(root: &Path, certificate: &[u8]) -> anyhow::Result<bool> {
    let Some(RevocationList { names }) = Records::new(root).entry::<RevocationList>()? else { return Ok(false) };
    let (_, certificate) = X509Certificate::from_der(certificate).map_err(|error| anyhow!("reading it: {error}"))?;
    let digits: String = certificate.raw_serial().iter().map(|byte| format!("{byte:02X}")).collect();
    let user = certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    Ok(names.contains(&serial(&digits)) || user.is_some_and(|name| names.contains(&user_named(name))))
}

/// The list's name for a user or a serial number, as `openssl x509 -serial` or `issued.log` writes it. Refuses the user
/// of each node's `admin.conf`.
pub fn name(text: &str) -> anyhow::Result<String> {
    let digits = text.replace(':', "");
    if issue::is_serial(&digits) {
        return Ok(serial(&digits));
    }
    ensure!(
        text != issue::ADMINISTRATOR,
        "{text} is the user of each node's admin.conf: note the serial number of the certificate in it, \
         run `kaas control certificate renew`, then revoke that number"
    );
    ensure!(
        issue::is_usable(text),
        "{text:?} is neither a serial number in hexadecimal digits nor the name of a user that `kaas-agent kubeconfig` takes: \
         /data/kaas/issued.log lists both"
    );
    Ok(user_named(text))
}

/// Adds a name of [`name`] to the list on this node. After an error nothing was revoked.
pub fn revoke(root: &Path, name: &str) -> anyhow::Result<()> {
    let records = Records::new(root);
    let _lock = records.lock()?;
    let mut revoked = records.entry::<RevocationList>()?.unwrap_or_default();
    revoked.names.insert(name.to_owned());
    records.update_entry(&revoked)?;
    log::warn!("{name} is revoked: this node's endpoint refuses it");
    Ok(())
}

/// Adds the names that other nodes have revoked to this node's list, and shares its own. A damaged list is created
/// again. After an error another call completes it.
pub fn share(root: &Path, etcd: &EtcdClient) -> anyhow::Result<()> {
    let stored = etcd.list(PREFIX)?.into_iter().filter_map(|(key, _)| Some(key.strip_prefix(PREFIX)?.to_owned()));
    let stored: BTreeSet<String> = stored.collect();
    for name in take_over(root, &stored)?.names.difference(&stored) {
        etcd.put(&format!("{PREFIX}{name}"), b"revoked")?;
    }
    Ok(())
}

/// Adds the names that others have revoked to this node's list, and returns the whole list.
fn take_over(root: &Path, others: &BTreeSet<String>) -> anyhow::Result<RevocationList> {
    let records = Records::new(root);
    let _lock = records.lock()?;
    let (own, damaged) = match records.entry::<RevocationList>() {
        Ok(own) => (own.unwrap_or_default(), false),
        Err(error) => {
            log::error!("{error:#}: the list is made again from etcd");
            (RevocationList::default(), true)
        }
    };
    let mut all = own.clone();
    all.names.extend(others.iter().cloned());
    if damaged {
        records.begin_entry(&all)?;
    } else if all != own {
        records.update_entry(&all)?;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::cluster::REQUEST;
    use crate::cluster::etcd::fake::FakeEtcd;
    use crate::cluster::kubernetes::PKI;
    use crate::cluster::pki::{self, CertificateAuthorities, Leaf};
    use crate::host::{files, tls};
    use crate::intake::config::fixture::three_nodes;

    #[test]
    fn serial_numbers_and_users_are_distinguished() {
        let said = |text: &str| name(text).map_err(|error| error.to_string());
        assert_eq!(said("0a:1b:2c:3d:4e:5f:60:71").unwrap(), "serial/A1B2C3D4E5F6071");
        assert_eq!(said("1B2C3D4E5F6071").unwrap(), "serial/1B2C3D4E5F6071", "of kubeadm, with a zero in front");
        assert_eq!(said("cafe").unwrap(), "user/cafe");
        assert_eq!(said("anna@site").unwrap(), "user/anna@site");
        for text in ["", "system:kaas:deployer:1", "a b"] {
            assert!(said(text).unwrap_err().contains("issued.log lists both"), "{text}");
        }
        assert!(said("kubernetes-admin").unwrap_err().contains("revoke that number"), "all later ones of a node");
    }

    #[test]
    fn users_are_refused_with_all_their_certificates() {
        let root = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let authority = CertificateAuthorities::make(now).unwrap().kubernetes;
        let issued = |user: &str, at| Leaf::client(user).issue(&authority, at).unwrap().certificate;
        let refused = |pem: &str| refuses(root.path(), &tls::certificates(pem).unwrap()[0]).unwrap();
        let (anna, other, ben) = (issued("anna", now), issued("anna", now), issued("ben", now));
        assert!(!refused(&anna), "there is no list");
        revoke(root.path(), &name(&pki::serial(&anna).unwrap()).unwrap()).unwrap();
        assert_eq!([&anna, &other, &ben].map(|one| refused(one)), [true, false, false]);
        revoke(root.path(), "user/anna").unwrap();
        assert_eq!([&anna, &other, &ben].map(|one| refused(one)), [true, true, false]);
        // From a node whose clock is behind, or ahead.
        let day = Duration::from_secs(24 * 60 * 60);
        assert!([now - day, now + day].into_iter().all(|at| refused(&issued("anna", at))), "a clock decides");
        std::fs::write(root.path().join("data/kaas/revoked.json"), "{").unwrap();
        assert!(refuses(root.path(), &tls::certificates(&ben).unwrap()[0]).is_err(), "nobody knows");
    }

    #[test]
    fn concurrent_additions_are_all_in_the_list() {
        let root = tempfile::tempdir().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| (0..50).for_each(|number| revoke(root.path(), &format!("user/a{number}")).unwrap()));
            scope.spawn(|| {
                (0..50).for_each(|number| {
                    take_over(root.path(), &[format!("user/b{number}")].into()).unwrap();
                });
            });
        });
        assert_eq!(Records::new(root.path()).entry::<RevocationList>().unwrap().unwrap().names.len(), 100);
    }

    #[test]
    fn all_nodes_share_the_list_without_losses() {
        let (one, two, mut config) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), three_nodes());
        let pki = files::below(one.path(), PKI);
        let fake = FakeEtcd::start(&mut config, &pki);
        let etcd = EtcdClient::new(&config.cluster.control_nodes[0], &pki, REQUEST).unwrap();
        let kept = |root: &Path| Records::new(root).entry::<RevocationList>().unwrap().unwrap_or_default().names;
        let stored = || fake.below(PREFIX).into_iter().map(|(key, _)| key).collect::<Vec<_>>();
        revoke(one.path(), "user/anna").unwrap();
        share(one.path(), &etcd).unwrap();
        assert_eq!(stored(), ["/kaas/revoked/user/anna"]);
        share(two.path(), &etcd).unwrap();
        assert_eq!(kept(two.path()), kept(one.path()));
        revoke(two.path(), "user/ben").unwrap();
        share(two.path(), &etcd).unwrap();
        share(one.path(), &etcd).unwrap();
        assert_eq!(kept(one.path()), ["user/anna", "user/ben"].map(str::to_owned).into());
        // A restored store.
        fake.begin_anew();
        share(two.path(), &etcd).unwrap();
        assert_eq!(stored(), ["/kaas/revoked/user/anna", "/kaas/revoked/user/ben"]);
        std::fs::write(two.path().join("data/kaas/revoked.json"), "{").unwrap();
        share(two.path(), &etcd).unwrap();
        assert_eq!(kept(two.path()), kept(one.path()), "a damaged list is made again");
    }
}
