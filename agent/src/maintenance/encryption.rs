//! The encryption of Secrets. Each minute the node follows the record of keys. See [`crate::cluster::encryption`].

use std::time::SystemTime;

use contract::finding::Findings;

use super::job::Job;
use crate::cluster::encryption::key_rotation::EncryptingNode;
use crate::host::command::{Runner, SlowHost};
use crate::node::context::NodeContext;
use crate::upgrade::swap::context::SwapContext;

pub(super) fn prepare(node: &NodeContext) -> anyhow::Result<Option<Job>> {
    let manager = node.endpoint.swaps().clone();
    let Some(context) = manager.context().filter(|context| context.reporter.status().is_ready()) else {
        return Ok(None);
    };
    let host = SlowHost(context.config.timeout_factor);
    Ok(Some(Box::new(move |_| look(&context, &host, SystemTime::now()))))
}

fn look(context: &SwapContext, runner: &dyn Runner, now: SystemTime) -> anyhow::Result<Findings> {
    let etcd = context.etcd()?;
    let node = EncryptingNode { root: &context.root, config: &context.config, etcd: &etcd, runner };
    let readable = match node.write_configuration(now)? {
        Err(finding) => return Ok(finding.into()),
        Ok(written) => written.readable,
    };
    node.tell(&readable)?;
    let mut findings = Findings::default();
    for finding in [node.advance_rotation(&readable, now)?, node.without_recovery()].into_iter().flatten() {
        findings.push(finding);
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cluster::encryption::store::Store;
    use crate::cluster::encryption::unwrap_keys::new_key;
    use crate::cluster::etcd::fake::FakeEtcd;
    use crate::cluster::kubernetes::PKI;
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
    fn new_key_waits_for_silent_api_servers() {
        let root = tempfile::tempdir().unwrap();
        let (mut context, pki) = (context(root.path(), None), files::below(root.path(), PKI));
        let fake = FakeEtcd::start(&mut context.config, &pki);
        context.announcer = Announcer::new(&context.config, &pki, root.path(), &context.disk, "b").unwrap();
        context.pki = pki;
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 31);
        assert!(look(&context, &Silent, now).is_err(), "a record was made");
        let etcd = context.etcd().unwrap();
        EncryptingNode { root: &context.root, config: &context.config, etcd: &etcd, runner: &Silent }
            .begin(now)
            .unwrap();
        let store = Store(&etcd);
        let seen = store.read().unwrap();
        let (key, _) = new_key(&context.root).unwrap();
        assert!(store.change(&seen, &seen.set.offered(key, now).unwrap()).unwrap());
        let offered = fake.below("/kaas/encryption/keys");
        for _ in 0..3 {
            let findings = look(&context, &Silent, now).unwrap();
            let codes: Vec<_> = findings.iter().map(|finding| finding.code.as_str()).collect();
            assert_eq!(codes, ["recovery-key.missing"]);
        }
        let late = look(&context, &Silent, now + Duration::from_secs(3600)).unwrap();
        assert!(late.iter().any(|finding| finding.code == "encryption.waiting"), "{late}");
        assert_eq!(fake.below("/kaas/encryption/keys"), offered);
    }
}
