//! The encryption of Secrets. Each minute the node follows the record of keys. A cluster that an earlier image has formed
//! begins to encrypt once all nodes run one committed image that can encrypt. See [`crate::cluster::encryption`].

use std::time::SystemTime;

use anyhow::Context as _;
use contract::finding::Findings;

use super::job::Job;
use crate::cluster::encryption::key_rotation::{EncryptingNode, WrittenConfig};
use crate::host::command::{Runner, SlowHost};
use crate::node::context::NodeContext;
use crate::upgrade::swap::context::SwapContext;
use crate::upgrade::swap::node_record;

pub(super) fn prepare(node: &NodeContext) -> anyhow::Result<Option<Job>> {
    let manager = node.endpoint.swaps().clone();
    let Some(context) = manager.context().filter(|context| context.reporter.status().is_ready()) else {
        return Ok(None);
    };
    let host = SlowHost(context.config.timeout_factor);
    Ok(Some(Box::new(move |_| look(&context, manager.state().is_some(), &host, SystemTime::now()))))
}

fn look(context: &SwapContext, swap_open: bool, runner: &dyn Runner, now: SystemTime) -> anyhow::Result<Findings> {
    let etcd = context.etcd()?;
    let node = EncryptingNode { root: &context.root, config: &context.config, etcd: &etcd, runner };
    match node.write_configuration(now)? {
        Err(finding) => Ok(finding.into()),
        Ok(WrittenConfig::Clear { .. }) => {
            // The former image could not read a single Secret, so no node may still roll back to it.
            if !swap_open && etcd.status()?.is_leader() {
                let known = node_record::list(&etcd).context("looking what the other nodes run")?;
                if node_record::settled(&context.config, &known, &context.image.build) {
                    node.begin(now)?;
                    context.note("all nodes run one image that encrypts Secrets, for good: encrypting them begins");
                }
            }
            Ok(Findings::default())
        }
        Ok(WrittenConfig::Keys { readable, .. }) => {
            node.tell(&readable)?;
            let mut findings = Findings::default();
            for finding in [node.advance_rotation(&readable, now)?, node.without_recovery()].into_iter().flatten() {
                findings.push(finding);
            }
            Ok(findings)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cluster::etcd::fake::FakeEtcd;
    use crate::cluster::kubernetes::PKI;
    use crate::cluster::kubernetes::api_server::encryption_configuration;
    use crate::host::command::{Command, Error};
    use crate::host::files;
    use crate::upgrade::swap::manager::tests::context;
    use crate::upgrade::swap::node_record::Announcer;

    /// An API server that reports nothing about its keys.
    struct Silent;

    impl Runner for Silent {
        fn run(&self, _: &Command) -> Result<Vec<u8>, Error> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn encryption_begins_after_all_nodes_committed_one_image() {
        let root = tempfile::tempdir().unwrap();
        let (mut context, pki) = (context(root.path(), None), files::below(root.path(), PKI));
        let etcd = FakeEtcd::start(&mut context.config, &pki);
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 31);
        let announcer = |build: &str| Announcer::new(&context.config, &pki, root.path(), &context.disk, build).unwrap();
        let (former, own) = (announcer("the former image's"), announcer(&context.image.build));
        (context.pki, context.announcer) = (pki.clone(), own.clone());
        let clear = |swap_open| {
            let findings = look(&context, swap_open, &Silent, now).unwrap();
            assert!(findings.is_empty(), "{findings}");
            assert!(etcd.below("/kaas/encryption/").is_empty(), "it began");
            let laid =
                std::fs::read_to_string(files::below(root.path(), encryption_configuration::CONFIGURATION)).unwrap();
            assert!(laid.contains("\"identity\"") && !laid.contains("secretbox"), "{laid}");
        };
        // No node has announced its image; then one runs the former image; then a swap is not committed.
        clear(false);
        former.announce(None).unwrap();
        clear(false);
        own.announce(None).unwrap();
        clear(true);
        own.announce(Some(uuid::Uuid::from_u128(1))).unwrap();
        clear(false);

        own.announce(None).unwrap();
        look(&context, false, &Silent, now).unwrap();
        let begun = etcd.below("/kaas/encryption/keys");
        assert_eq!(begun.len(), 1);
        let set: serde_json::Value = serde_json::from_str(&begun[0].1).unwrap();
        assert_eq!(
            (&set["write"], &set["clear"]),
            (&serde_json::Value::Null, &true.into()),
            "read first, written later"
        );
        // Nothing is written with the key until the API server reports that it can read it.
        for _ in 0..3 {
            let findings = look(&context, false, &Silent, now).unwrap();
            let codes: Vec<_> = findings.iter().map(|finding| finding.code.as_str()).collect();
            assert_eq!(codes, ["recovery-key.missing"]);
        }
        let late = look(&context, false, &Silent, now + Duration::from_secs(3600)).unwrap();
        assert!(late.iter().any(|finding| finding.code == "encryption.waiting"), "{late}");
        assert_eq!(etcd.below("/kaas/encryption/keys"), begun);
        let laid = std::fs::read_to_string(files::below(root.path(), encryption_configuration::CONFIGURATION)).unwrap();
        assert!(laid.find("identity").unwrap() < laid.find("secretbox").unwrap(), "{laid}");
    }
}
