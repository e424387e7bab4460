//! Workers whose VMs are newer than the database, as a person has them taken as they are: a worker is known by the stamp of its VM, and
//! belongs to the cluster if that has a node of its name that runs on that VM, and the VM says the same. What the node says of itself whoever
//! rules the cluster can write: its address is the one that its VM was given. What it was made of nobody says: it counts as outdated, so that
//! its pool makes another one in its place. Pure.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use contract::minor::Minor;
use contract::statement::Statement;
use fleet::hypervisor::{Vm, VmSize};
use fleet::workers::{NodeSeen, Whose, whose};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use uuid::Uuid;

use crate::objects::{Journal, Machine, MachineSpec, MachineStatus, MachineVm, Phase, PinnedImage, Provider, VmState};

/// What the image of a worker is called of which nobody knows what it was made of.
const UNKNOWN: &str = "unknown";

/// A worker that is taken as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdoptedWorker {
    /// Its name, and that of its node.
    pub name: String,
    /// What its VM is stamped with: the UID of its Machine when it was made.
    pub stamp: Uuid,
    /// BIOS UUID of its VM.
    pub vm: Uuid,
    pub vm_name: String,
    /// How large that is, if the hypervisor says so.
    pub size: Option<VmSize>,
    /// The datastores that it has disks on.
    datastores: Vec<String>,
    /// The address that its VM was given; none where it asks for one by DHCP.
    pub address: Option<Ipv4Addr>,
    /// The one that the cluster knows it by, whoever has written that.
    known_by: Option<Ipv4Addr>,
    /// The minor that its kubelet runs.
    pub minor: Minor,
}

/// What is known of the VMs of workers and of their nodes beside what the nodes say of themselves.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// The addresses that VMs were given in their forms, which no guest can write, by their BIOS UUIDs.
    pub given: BTreeMap<Uuid, String>,
    /// What VMs say of themselves, by their BIOS UUIDs.
    pub said: BTreeMap<Uuid, Statement>,
    /// The keys that control nodes have let in last, by the names of nodes.
    pub admitted_keys: BTreeMap<String, String>,
}

/// The workers of a pool in these VMs, by the nodes of its cluster; and in words what cannot be taken.
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
                "the node {name} was let in with another key than that of {vm}: somebody else has joined in its place, or it has a newer \
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

/// The name of a worker and the UID of its Machine that a VM is stamped with.
fn stamped(vm: &Vm) -> Option<(&str, Uuid)> {
    let stamp = vm.stamp.as_ref()?;
    Some((stamp.node.as_str(), stamp.swap?))
}

impl AdoptedWorker {
    /// Its Machine, like one that its pool would make.
    pub fn machine(&self, like: &Machine, provider: &Provider) -> Machine {
        let mut zones = provider.spec.vsphere.iter().flat_map(|vsphere| &vsphere.zones);
        let is_its = |datastore: &String| self.datastores.contains(datastore);
        let zone = zones.find(|zone| zone.datastore.as_ref().is_some_and(is_its));
        let memory = self.size.and_then(|size| u32::try_from(size.memory).ok());
        let mut machine = like.clone();
        machine.metadata.name = Some(self.name.clone());
        machine.spec = MachineSpec {
            zone: zone.map_or_else(|| like.spec.zone.clone(), |zone| zone.name.clone()),
            // No image has this digest: it is made of another one than is wanted, as far as anybody knows.
            image: PinnedImage { name: UNKNOWN.to_owned(), digest: format!("sha256:{}", "0".repeat(64)) },
            kubernetes: self.minor.to_string(),
            processors: self.size.map_or(like.spec.processors, |size| size.processors),
            memory_mib: memory.unwrap_or(like.spec.memory_mib),
            ..like.spec.clone()
        };
        machine
    }

    /// Whether a Machine of its name may be its own: its VM is stamped with that, or it was made for it and nothing is noted of it yet.
    pub fn may_have(&self, machine: &Machine) -> bool {
        let status = machine.status.clone().unwrap_or_default();
        let is_bare =
            status.phase == Phase::Provisioning && status.vms.is_empty() && machine.spec.image.name == UNKNOWN;
        is_bare || machine.metadata.uid == Some(self.stamp.to_string())
    }

    /// The status of its Machine once it is taken: a member, as of now, with this address from a pool of these.
    pub fn status(&self, machine: &Machine, address: Option<Ipv4Addr>, now: &Time) -> MachineStatus {
        let before = machine.status.clone().unwrap_or_default();
        let (minor, own) = (self.minor.to_string(), machine.metadata.uid.as_deref());
        let stamp = self.stamp.to_string();
        MachineStatus {
            phase: Phase::Running,
            vms: vec![MachineVm { uuid: self.vm.to_string(), name: self.vm_name.clone(), state: VmState::Current }],
            kubernetes: Some(minor).filter(|minor| *minor != machine.spec.kubernetes),
            address: address.or(self.known_by).map(|address| address.to_string()),
            node: Some(self.name.clone()),
            journal: Journal {
                since: Some(now.clone()),
                address: address.map(|address| address.to_string()),
                // It has joined; how long that took nobody knows.
                joined_seconds: Some(0),
                stamp: Some(stamp).filter(|stamp| Some(stamp.as_str()) != own),
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

    /// VMs of these BIOS UUIDs have joined, and were given an address.
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
    fn a_worker_is_taken_where_its_vm_says_that_it_is_the_node_and_at_the_address_that_it_was_given() {
        let name = "shop-general-w1";
        // Whoever rules the cluster has written another team's address into it.
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
        assert!(by(&another).1[0].contains("let in with another key"), "{:?}", by(&another).1);
        another.admitted_keys.insert(name.to_owned(), "aa".to_owned());
        assert_eq!(by(&another).0.len(), 1);
    }

    #[test]
    fn a_worker_is_taken_whichever_order_its_guest_reports() {
        const VM: u128 = 0x420f_1a2b_0003_4000_8000_0000_0000_0001;
        let (name, other) = ("shop-general-w1", BiosUuid::from_u128(VM).swapped().orders()[0].as_u128());
        for reported in [VM, other] {
            let mut witnesses = witnesses(&[VM]);
            witnesses.said.get_mut(&Uuid::from_u128(VM)).unwrap().machine = Some(BiosUuid::from_u128(reported));
            let by = |vms: &[Vm]| adopted_workers("shop-general", vms, &[node(name, reported)], &witnesses);
            assert_eq!(by(&[vm(name, VM)]).0.len(), 1);
            // Both orders name a VM.
            let (taken, refused) = by(&[vm(name, VM), vm("shop-general-w2", other)]);
            assert!(taken.is_empty() && refused[0].contains("in the other order"), "{refused:?}");
        }
    }

    #[test]
    fn a_worker_is_taken_by_its_stamp_and_by_its_node() {
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
    fn its_machine_has_what_is_known_of_it_and_counts_as_outdated() {
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
        // One that is known by its own UID needs no other one.
        machine.metadata.uid = Some(worker.stamp.to_string());
        assert_eq!(worker.status(&machine, None, &now()).journal.stamp, None);
        assert!(worker.may_have(&machine));
    }
}
