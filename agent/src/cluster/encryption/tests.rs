//! Three nodes with fake API servers, over one store: from one key to the next, with interruptions anywhere. At no time is
//! there a Secret that one of the API servers cannot read.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use contract::ports;
use contract::recovery::{Keys, PrivateKey};
use serde_json::Value;
use tempfile::TempDir;

use super::key_rotation::EncryptingNode;
use super::key_set::{KeySet, RotationStep, WrappedKey};
use super::store::Store;
use super::unwrap_keys::{self, KeyLookup};
use super::wrap;
use crate::cluster::etcd::client::EtcdClient;
use crate::cluster::etcd::fake::FakeEtcd;
use crate::cluster::kubernetes::PKI;
use crate::cluster::kubernetes::api_server::encryption_configuration;
use crate::cluster::kubernetes::fake_api::FakeApi;
use crate::cluster::pki::{CertificateAuthorities, fixed_authority};
use crate::cluster::records::Records;
use crate::cluster::recovered_keys::RecoveredKeys;
use crate::host::command::{Command, Error, Runner};
use crate::host::fake_server;
use crate::host::files;
use crate::intake::config::ControlPlane;
use crate::intake::config::fixture::three_nodes;

/// The configuration that each API server has loaded, by its address.
type LoadedFiles = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// The names of the keys of a configuration.
fn keys(content: &[u8]) -> Vec<String> {
    let whole: Value = serde_json::from_slice(content).unwrap();
    let keys = whole["resources"][0]["providers"][0]["secretbox"]["keys"].as_array().unwrap();
    keys.iter().map(|key| key["name"].as_str().unwrap().to_owned()).collect()
}

/// A value as the API server would write it.
fn written(by: &str) -> String {
    format!("k8s:enc:secretbox:v1:{by}:sealed")
}

struct World {
    configs: Vec<ControlPlane>,
    roots: Vec<TempDir>,
    etcd: FakeEtcd,
    loaded: LoadedFiles,
    /// The Secret whose rewriting an admission webhook refuses, if any.
    refused: Arc<Mutex<Option<&'static str>>>,
    now: SystemTime,
}

/// Answers requests for metrics with the configuration that the API server has loaded.
struct Metrics(LoadedFiles);

impl Runner for Metrics {
    fn run(&self, command: &Command) -> Result<Vec<u8>, Error> {
        let line = command.to_string();
        assert!(line.ends_with("get --raw /metrics"), "{line}");
        let loaded = self.0.lock().unwrap();
        let (_, content) = loaded.iter().find(|(address, _)| line.contains(&format!("https://{address}:"))).unwrap();
        let sum = encryption_configuration::sum(content);
        let name = "apiserver_encryption_config_controller_last_config_info";
        Ok(format!("{name}{{apiserver_id_hash=\"sha256:0\",hash=\"sha256:{sum}\"}} 1\n").into_bytes())
    }
}

impl World {
    /// Its API servers have a key, and have written three Secrets.
    fn new() -> Self {
        let world = Self::blank();
        world.begin(0);
        for index in 0..3 {
            world.start(index);
        }
        let by = world.set().write;
        for name in ["a", "b", "c"] {
            world.etcd.set(&format!("/registry/secrets/default/{name}"), &written(&by));
        }
        world
    }

    /// Its API servers have not started.
    fn blank() -> Self {
        let roots: Vec<TempDir> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
        let pki = |root: &TempDir| files::below(root.path(), PKI);
        let mut config = three_nodes();
        let etcd = FakeEtcd::start(&mut config, &pki(&roots[0]));
        let authorities = CertificateAuthorities::read(&pki(&roots[0])).unwrap();
        let nodes = config.cluster.control_nodes.clone();
        let loaded = LoadedFiles::default();
        let refused = Arc::<Mutex<Option<&'static str>>>::default();
        let mut configs = Vec::new();
        for (node, root) in nodes.iter().zip(&roots) {
            authorities.ensure(&pki(root)).unwrap();
            crate::cluster::pki::ensure_member(node, &pki(root), SystemTime::now()).unwrap();
            FakeApi::lay_kubeconfig(root.path(), &pki(root));
            let mut own = config.clone();
            own.node.name = node.name.clone();
            own.node.interfaces[0].address = ipnet::Ipv4Net::new(node.address, 8).unwrap().into();
            configs.push(own);
            let (store, loaded, address) = (etcd.clone(), Arc::clone(&loaded), node.address.to_string());
            let refused = Arc::clone(&refused);
            let answer = move |path: &str, _: &Value| {
                let name = path.strip_prefix("/api/v1/namespaces/default/secrets/").expect("a Secret");
                if *refused.lock().unwrap() == Some(name) {
                    return (403, Value::Null);
                }
                let by = keys(&loaded.lock().unwrap()[&address])[0].clone();
                store.set(&format!("/registry/secrets/default/{name}"), &written(&by));
                (200, Value::Null)
            };
            fake_server::serve(
                SocketAddr::from((node.address, ports::API)),
                &pki(root).join("etcd/server"),
                Box::new(answer),
            );
        }
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 31);
        Self { configs, roots, etcd, loaded, refused, now }
    }

    fn client(&self, index: usize) -> EtcdClient {
        let node = self.configs[index].control_node().unwrap();
        EtcdClient::new(node, &files::below(self.roots[index].path(), PKI), Duration::from_secs(60)).unwrap()
    }

    fn set(&self) -> KeySet {
        Store(&self.client(0)).read().unwrap().set
    }

    /// A node writes the configuration, and its API server starts with it.
    fn start(&self, index: usize) {
        let (etcd, runner) = (self.client(index), Metrics(Arc::clone(&self.loaded)));
        let (root, config) = (self.roots[index].path(), &self.configs[index]);
        let node = EncryptingNode { root, config, etcd: &etcd, runner: &runner };
        assert!(node.write_configuration(self.now).unwrap().is_ok());
        let content = std::fs::read(files::below(root, encryption_configuration::CONFIGURATION)).unwrap();
        self.loaded.lock().unwrap().insert(config.address().to_string(), content);
    }

    /// A minute of one node's maintenance. Then its API server reads its file.
    fn minute(&self, index: usize) -> anyhow::Result<()> {
        let (etcd, runner) = (self.client(index), Metrics(Arc::clone(&self.loaded)));
        let (root, config) = (self.roots[index].path(), &self.configs[index]);
        let node = EncryptingNode { root, config, etcd: &etcd, runner: &runner };
        let done = node.write_configuration(self.now).and_then(|written| {
            let readable = written.expect("the keys of this cluster").readable;
            node.tell(&readable)?;
            node.advance_rotation(&readable, self.now).map(drop)
        });
        if let Ok(content) = std::fs::read(files::below(root, encryption_configuration::CONFIGURATION)) {
            self.loaded.lock().unwrap().insert(config.address().to_string(), content);
        }
        self.each_api_server_reads_each_secret();
        done
    }

    /// A client changes a Secret through one of the API servers.
    fn write(&self, index: usize) {
        let by = keys(&self.loaded.lock().unwrap()[&self.configs[index].address().to_string()])[0].clone();
        self.etcd.set("/registry/secrets/default/changed", &written(&by));
        self.each_api_server_reads_each_secret();
    }

    fn each_api_server_reads_each_secret(&self) {
        for (address, content) in self.loaded.lock().unwrap().iter() {
            let readable: Vec<String> = keys(content).iter().map(|key| written(key)).collect();
            for (name, value) in self.etcd.below("/registry/secrets/") {
                assert!(readable.contains(&value), "{address} cannot read {name}: {value}, only {readable:?}");
            }
        }
    }

    /// Minutes of all nodes, with changes in between, until no step of the record is left.
    fn until_rest(&self) -> KeySet {
        for round in 0..20 {
            for index in 0..3 {
                self.minute(index).unwrap();
                self.write((index + round) % 3);
            }
            let set = self.set();
            if set.next(&[], &BTreeMap::new(), self.now) == RotationStep::Idle {
                return set;
            }
        }
        panic!("the record does not come to rest: {:?}", self.set());
    }

    fn begin(&self, index: usize) {
        let (etcd, runner) = (self.client(index), Metrics(Arc::clone(&self.loaded)));
        let (root, config) = (self.roots[index].path(), &self.configs[index]);
        EncryptingNode { root, config, etcd: &etcd, runner: &runner }.begin(self.now).unwrap();
    }

    fn offer(&self) {
        let etcd = self.client(0);
        let store = Store(&etcd);
        let seen = store.read().unwrap();
        let (key, _) = unwrap_keys::new_key(self.roots[0].path()).unwrap();
        assert!(store.change(&seen, &seen.set.offered(key, self.now).unwrap()).unwrap());
    }

    fn all_secrets_are_by(&self, set: &KeySet) {
        let expected = written(&set.write);
        for (name, value) in self.etcd.below("/registry/secrets/") {
            assert_eq!(value, expected, "{name}");
        }
        assert_eq!(set.keys.len(), 1);
    }
}

#[test]
fn key_is_replaced_by_another_one() {
    let world = World::new();
    let one = world.set();
    // A later node changes nothing.
    world.begin(1);
    assert_eq!(world.until_rest(), one);
    world.offer();
    // During one change no other one begins.
    assert!(world.set().offered(one.keys[0].clone(), world.now).is_none());
    let two = world.until_rest();
    world.all_secrets_are_by(&two);
    assert_ne!(one.write, two.write);
}

#[test]
fn secret_that_a_webhook_refuses_delays_the_change() {
    let world = World::new();
    *world.refused.lock().unwrap() = Some("b");
    world.offer();
    let mut said = Vec::new();
    for index in [0, 1, 2].into_iter().cycle().take(30) {
        // A node's maintenance reports it as `maintenance.failed`.
        said.extend(world.minute(index).err().map(|error| (index, format!("{error:#}"))));
    }
    let expected = "writing the Secret default/b again: the API server answers 403";
    assert!(said.len() > 1 && said.iter().all(|(index, error)| *index == 0 && error == expected), "{said:?}");
    assert_eq!(world.set().keys.len(), 2, "the change went on without it");
    *world.refused.lock().unwrap() = None;
    world.all_secrets_are_by(&world.until_rest());
}

#[test]
fn missing_node_delays_the_next_step() {
    let world = World::new();
    world.offer();
    let generation = world.set().generation;
    for _ in 0..5 {
        world.minute(0).unwrap();
        world.minute(1).unwrap();
    }
    let waiting = world.set();
    assert_eq!(waiting.generation, generation, "a step without the third node");
    let loaded = Store(&world.client(0)).loaded().unwrap();
    assert_eq!(
        waiting.next(&["node1", "node2", "node3"], &loaded, world.now),
        RotationStep::Wait(vec!["node3".into()])
    );
    // The node comes back, and gets the keys before its API server starts.
    world.until_rest();
}

#[test]
fn interrupted_rotation_continues() {
    for requests in 0..60 {
        let world = World::new();
        world.offer();
        let mut cut = false;
        // The store fails during one node's work, once in each minute, later in each round.
        for index in [0, 1, 2].into_iter().cycle().take(15) {
            world.etcd.fail_after(Some(requests));
            let failed = world.minute(index).is_err();
            cut |= failed;
            world.etcd.fail_after(None);
            world.write(index);
        }
        let set = world.until_rest();
        world.all_secrets_are_by(&set);
        if !cut {
            assert!(requests > 5, "nothing was cut off");
            return;
        }
    }
    panic!("a minute asks too much of the store");
}

#[test]
fn forming_cluster_writes_with_its_first_key() {
    let world = World::blank();
    world.begin(1);
    let etcd = world.client(2);
    let runner = Metrics(Arc::clone(&world.loaded));
    let node = EncryptingNode { root: world.roots[2].path(), config: &world.configs[2], etcd: &etcd, runner: &runner };
    assert!(
        node.write_configuration(world.now).unwrap().unwrap().changed
            && !node.write_configuration(world.now).unwrap().unwrap().changed
    );
    let path: PathBuf = files::below(world.roots[2].path(), encryption_configuration::CONFIGURATION);
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(keys(&std::fs::read(&path).unwrap()), [world.set().write]);
}

#[test]
fn used_store_without_keys_is_refused() {
    let world = World::blank();
    // Even without a Secret: the API server that has used the store had a key.
    world.etcd.set("/registry/namespaces/default", "{}");
    world.begin(2);
    let error = world.minute(2).unwrap_err().to_string();
    assert_eq!(error, "the store has no record of encryption keys");
}

#[test]
fn operators_copy_is_stored_before_key_is_used() {
    let mut world = World::new();
    let private = PrivateKey::draw().unwrap();
    for config in &mut world.configs {
        config.recovery_public_key = Some(private.public().unwrap().to_string());
    }
    let opened = |world: &World, node: &str| {
        Store(&world.client(0)).sealed(node).unwrap().map(|sealed| sealed.open(&private).unwrap())
    };
    let old = world.until_rest().write;
    for node in ["node1", "node2", "node3"] {
        assert_eq!(opened(&world, node).unwrap().ids().collect::<Vec<_>>(), [&old]);
    }
    world.offer();
    let new = world.set().incoming().unwrap().to_owned();
    world.minute(2).unwrap();
    assert_eq!(opened(&world, "node3").unwrap().ids().collect::<Vec<_>>(), [&old, &new]);
    // The property is removed: the copy is deleted.
    world.configs[2].recovery_public_key = None;
    world.minute(2).unwrap();
    assert!(opened(&world, "node3").is_none() && opened(&world, "node2").is_some());
    // The store has no key in clear.
    let (_, keys) = readable(&world, 0);
    for (name, value) in world.etcd.below("/kaas/") {
        for key in &keys.keys {
            assert!(!value.contains(key.secret.expose()), "{name}");
        }
    }
}

fn readable(world: &World, index: usize) -> (KeySet, Keys) {
    match unwrap_keys::find(world.roots[index].path(), &Store(&world.client(index)), world.now).unwrap() {
        KeyLookup::Readable(readable) => (readable.seen.set.clone(), readable.keys.clone()),
        _ => panic!("the keys are not readable"),
    }
}

#[test]
fn recovered_keys_of_another_cluster_are_imported() {
    let world = World::blank();
    world.begin(0);
    let (lost, keys) = readable(&world, 0);
    // New control-plane nodes with other CAs: the first one received the keys.
    let others = CertificateAuthorities::make(SystemTime::now()).unwrap();
    let new_root = tempfile::tempdir().unwrap();
    others.ensure(&files::below(new_root.path(), PKI)).unwrap();
    let (etcd, now) = (world.client(0), world.now);
    let find = || unwrap_keys::find(new_root.path(), &Store(&etcd), now).unwrap();
    let KeyLookup::Unreadable(ids) = find() else { panic!("another authority's keys were read") };
    assert_eq!(ids, [lost.write.as_str()]);
    assert_eq!(world.set(), lost, "nothing was changed");

    let records = Records::new(new_root.path());
    records.begin_entry(&RecoveredKeys(Keys::default())).unwrap();
    assert!(matches!(find(), KeyLookup::Unreadable(_)), "none of the keys was given");
    records.begin_entry(&RecoveredKeys(keys.clone())).unwrap();
    let KeyLookup::Readable(found) = find() else { panic!("the keys that were given are not taken") };
    assert_eq!((&found.keys, found.seen.set.generation), (&keys, lost.generation + 1));
    assert_eq!(found.seen.set.write, lost.write);
    // They are forgotten once the store has them.
    let KeyLookup::Readable(_) = find() else { panic!("they are not in the store") };
    assert!(records.entry::<RecoveredKeys>().unwrap().is_none());
}

#[test]
fn only_its_ca_unwraps_a_key_by_name() {
    let (one, other) = (
        CertificateAuthorities::make(SystemTime::now()).unwrap(),
        CertificateAuthorities::make(SystemTime::now()).unwrap(),
    );
    let (own, strange) = (wrap::Wrapping::of(&one.etcd).unwrap(), wrap::Wrapping::of(&other.etcd).unwrap());
    let key = wrap::draw().unwrap();
    assert_ne!(key.id, wrap::draw().unwrap().id);
    let wrapped = own.wrap(&key).unwrap();
    assert_ne!(wrapped, own.wrap(&key).unwrap(), "a nonce was used twice");
    assert_eq!(own.unwrap(&key.id, &wrapped).unwrap(), key);
    // The same CA on another node.
    assert_eq!(wrap::Wrapping::of(&one.etcd.clone()).unwrap().unwrap(&key.id, &wrapped).unwrap(), key);
    assert!(own.unwrap("k0", &wrapped).is_err() && own.unwrap(&key.id, "AAAA").is_err());
    assert!(strange.unwrap(&key.id, &wrapped).is_err());
    assert_ne!(own.ca(), strange.ca());
}

#[test]
fn keys_wrapped_by_earlier_images_are_unwrapped() {
    let wrapping = wrap::Wrapping::of(&fixed_authority()).unwrap();
    assert_eq!(wrapping.ca(), "8c0cc17a04942cc4f8e0fe0b302606d3");
    let key = wrapping.unwrap("k1", "AAECAwQFBgcICQoLxF2aMfsgVB/3FJXn55HXg4oG/JQ=").unwrap();
    assert_eq!(key.secret.expose(), "AAAA");
}

#[test]
fn fields_of_later_versions_stay_in_the_record() {
    let now = SystemTime::UNIX_EPOCH;
    let key = |id: &str| WrappedKey { id: id.to_owned(), wrapped: "w".into() };
    let mut text = serde_json::to_value(KeySet::first("a", key("k1"), now)).unwrap();
    text["of-a-later-version"] = true.into();
    let set = KeySet::parse(text.to_string().as_bytes()).unwrap();
    let offered = serde_json::to_value(set.offered(key("k2"), now).unwrap()).unwrap();
    assert_eq!((&offered["of-a-later-version"], &offered["generation"]), (&true.into(), &2.into()));
}

#[test]
fn a_record_of_secrets_in_clear_is_refused() {
    let key = WrappedKey { id: "k1".to_owned(), wrapped: "w".into() };
    let record = serde_json::to_value(KeySet::first("a", key, SystemTime::UNIX_EPOCH)).unwrap();
    for (clear, is_refused) in [(false, false), (true, true)] {
        let mut record = record.clone();
        record["clear"] = clear.into();
        assert_eq!(KeySet::parse(record.to_string().as_bytes()).is_err(), is_refused, "{clear}");
    }
}
