//! Adoption of workers whose VMs are newer than the database. The stamp of a VM identifies the worker. It belongs to the cluster
//! if a node of its name runs on that VM, and the VM reports the same.
//!
//! A cluster's administrators can write a node's status, so its address is taken from the VM's OVF properties. The worker's image
//! is unknown: it counts as outdated, so that its pool replaces it. Pure.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use contract::minor::Minor;
use contract::statement::Statement;
use fleet::hypervisor::{Vm, VmSize};
use fleet::workers::{NodeSeen, Whose, WorkerRecord, whose};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use uuid::Uuid;

use crate::objects::{Machine, MachineSpec, MachineStatus, MachineVm, Phase, PinnedImage, Provider, VmState};

/// Name of the image of adopted workers.
const UNKNOWN: &str = "unknown";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdoptedWorker {
    /// Name of the worker and of its node.
    pub name: String,
    /// UID of its Machine when its VM was created, from the VM's stamp.
    pub stamp: Uuid,
    /// BIOS UUID of its VM.
    pub vm: Uuid,
    pub vm_name: String,
    /// Size of its VM, if the hypervisor reports it.
    pub size: Option<VmSize>,
    datastores: Vec<String>,
    /// The address in its VM's OVF properties. `None` if it uses DHCP.
    pub address: Option<Ipv4Addr>,
    /// The address in its Node object. The cluster's administrators can write it.
    known_by: Option<Ipv4Addr>,
    pub minor: Minor,
}

/// Facts about the VMs of workers and their nodes, apart from the Node objects.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// The addresses in VMs' OVF properties, which guests cannot write, by BIOS UUIDs.
    pub given: BTreeMap<Uuid, String>,
    /// The statements of VMs, by BIOS UUIDs.
    pub said: BTreeMap<Uuid, Statement>,
    /// The keys that control-plane nodes have last admitted, by node names.
    pub admitted_keys: BTreeMap<String, String>,
}

/// The adopted workers of a pool in these VMs, and the reasons against the other VMs.
pub fn adopted_workers(
    pool: &str,
    newer: &[Vm],
    nodes: &[NodeSeen],
    witnesses: &Evidence,
) -> (Vec<AdoptedWorker>, Vec<String>) {
    let (mut taken, mut refused) = (Vec::new(), Vec::new());
    for vm in newer {
        match adopted_worker(pool, vm, newer, (nodes, witnesses)) {
            Ok(worker) => taken.push(worker),
            Err(why) => refused.push(why),
        }
    }
    (taken, refused)
}

fn adopted_worker(
    pool: &str,
    vm: &Vm,
    newer: &[Vm],
    (nodes, witnesses): (&[NodeSeen], &Evidence),
) -> Result<AdoptedWorker, String> {
    let (name, stamp) = stamped(vm).ok_or_else(|| format!("{vm} carries no worker's stamp"))?;
    let number = name.strip_prefix(pool).and_then(|rest| rest.strip_prefix("-w"));
    if number.is_none_or(|number| number.parse::<u64>().is_err()) {
        return Err(format!("{vm} is stamped as {name:?}, which is no worker's name of the pool"));
    }
    if newer.iter().filter(|other| stamped(other).is_some_and(|(other, _)| other == name)).count() > 1 {
        return Err(format!("{vm} is not the only VM that is stamped as {name}"));
    }
    let node = nodes.iter().find(|node| node.name == name && node.runs_in(vm.uuid()));
    let node = node.ok_or_else(|| format!("the cluster has no node {name} that runs on {vm}: remove that"))?;
    if let Some(other) = newer.iter().find(|other| other.uuid() != vm.uuid() && node.runs_in(other.uuid())) {
        return Err(format!(
            "the BIOS UUID that the node {name} reports names {vm} and, in the other order, {other}: remove one"
        ));
    }
    let said = witnesses.said.get(&vm.uuid()).filter(|said| said.machine == Some(vm.uuid().into()));
    match whose(None, said, witnesses.admitted_keys.get(name).map(String::as_str)) {
        Whose::Its => {}
        Whose::Another => {
            return Err(format!(
                "the node {name} was admitted with another key than that of {vm}: another machine has joined in its place, or it has a newer \
                 key: restart the VM, and remove it if that does not help"
            ));
        }
        Whose::Unsaid => {
            return Err(format!(
                "{vm}, which is {}, does not say that it is the node {name}: power it on, or remove it if another VM is that node",
                vm.power
            ));
        }
    }
    let minor = node.minor().ok_or_else(|| format!("the node {name} does not say which kubelet it runs"))?;
    let datastore = |path: &str| Some(path.strip_prefix('[')?.split_once(']')?.0.to_owned());
    Ok(AdoptedWorker {
        name: name.to_owned(),
        stamp,
        vm: vm.uuid(),
        vm_name: vm.name.clone(),
        size: vm.size,
        datastores: vm.disks.iter().filter_map(|disk| datastore(&disk.reference.path)).collect(),
        address: witnesses.given.get(&vm.uuid()).and_then(|given| given.split('/').next()?.parse().ok()),
        known_by: node.address,
        minor,
    })
}

/// Name of the worker and UID of its Machine in a VM's stamp.
fn stamped(vm: &Vm) -> Option<(&str, Uuid)> {
    let stamp = vm.stamp.as_ref()?;
    Some((stamp.node.as_str(), stamp.swap?))
}

impl AdoptedWorker {
    /// Its Machine, based on one that its pool would create.
    pub fn machine(&self, like: &Machine, provider: &Provider) -> Machine {
        let mut zones = provider.spec.vsphere.iter().flat_map(|vsphere| &vsphere.zones);
        let is_its = |datastore: &String| self.datastores.contains(datastore);
        let zone = zones.find(|zone| zone.datastore.as_ref().is_some_and(is_its));
        let memory = self.size.and_then(|size| u32::try_from(size.memory).ok());
        let mut machine = like.clone();
        machine.metadata.name = Some(self.name.clone());
        machine.spec = MachineSpec {
            zone: zone.map_or_else(|| like.spec.zone.clone(), |zone| zone.name.clone()),
            // No image has this digest, so the worker counts as outdated.
            image: PinnedImage { name: UNKNOWN.to_owned(), digest: format!("sha256:{}", "0".repeat(64)) },
            kubernetes: self.minor.to_string(),
            processors: self.size.map_or(like.spec.processors, |size| size.processors),
            memory_mib: memory.unwrap_or(like.spec.memory_mib),
            ..like.spec.clone()
        };
        machine
    }

    /// Whether a Machine of its name may be its own. Either its VM has the Machine's UID in its stamp, or the Machine was created
    /// for it and has no record yet.
    pub fn may_have(&self, machine: &Machine) -> bool {
        let status = machine.status.clone().unwrap_or_default();
        let is_bare =
            status.phase == Phase::Provisioning && status.vms.is_empty() && machine.spec.image.name == UNKNOWN;
        is_bare || machine.metadata.uid == Some(self.stamp.to_string())
    }

    /// The status of its Machine after adoption: joined, as of now, with this address from a pool.
    pub fn status(&self, machine: &Machine, address: Option<Ipv4Addr>, now: &Time) -> MachineStatus {
        let before = machine.status.clone().unwrap_or_default();
        let (minor, own) = (self.minor.to_string(), machine.metadata.uid.clone());
        MachineStatus {
            phase: Phase::Running,
            vms: vec![MachineVm { uuid: self.vm.to_string(), name: self.vm_name.clone(), state: VmState::Current }],
            kubernetes: Some(minor).filter(|minor| *minor != machine.spec.kubernetes),
            address: address.or(self.known_by).map(|address| address.to_string()),
            node: Some(self.name.clone()),
            journal: WorkerRecord {
                since: u64::try_from(now.0.as_second()).unwrap_or_default(),
                address,
                // It has joined. The duration is unknown.
                joined_seconds: Some(0),
                id: Some(self.stamp).filter(|stamp| own != Some(stamp.to_string())).unwrap_or_default(),
                ..before.journal.clone()
            },
            ..before
        }
    }
}

#[cfg(test)]
mod tests {
    use contract::bios_uuid::BiosUuid;
    use contract::statement::Phase;
    use fleet::hypervisor::{Disk, DiskKind, DiskRef, PowerState, Stamp, VmRef};

    use super::super::fixture::{now, provider};
    use super::*;
    use crate::objects::fixture;
    use crate::records::worker_of;

    const OTHER: &str = "0f5e2a30-7c1b-4d7e-9a55-0d6a1c5b7e21";

    fn vm(name: &str, uuid: u128) -> Vm {
        let reference = DiskRef { uuid: Uuid::from_u128(2), path: "[vsan-2] a/a.vmdk".to_owned() };
        let disk = Disk { reference, kind: DiskKind::System, parent: None, controller: "c".to_owned() };
        let (deployment, swap) = (Uuid::from_u128(1), Some(Uuid::from_u128(uuid)));
        Vm {
            reference: VmRef { uuid: Uuid::from_u128(uuid), id: format!("vm-{uuid}") },
            name: name.to_owned(),
            stamp: Some(Stamp { deployment, node: name.to_owned(), swap }),
            power: PowerState::On,
            size: Some(VmSize { processors: 8, memory: 8192 }),
            disks: vec![disk],
            adapters: Vec::new(),
            snapshots: Vec::new(),
            tasks: Vec::new(),
            settings: None,
            version: "0".to_owned(),
        }
    }

    fn node(name: &str, uuid: u128) -> NodeSeen {
        NodeSeen {
            name: name.to_owned(),
            uid: "1".to_owned(),
            provider: BiosUuid::from_u128(uuid).provider_id(),
            ready: true,
            cordoned: false,
            address: Some([192, 168, 10, 24].into()),
            excluded: false,
            control: false,
            kubelet: "v1.35.4".to_owned(),
            heard: String::new(),
        }
    }

    /// VMs of these BIOS UUIDs have joined, and have an address in their OVF properties.
    fn witnesses(vms: &[u128]) -> Evidence {
        let said = |vm: &u128| Statement {
            machine: Some(BiosUuid::from_u128(*vm)),
            phase: Phase::Done,
            code: None,
            words: String::new(),
            lasting: false,
            times: 0,
            token: None,
            key: None,
            at: 0,
        };
        let of = |vm: &u128| Uuid::from_u128(*vm);
        Evidence {
            given: vms.iter().map(|vm| (of(vm), "192.168.10.24/24".to_owned())).collect(),
            said: vms.iter().map(|vm| (of(vm), said(vm))).collect(),
            admitted_keys: BTreeMap::new(),
        }
    }

    #[test]
    fn worker_is_adopted_if_its_vm_confirms_it() {
        let name = "shop-general-w1";
        // An administrator of the cluster has written another team's address into the Node object.
        let node = NodeSeen { address: Some([192, 168, 10, 99].into()), ..node(name, 1) };
        let by = |witnesses: &Evidence| {
            adopted_workers("shop-general", &[vm(name, 1)], std::slice::from_ref(&node), witnesses)
        };
        let (taken, refused) = by(&witnesses(&[1]));
        assert_eq!((taken[0].address, refused.len()), (Some([192, 168, 10, 24].into()), 0));
        let mut silent = witnesses(&[1]);
        silent.said.clear();
        assert!(by(&silent).1[0].contains("does not say that it is the node"), "{:?}", by(&silent).1);
        let mut copied = witnesses(&[1]);
        copied.said.insert(Uuid::from_u128(1), witnesses(&[2]).said[&Uuid::from_u128(2)].clone());
        assert_eq!(by(&copied).1.len(), 1, "another VM has said it");
        let mut another = witnesses(&[1]);
        another.said.get_mut(&Uuid::from_u128(1)).unwrap().key = Some("aa".to_owned());
        another.admitted_keys.insert(name.to_owned(), "bb".to_owned());
        assert!(by(&another).1[0].contains("admitted with another key"), "{:?}", by(&another).1);
        another.admitted_keys.insert(name.to_owned(), "aa".to_owned());
        assert_eq!(by(&another).0.len(), 1);
    }

    #[test]
    fn worker_is_adopted_in_either_byte_order() {
        const VM: u128 = 0x420f_1a2b_0003_4000_8000_0000_0000_0001;
        let (name, other) = ("shop-general-w1", BiosUuid::from_u128(VM).swapped().orders()[0].as_u128());
        for reported in [VM, other] {
            let mut witnesses = witnesses(&[VM]);
            witnesses.said.get_mut(&Uuid::from_u128(VM)).unwrap().machine = Some(BiosUuid::from_u128(reported));
            let by = |vms: &[Vm]| adopted_workers("shop-general", vms, &[node(name, reported)], &witnesses);
            assert_eq!(by(&[vm(name, VM)]).0.len(), 1);
            // Both byte orders name a VM.
            let (taken, refused) = by(&[vm(name, VM), vm("shop-general-w2", other)]);
            assert!(taken.is_empty() && refused[0].contains("in the other order"), "{refused:?}");
        }
    }

    #[test]
    fn worker_is_adopted_by_stamp_and_node() {
        let (first, second) = ("shop-general-w1", "shop-general-w2");
        let nodes = [node(first, 1), node(second, 9)];
        let all = witnesses(&[1, 2, 3]);
        let plain = Vm { stamp: None, ..vm(first, 1) };
        let (taken, refused) = adopted_workers("shop-general", &[vm(first, 1), vm(second, 2), plain], &nodes, &all);
        assert_eq!(taken.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), [first]);
        assert!(
            refused[0].contains("no node shop-general-w2 that runs on") && refused[1].contains("no worker's stamp")
        );
        let twice = adopted_workers("shop-general", &[vm(first, 1), vm(first, 3)], &nodes, &all);
        assert_eq!((twice.0.len(), twice.1.len()), (0, 2), "{:?}", twice.1);
        let odd = adopted_workers("shop-other", &[vm(first, 1)], &nodes, &all);
        assert!(odd.1[0].contains("no worker's name of the pool"), "{:?}", odd.1);
    }

    #[test]
    fn machine_of_adopted_worker_counts_as_outdated() {
        let nodes = [node("shop-general-w1", 1)];
        let worker = adopted_workers("shop-general", &[vm("shop-general-w1", 1)], &nodes, &witnesses(&[1])).0.remove(0);
        let like = Machine::new("", fixture::worker());
        let mut machine = worker.machine(&like, &provider());
        assert_eq!((machine.spec.zone.as_str(), machine.spec.processors, machine.spec.memory_mib), ("b", 8, 8192));
        machine.metadata.uid = Some(OTHER.to_owned());
        machine.status = Some(worker.status(&machine, worker.address, &now()));
        let kept = worker_of(&machine).unwrap();
        assert_eq!((kept.id, kept.bios_uuid, kept.address), (worker.stamp, Some(worker.vm), worker.address));
        assert!(kept.owns(&vm("shop-general-w1", 1)), "its VM is its own");
        let wanted = crate::records::template(&like.spec, None).unwrap();
        assert!(wanted.outdates(&kept.template));
        let taken = Machine { metadata: machine.metadata.clone(), status: None, ..worker.machine(&like, &provider()) };
        assert!(worker.may_have(&taken) && !worker.may_have(&machine), "nothing is noted of the first one");
        // A worker with its own UID needs no other stamp.
        machine.metadata.uid = Some(worker.stamp.to_string());
        assert_eq!(worker.status(&machine, None, &now()).journal.id, Uuid::nil());
        assert!(worker.may_have(&machine));
    }
}
