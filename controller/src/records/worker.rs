//! A worker: [`WorkerRecord`] of `fleet` and a Machine. The spec has the template, the status the record of its steps.
//!
//! The Machine's UID is in its VM's stamp, and is also the BIOS UUID for its VM. The API server draws it when the object is
//! created, before it is used, and never again. An adopted worker has the UID of its former Machine.
//!
//! The operator decides in the spec what may be lost with a worker, and whether its VM is kept. These fields are read and never
//! written.

use fleet::hypervisor::Size;
use fleet::workers::{Discards, Image, Removal, State, Template, WorkerRecord};
use kube::ResourceExt;
use uuid::Uuid;

use super::text::{Mismatch, digits, read};
use crate::objects::{Effect, Machine, MachineSpec, MachineVm, Taint, VmState};

const GIB: u64 = 1 << 30;

pub fn worker_of(machine: &Machine) -> Result<WorkerRecord, Mismatch> {
    let (id, status) = (identity(machine)?, machine.status.clone().unwrap_or_default());
    let vm = status.vms.first().map(|vm| read("status.vms[].uuid", &vm.uuid, "UUID")).transpose()?;
    Ok(WorkerRecord {
        name: machine.name_any(),
        id,
        template: template(&machine.spec, status.kubernetes.as_deref())?,
        state: status.phase,
        allocated_uuid: Some(id),
        bios_uuid: vm,
        drain: machine.spec.drain,
        removal: machine.spec.removal,
        ..status.journal
    })
}

/// The Machine with the record in its status. Fields that `fleet` does not know stay.
///
/// # Errors
/// The record belongs to another Machine, or has another template: a worker's template cannot change.
pub fn noted(machine: &Machine, worker: &WorkerRecord) -> Result<Machine, Mismatch> {
    let (WorkerRecord { name, id, template: made, .. }, own) = (worker, identity(machine)?);
    if *name != machine.name_any() || *id != own || worker.allocated_uuid.is_some_and(|uuid| uuid != own) {
        let why = format!("and this is {} {own}", machine.name_any());
        return Err(Mismatch::new("the worker of the record", format!("{name} {id}"), why));
    }
    let newer = (made.kubernetes != machine.spec.kubernetes).then(|| made.kubernetes.clone());
    if template(&machine.spec, newer.as_deref())? != *made {
        return Err(Mismatch::new("the worker of the record", name, "which was not made like its Machine"));
    }
    let mut noted = machine.clone();
    let status = noted.status.get_or_insert_default();
    (status.kubernetes, status.phase) = (newer, worker.state);
    set_vm(&mut status.vms, name, worker.bios_uuid);
    if let Some(address) = worker.address {
        status.address = Some(address.to_string());
    }
    // The Machine has these elsewhere: `worker_of` reads them there.
    status.journal = WorkerRecord {
        name: String::new(),
        id: Some(*id).filter(|id| machine.metadata.uid != Some(id.to_string())).unwrap_or_default(),
        template: Template::default(),
        state: State::default(),
        allocated_uuid: None,
        bios_uuid: None,
        drain: Discards::default(),
        removal: Removal::default(),
        ..worker.clone()
    };
    Ok(noted)
}

/// Sets the VM that the worker runs in, if it has one.
fn set_vm(vms: &mut Vec<MachineVm>, name: &str, uuid: Option<Uuid>) {
    let uuid = uuid.map(|uuid| uuid.to_string());
    vms.retain(|vm| uuid.as_ref() == Some(&vm.uuid));
    if let Some(uuid) = uuid.filter(|_| vms.is_empty()) {
        vms.push(MachineVm { uuid, name: name.to_owned(), state: VmState::Current });
    }
}

/// The UID in the stamp of its VM: that of its Machine, or of its former Machine.
fn identity(machine: &Machine) -> Result<Uuid, Mismatch> {
    let noted = machine.status.as_ref().map(|status| status.journal.id).filter(|id| !id.is_nil());
    let own = || read("metadata.uid", machine.metadata.uid.as_deref().unwrap_or_default(), "UUID");
    noted.map_or_else(own, Ok)
}

/// A worker's template in `fleet`'s words. `kubernetes` is the minor version that it runs, if that is newer. Only the template
/// decides whether the worker is outdated.
pub fn template(spec: &MachineSpec, kubernetes: Option<&str>) -> Result<Template, Mismatch> {
    let MachineSpec {
        cluster_ref: _,
        role: _,
        pool_ref: _,
        zone: _,
        network: _,
        image,
        kubernetes: of_spec,
        processors,
        memory_mib,
        data_disk_gib,
        labels,
        taints,
        removal: _,
        drain: _,
    } = spec;
    Ok(Template {
        image: Image { digest: digits("image.digest", &image.digest)?, name: image.name.clone() },
        kubernetes: kubernetes.unwrap_or(of_spec).to_owned(),
        size: Size {
            processors: *processors,
            memory: *memory_mib,
            data_disk: data_disk_gib.map(|size| u64::from(size) * GIB),
        },
        labels: labels.clone(),
        taints: taints.iter().map(as_on_form).collect(),
    })
}

/// A taint as written in a node's OVF properties.
pub fn as_on_form(taint: &Taint) -> String {
    let Taint { key, value, effect } = taint.clone();
    let effect = match effect {
        Effect::NoSchedule => contract::properties::Effect::NoSchedule,
        Effect::PreferNoSchedule => contract::properties::Effect::PreferNoSchedule,
        Effect::NoExecute => contract::properties::Effect::NoExecute,
    };
    contract::properties::Taint { key, value, effect }.to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fleet::hypervisor::VmRef;
    use fleet::upgrade::Reason;

    use super::*;
    use crate::objects::fixture;

    const UID: &str = "0f5e2a30-7c1b-4d7e-9a55-0d6a1c5b7e21";

    fn machine() -> Machine {
        let taint = |value: &str, effect| Taint { key: "edge".to_owned(), value: value.to_owned(), effect };
        let spec = MachineSpec {
            taints: vec![taint("true", Effect::NoSchedule), taint("", Effect::NoExecute)],
            removal: Removal::Keep,
            drain: Discards { delete_local_volumes: true, delete_unmanaged_pods: true },
            ..fixture::worker()
        };
        let mut machine = Machine::new("shop-general-w1", spec);
        machine.metadata.uid = Some(UID.to_owned());
        machine
    }

    /// A record in which no field has its default.
    fn whole() -> WorkerRecord {
        let id: Uuid = UID.parse().unwrap();
        WorkerRecord {
            name: "shop-general-w1".to_owned(),
            id,
            template: Template {
                image: Image { digest: "0a".repeat(32), name: "kaas-tenant-0.2.0".to_owned() },
                kubernetes: "1.37".to_owned(),
                size: Size { processors: 4, memory: 16384, data_disk: Some(40 << 30) },
                labels: BTreeMap::from([("tier".to_owned(), "front".to_owned())]),
                taints: ["edge=true:NoSchedule", "edge:NoExecute"].map(str::to_owned).into(),
            },
            address: Some([192, 0, 2, 7].into()),
            state: State::Deleting,
            since: 1_796_115_600,
            allocated_uuid: Some(id),
            bios_uuid: Some(Uuid::from_u128(2)),
            token: Some("abc123".to_owned()),
            expires: 1_796_117_400,
            timeout_factor: 3,
            joined_seconds: Some(61),
            reason: Some(Reason::new("workers.asked", "a person wants it to go")),
            cordoned: Some(1_796_115_601),
            handed_over: Some(1_796_115_602),
            drain: Discards { delete_local_volumes: true, delete_unmanaged_pods: true },
            removal: Removal::Keep,
            last_heartbeat: Some("2026-12-01T09:00:00Z".to_owned()),
            was_powered_on: true,
            key: Some("sha256:0e".to_owned()),
            impersonated: true,
            deleting_vm: Some(VmRef { uuid: Uuid::from_u128(2), id: "vm-9".to_owned() }),
            deleting_disks: [Uuid::from_u128(3)].into(),
            settings: Some("[ds] w1/w1.vmx".to_owned()),
            datastore: Some("datastore-1".to_owned()),
        }
    }

    fn there_and_back(machine: &Machine, worker: &WorkerRecord) -> Machine {
        let object = noted(machine, worker).unwrap();
        // As the API server stores it.
        let object: Machine = serde_json::from_value(serde_json::to_value(object).unwrap()).unwrap();
        assert_eq!(worker_of(&object).unwrap(), *worker);
        object
    }

    #[test]
    fn worker_record_round_trips() {
        let made = there_and_back(&machine(), &whole());
        assert_eq!(made.spec, machine().spec, "what it is made like stays");
        for state in
            [State::Provisioning, State::Joining, State::Running, State::Rejoining, State::Failed, State::Deleting]
        {
            there_and_back(&made, &WorkerRecord { state, ..whole() });
        }
        // An empty record clears all fields of a complete one.
        let begun = WorkerRecord {
            name: whole().name,
            id: whole().id,
            template: Template { kubernetes: "1.36".to_owned(), ..whole().template },
            allocated_uuid: whole().allocated_uuid,
            drain: whole().drain,
            removal: whole().removal,
            ..WorkerRecord::default()
        };
        there_and_back(&made, &begun);
        assert_eq!(worker_of(&machine()).unwrap(), begun);
    }

    #[test]
    fn adopted_worker_keeps_its_former_uid() {
        let (mut adopted, id) = (machine(), Uuid::from_u128(7));
        adopted.status.get_or_insert_default().journal.id = id;
        assert!(noted(&adopted, &whole()).is_err(), "it is another one's");
        let made = there_and_back(&adopted, &WorkerRecord { id, allocated_uuid: Some(id), ..whole() });
        assert_eq!(made.status.unwrap().journal.id, id);
    }

    #[test]
    fn recorded_vm_stays_until_replaced_or_deleted() {
        let mut made = noted(&machine(), &whole()).unwrap();
        made.status.as_mut().unwrap().vms[0].name = "shop-general-w1-renamed".to_owned();
        let vms = |machine: &Machine| machine.status.clone().unwrap().vms;
        assert_eq!(vms(&noted(&made, &whole()).unwrap()), vms(&made));
        let other = noted(&made, &WorkerRecord { bios_uuid: Some(Uuid::from_u128(9)), ..whole() }).unwrap();
        let uuids: Vec<_> = vms(&other).into_iter().map(|vm| vm.uuid).collect();
        assert_eq!(uuids, [Uuid::from_u128(9).to_string()]);
        let gone = noted(&made, &WorkerRecord { bios_uuid: None, ..whole() }).unwrap();
        assert_eq!(vms(&gone), []);
    }

    /// A Machine as version 0.1 has written it. This text must not change: if it were read differently, all workers of all
    /// clusters would be replaced.
    const STORED: &str = r#"{
        "apiVersion": "kaas.local/v1alpha1", "kind": "Machine",
        "metadata": {"name": "shop-general-w1", "namespace": "team-blue", "uid": "0f5e2a30-7c1b-4d7e-9a55-0d6a1c5b7e21"},
        "spec": {
            "clusterRef": {"name": "shop"}, "role": "Worker", "poolRef": {"name": "shop-general"}, "zone": "a", "network": "blue",
            "image": {
                "name": "kaas-tenant-0.1.0",
                "digest": "sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"
            },
            "kubernetes": "1.36", "processors": 4, "memoryMiB": 16384, "dataDiskGiB": 40,
            "reservation": {"processorPercent": 0, "memoryPercent": 50},
            "labels": {"tier": "front"},
            "taints": [
                {"key": "edge", "value": "true", "effect": "NoSchedule"},
                {"key": "batch", "value": "", "effect": "NoExecute"}
            ],
            "removal": "DestroyVM", "drain": {"deleteLocalVolumes": false, "deleteUnmanagedPods": false}
        },
        "status": {
            "observedGeneration": 1, "phase": "Running",
            "vms": [{
                "uuid": "0f5e2a30-7c1b-4d7e-9a55-0d6a1c5b7e21", "name": "shop-general-w1", "state": "Current", "reference": "vm-7"
            }],
            "template": "sha256:23707b792d4f6f8ac48d2fa15b4b2e76cdcc148f409df8e4b6d423a5d9f915ea",
            "journal": {"since": "2026-12-01T09:00:00Z", "joinedSeconds": 61, "wasPoweredOn": false, "impersonated": false}
        }
    }"#;

    #[test]
    fn new_controller_version_replaces_no_worker() {
        let stored: Machine = serde_json::from_str(STORED).unwrap();
        let worker = worker_of(&stored).unwrap();
        assert_eq!((worker.state, worker.bios_uuid), (State::Running, UID.parse().ok()));
        let wanted = Template {
            image: Image { digest: "0a".repeat(32), name: "another word for it".to_owned() },
            kubernetes: "1.36".to_owned(),
            size: Size { processors: 4, memory: 16384, data_disk: Some(40 << 30) },
            labels: BTreeMap::from([("tier".to_owned(), "front".to_owned())]),
            taints: ["batch:NoExecute", "edge=true:NoSchedule"].map(str::to_owned).into(),
        };
        assert!(!wanted.outdates(&worker.template), "what version 0.1 has made is outdated: {:?}", worker.template);
    }

    #[test]
    fn only_listed_changes_outdate_a_worker() {
        let made = template(&fixture::worker(), None).unwrap();
        let outdates = |change: &dyn Fn(&mut MachineSpec)| {
            let mut wanted = fixture::worker();
            change(&mut wanted);
            template(&wanted, None).unwrap().outdates(&made)
        };
        let listed: [&dyn Fn(&mut MachineSpec); 7] = [
            &|wanted| wanted.image.digest = format!("sha256:{}", "0b".repeat(32)),
            &|wanted| wanted.kubernetes = "1.37".to_owned(),
            &|wanted| wanted.processors = 8,
            &|wanted| wanted.memory_mib = 8192,
            &|wanted| wanted.data_disk_gib = None,
            &|wanted| drop(wanted.labels.insert("a".to_owned(), String::new())),
            &|wanted| drop(wanted.taints.pop()),
        ];
        for (place, change) in listed.iter().enumerate() {
            assert!(outdates(*change), "the change at {place}");
        }
        let others: [&dyn Fn(&mut MachineSpec); 6] = [
            &|_| (),
            &|wanted| wanted.image.name = "another word for it".to_owned(),
            &|wanted| wanted.kubernetes = "1.9".to_owned(),
            &|wanted| wanted.zone = "b".to_owned(),
            &|wanted| wanted.taints.reverse(),
            &|wanted| (wanted.removal, wanted.drain.delete_unmanaged_pods) = (Removal::Keep, true),
        ];
        for (place, change) in others.iter().enumerate() {
            assert!(!outdates(*change), "the change at {place}");
        }
    }

    #[test]
    fn record_of_another_worker_or_template_is_rejected() {
        let (machine, other) = (machine(), Uuid::from_u128(1));
        let image = |digest: &str| Image { digest: digest.repeat(32), name: "kaas-tenant-0.2.0".to_owned() };
        for worker in [
            WorkerRecord { name: "shop-general-w2".to_owned(), ..whole() },
            WorkerRecord { id: other, ..whole() },
            WorkerRecord { allocated_uuid: Some(other), ..whole() },
            WorkerRecord { template: Template { image: image("0b"), ..whole().template }, ..whole() },
        ] {
            assert!(noted(&machine, &worker).is_err(), "{worker:?}");
        }
        let mut unmade = machine.clone();
        unmade.metadata.uid = None;
        assert_eq!(worker_of(&unmade).unwrap_err().to_string(), "metadata.uid is \"\", which is no UUID");
    }
}
