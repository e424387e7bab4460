//! Resumes the creation of a lab that was interrupted, if the new command wants the same lab. Independent of how VMs
//! are created.

use std::collections::BTreeSet;
use std::{fs, io};

use anyhow::{Context, bail};
use contract::properties::{DEPLOYER_PUBLIC_KEY, DEPLOYMENT_SECRET, SSH_AUTHORIZED_KEYS};

use super::cluster::Up;
use super::plan::{LabSpec, plan};
use super::{Lab, LeaseRequest};

impl Lab {
    /// As [`Lab::complete`], for a command that may want another lab than the incomplete one. If it differs from `up`,
    /// the call fails and changes nothing.
    pub fn resume(self, up: &Up, asking: &LeaseRequest<'_>) -> anyhow::Result<Option<Self>> {
        self.completed(up.size, asking, |lab| {
            let others = lab.begun_otherwise(up)?;
            let Self { name, record, .. } = lab;
            let nodes = match record.plan.nodes.len() {
                1 => "one node".to_owned(),
                nodes => format!("{nodes} nodes"),
            };
            let begun = format!("{}, {nodes}", record.source.words());
            if !others.is_empty() {
                bail!(
                    "the lab {name} was started with other settings ({begun}); this command differs in: {}. Repeat the former command, \
                     or remove the lab first: `kaas-dev lab down --name {name}`",
                    others.join(", ")
                );
            }
            (asking.say)(&format!("continuing with the lab {name}: {begun}"));
            if record.engine != up.engine {
                let runs = if record.engine.is_emulated() { "are emulated" } else { "run under KVM" };
                (asking.say)(&format!("its VMs {runs}, as when it was started, whether or not KVM is available now"));
            }
            Ok(())
        })
    }

    /// Names of the differences from the incomplete lab. Never has the value of a property.
    fn begun_otherwise(&self, up: &Up) -> anyhow::Result<Vec<String>> {
        let mut others = Vec::new();
        let mut differs = |what: &str, is_so: bool| others.extend(is_so.then(|| what.to_owned()));
        let begun = &self.record.plan.nodes;
        differs("the image", !self.record.source.is_same(&up.source));
        let is_alike = self.record.engine.is_alike(up.engine);
        differs("what runs it", !is_alike);
        differs("the number of nodes", begun.len() != up.spec.nodes);
        let mut sizes = self.stamped_nodes()?.into_iter().map(|vm| (vm.memory, vm.processors));
        differs("memory", sizes.any(|size| size != (up.size.memory, up.size.processors)));
        // A disk whose creation was interrupted has a length of 0.
        let lengths = self.directory.disk_lengths()?;
        differs("the size of data disks", lengths.iter().any(|length| ![0, up.size.data_disk].contains(length)));
        // Random values stay as they are in the incomplete lab.
        let drawn = |key: &str| begun.first().and_then(|node| node.properties.get(key).cloned());
        let wishes = LabSpec {
            nodes: begun.len(),
            ssh_key: self.own_ssh_key()?.or_else(|| drawn(SSH_AUTHORIZED_KEYS)).unwrap_or_default(),
            deployer_key: drawn(DEPLOYER_PUBLIC_KEY),
            tenant: None,
            // The probe of KVM can give another result on a busy host, so its result is not compared.
            timeout_factor: if is_alike { self.record.engine.timeout_factor() } else { up.spec.timeout_factor },
            ..up.spec.clone()
        };
        let wanted = plan(&wishes, &drawn(DEPLOYMENT_SECRET).unwrap_or_default())?;
        let properties = begun.iter().zip(&wanted.nodes).flat_map(|(begun, wanted)| {
            let keys = begun.properties.keys().chain(wanted.properties.keys());
            keys.filter(move |key| begun.properties.get(*key) != wanted.properties.get(*key))
        });
        let properties: BTreeSet<&String> = properties.collect();
        others.extend(properties.into_iter().map(|key| format!("the property {key}")));
        Ok(others)
    }

    /// The public half of its operator's key, if it exists. A node's form can have another key instead.
    fn own_ssh_key(&self) -> anyhow::Result<Option<String>> {
        let path = self.directory.ssh_key().with_extension("pub");
        match fs::read_to_string(&path) {
            Ok(key) => Ok(Some(key.trim().to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fleet::hypervisor::Stamp;
    use fleet::lease::TakeOver;

    use super::super::{EngineRecord, Hardware, NodeSize, Source, fixture, records};
    use super::*;

    /// A spec that gives the same lab.
    fn wanted(lab: &Lab) -> Up {
        let engine = EngineRecord::Container;
        Up {
            spec: LabSpec { name: "x".to_owned(), nodes: 3, timeout_factor: 1, ..LabSpec::default() },
            engine,
            replacements: engine,
            workers: engine,
            source: lab.record.source.clone(),
            tools: lab.record.tools.clone(),
            size: NodeSize { memory: 1, processors: 1, data_disk: 1 << 20 },
            beside: None,
        }
    }

    #[test]
    fn a_different_incomplete_lab_is_left_unchanged() {
        let state = tempfile::tempdir().unwrap();
        let lab = fixture::lab(state.path(), 3, fixture::source(&state.path().join("tree")));
        records::save(&lab.directory.record(), &lab.record).unwrap();
        let stamp = Some(Stamp { deployment: lab.deployment(), node: "cp1".to_owned(), swap: None });
        lab.make_vm(&fixture::vm("cp1", stamp)).unwrap();
        fixture::add_disk(&lab, "cp1");
        let up = wanted(&lab);
        assert_eq!(lab.begun_otherwise(&up).unwrap(), Vec::<String>::new());
        let with = |key: &str, value: &str| [(key.to_owned(), value.to_owned())].into();
        let wishes = |properties| LabSpec { properties, ..up.spec.clone() };
        let tree = Source::Tree { tree: state.path().join("another") };
        for (other, what) in [
            (Up { source: tree, ..up.clone() }, "the image"),
            (Up { spec: LabSpec { nodes: 1, ..up.spec.clone() }, ..up.clone() }, "the number of nodes"),
            (Up { size: NodeSize { memory: 2, ..up.size }, ..up.clone() }, "memory"),
            (Up { size: NodeSize { data_disk: 2 << 20, ..up.size }, ..up.clone() }, "the size of data disks"),
            (Up { spec: wishes(with("pod-cidr", "10.9.0.0/16")), ..up.clone() }, "the property pod-cidr"),
            (Up { spec: wishes(with("gateway", "192.168.77.9")), ..up.clone() }, "the property gateway"),
        ] {
            let found = lab.begun_otherwise(&other).unwrap();
            assert!(found.contains(&what.to_owned()), "{found:?}");
            let asking = LeaseRequest { what: "a test", over: TakeOver::FromTheDead, say: &|_| {} };
            let again = Lab::open_incomplete(state.path(), "x").unwrap().unwrap();
            let why = again.resume(&other, &asking).err().unwrap().to_string();
            assert!(why.contains(what) && why.contains("kaas-dev lab down --name x"), "{why}");
            assert!(why.contains("3 nodes") && !why.contains("192.168.77.9"), "{why}");
            assert_eq!(lab.vms().unwrap(), ["cp1"]);
        }
        // Begun with a property of the operator.
        let mut own = Lab::open(state.path(), "x").unwrap();
        for node in &mut own.record.plan.nodes {
            node.properties.extend::<BTreeMap<_, _>>(with("ntp-servers", "10.0.0.3"));
        }
        assert_eq!(own.begun_otherwise(&up).unwrap(), ["the property ntp-servers"]);
        // With another key in place of the generated one.
        let mut own = Lab::open(state.path(), "x").unwrap();
        for node in &mut own.record.plan.nodes {
            node.properties.extend::<BTreeMap<_, _>>(with(SSH_AUTHORIZED_KEYS, "ssh-ed25519 AAAA somebody"));
        }
        let key = own.directory.ssh_key().with_extension("pub");
        fs::write(&key, "ssh-ed25519 AAAA lab\n").unwrap();
        assert_eq!(own.begun_otherwise(&up).unwrap(), ["the property ssh-authorized-keys"]);
        fs::remove_file(&key).unwrap();
        // All its VMs exist, and none was on.
        let mut whole = Lab::open(state.path(), "x").unwrap();
        whole.record.plan = plan(&LabSpec { nodes: 1, ..up.spec.clone() }, "a secret").unwrap();
        records::save(&whole.directory.record(), &whole.record).unwrap();
        let asking = LeaseRequest { what: "a test", over: TakeOver::FromTheDead, say: &|_| {} };
        let again = || Lab::open_incomplete(state.path(), "x").unwrap().unwrap();
        let one = |up: &Up| Up { spec: LabSpec { nodes: 1, ..up.spec.clone() }, ..up.clone() };
        let tree = Source::Tree { tree: state.path().join("another") };
        let why = again().resume(&Up { source: tree, ..one(&up) }, &asking).err().unwrap().to_string();
        assert!(why.contains("the image"), "{why}");
        assert!(again().resume(&one(&up), &asking).unwrap().is_some());
    }

    #[test]
    fn kvm_and_the_unpacked_path_are_not_compared() {
        let state = tempfile::tempdir().unwrap();
        let mut lab = fixture::lab(state.path(), 3, fixture::source(&state.path().join("tree")));
        let in_cache = |cache: &str, digest: &str| {
            let directory = state.path().join(cache).join(digest);
            Source::Ova { unpacked: serde_json::from_value(serde_json::json!({ "directory": directory })).unwrap() }
        };
        let qemu = |kvm| EngineRecord::Qemu { kvm, hardware: Hardware::Quick };
        (lab.record.engine, lab.record.source) = (qemu(true), in_cache("one", "d1"));
        let up = wanted(&lab);
        let wishes = LabSpec { timeout_factor: qemu(false).timeout_factor(), ..up.spec.clone() };
        let again = Up { engine: qemu(false), source: in_cache("other", "d1"), spec: wishes, ..up };
        assert_eq!(lab.begun_otherwise(&again).unwrap(), Vec::<String>::new());
        let other = Up { source: in_cache("one", "d2"), ..again.clone() };
        assert_eq!(lab.begun_otherwise(&other).unwrap(), ["the image"]);
        let other = Up { engine: EngineRecord::Qemu { kvm: true, hardware: Hardware::Vsphere }, ..again };
        assert!(lab.begun_otherwise(&other).unwrap().contains(&"what runs it".to_owned()));
    }
}
