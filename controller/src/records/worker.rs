//! A worker: [`workers::WorkerRecord`] of `fleet` and a Machine. What it is made like stands in the spec, what was begun for it in the
//! status. The Machine's UID is what its VM's stamp has, and the BIOS UUID that its VM is made with: both are drawn by the API
//! server when the object is made, before anything follows from them, and no other Machine ever has them. What may be lost with a
//! worker, and what becomes of its VM, is a person's to say, in the spec: it is read from there and never written. One that was adopted has the UID of the Machine
//! that it was made for.

use fleet::hypervisor::Size;
use fleet::upgrade::Reason;
use fleet::workers::{self, Image, State, Template};
use kube::ResourceExt;
use uuid::Uuid;

use super::deployment::{going_of, going_vm};
use super::text::{Mismatch, digits, read, read_given, seconds, time, time_if_any};
use crate::objects::{Discards, Effect, Journal, Machine, MachineSpec, MachineVm, Phase, Removal, Taint, VmState};

const GIB: u64 = 1 << 30;

/// What is kept of a worker, by its Machine.
///
/// # Errors
/// When the API server has not made it yet, or a text is not what it has to be.
pub fn worker_of(machine: &Machine) -> Result<workers::WorkerRecord, Mismatch> {
    let id = identity(machine)?;
    let status = machine.status.clone().unwrap_or_default();
    let Journal {
        since,
        address,
        token,
        expires,
        timeout_factor,
        joined_seconds,
        code,
        reason,
        cordoned,
        handed_over,
        last_heartbeat,
        was_powered_on,
        key,
        impersonated,
        deleting_vm,
        deleting_disks,
        settings,
        datastore,
        stamp: _,
    } = status.journal;
    let given = |field, given: &Option<_>| given.as_ref().map(|time| seconds(field, time)).transpose();
    let Discards { delete_local_volumes, delete_unmanaged_pods } = machine.spec.drain;
    let removal = match machine.spec.removal {
        Removal::DestroyVm => workers::Removal::Destroy,
        Removal::KeepVm => workers::Removal::Keep,
    };
    Ok(workers::WorkerRecord {
        name: machine.name_any(),
        id,
        template: template(&machine.spec, status.kubernetes.as_deref())?,
        address: read_given("journal.address", address.as_deref(), "IPv4 address")?,
        state: match status.phase {
            Phase::Provisioning => State::Provisioning,
            Phase::Joining => State::Joining,
            Phase::Running => State::Running,
            Phase::Rejoining => State::Rejoining,
            Phase::Failed => State::Failed,
            Phase::Deleting => State::Deleting,
        },
        since: given("journal.since", &since)?.unwrap_or_default(),
        allocated_uuid: Some(id),
        bios_uuid: read_given("status.vms[].uuid", status.vms.first().map(|vm| vm.uuid.as_str()), "UUID")?,
        token,
        expires: given("journal.expires", &expires)?.unwrap_or_default(),
        timeout_factor: timeout_factor.unwrap_or(1),
        joined_seconds,
        reason: code.map(|code| Reason { code, words: reason.unwrap_or_default() }),
        cordoned: given("journal.cordoned", &cordoned)?,
        handed_over: given("journal.handedOver", &handed_over)?,
        drain: workers::Discards { delete_local_volumes, delete_unmanaged_pods },
        removal,
        last_heartbeat,
        was_powered_on,
        key,
        impersonated,
        deleting_vm: deleting_vm
            .as_ref()
            .map(|deleting_vm| going_of("journal.deletingVM.biosUUID", deleting_vm))
            .transpose()?,
        deleting_disks: deleting_disks
            .iter()
            .map(|disk| read("journal.deletingDisks[]", disk, "UUID"))
            .collect::<Result<_, _>>()?,
        settings,
        datastore,
    })
}

/// A Machine with what is kept of it now, in its status. What `fleet` knows nothing of stays.
///
/// # Errors
/// When it is kept of another Machine, or of one that was made otherwise: a worker stays as it was made.
pub fn noted(machine: &Machine, worker: &workers::WorkerRecord) -> Result<Machine, Mismatch> {
    let workers::WorkerRecord {
        name,
        id,
        template: made,
        address,
        state,
        since,
        allocated_uuid,
        bios_uuid,
        token,
        expires,
        timeout_factor,
        joined_seconds,
        reason,
        cordoned,
        handed_over,
        drain: _,
        removal: _,
        last_heartbeat,
        was_powered_on,
        key,
        impersonated,
        deleting_vm,
        deleting_disks,
        settings,
        datastore,
    } = worker;
    let own = identity(machine)?;
    if *name != machine.name_any() || *id != own || allocated_uuid.is_some_and(|uuid| uuid != own) {
        let why = format!("and this is {} {own}", machine.name_any());
        return Err(Mismatch::new("the worker that is kept", format!("{name} {id}"), why));
    }
    let newer = (made.kubernetes != machine.spec.kubernetes).then(|| made.kubernetes.clone());
    if template(&machine.spec, newer.as_deref())? != *made {
        return Err(Mismatch::new("the worker that is kept", name, "which was not made like its Machine"));
    }
    let mut noted = machine.clone();
    let status = noted.status.get_or_insert_default();
    status.kubernetes = newer;
    status.phase = match state {
        State::Provisioning => Phase::Provisioning,
        State::Joining => Phase::Joining,
        State::Running => Phase::Running,
        State::Rejoining => Phase::Rejoining,
        State::Failed => Phase::Failed,
        State::Deleting => Phase::Deleting,
    };
    set_vm(&mut status.vms, name, *bios_uuid);
    if let Some(address) = address {
        status.address = Some(address.to_string());
    }
    let given = |field, given: Option<u64>| given.map(|seconds| time(field, seconds)).transpose();
    let (code, words) = reason.clone().map(|Reason { code, words }| (code, words)).unzip();
    status.journal = Journal {
        since: time_if_any("since", *since)?,
        address: address.map(|address| address.to_string()),
        token: token.clone(),
        expires: time_if_any("expires", *expires)?,
        timeout_factor: Some(*timeout_factor),
        joined_seconds: *joined_seconds,
        code,
        reason: words,
        cordoned: given("cordoned", *cordoned)?,
        handed_over: given("handed_over", *handed_over)?,
        last_heartbeat: last_heartbeat.clone(),
        was_powered_on: *was_powered_on,
        key: key.clone(),
        impersonated: *impersonated,
        deleting_vm: deleting_vm.as_ref().map(going_vm),
        deleting_disks: deleting_disks.iter().map(ToString::to_string).collect(),
        settings: settings.clone(),
        datastore: datastore.clone(),
        stamp: status.journal.stamp.take(),
    };
    Ok(noted)
}

/// The VM that the worker runs in, or none.
fn set_vm(vms: &mut Vec<MachineVm>, name: &str, uuid: Option<Uuid>) {
    let uuid = uuid.map(|uuid| uuid.to_string());
    vms.retain(|vm| uuid.as_ref() == Some(&vm.uuid));
    if let Some(uuid) = uuid.filter(|_| vms.is_empty()) {
        vms.push(MachineVm { uuid, name: name.to_owned(), state: VmState::Current });
    }
}

/// What its VM is stamped with: the UID of its Machine, or of the one that it was made for.
fn identity(machine: &Machine) -> Result<Uuid, Mismatch> {
    let stamp = machine.status.as_ref().and_then(|status| status.journal.stamp.as_deref());
    read_given("journal.stamp", stamp, "UUID")?.map_or_else(|| uid(machine), Ok)
}

fn uid(machine: &Machine) -> Result<Uuid, Mismatch> {
    read("metadata.uid", machine.metadata.uid.as_deref().unwrap_or_default(), "UUID")
}

/// What a worker is made like, in `fleet`'s words; `kubernetes` is the newer minor that it runs, if it does. Whether it is outdated follows
/// from this alone. What of the spec is not in it moves nobody.
///
/// # Errors
/// When a text is not what it has to be.
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

/// A taint as a node's form has it.
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
    use std::collections::{BTreeMap, BTreeSet};

    use fleet::hypervisor::VmRef;

    use super::*;
    use crate::objects::fixture;

    const UID: &str = "0f5e2a30-7c1b-4d7e-9a55-0d6a1c5b7e21";

    fn machine() -> Machine {
        let taint = |value: &str, effect| Taint { key: "edge".to_owned(), value: value.to_owned(), effect };
        let spec = MachineSpec {
            taints: vec![taint("true", Effect::NoSchedule), taint("", Effect::NoExecute)],
            removal: Removal::KeepVm,
            drain: Discards { delete_local_volumes: true, delete_unmanaged_pods: true },
            ..fixture::worker()
        };
        let mut machine = Machine::new("shop-general-w1", spec);
        machine.metadata.uid = Some(UID.to_owned());
        machine
    }

    /// A worker of which no field is as it is where nothing was begun.
    fn whole() -> workers::WorkerRecord {
        let id: Uuid = UID.parse().unwrap();
        workers::WorkerRecord {
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
            drain: workers::Discards { delete_local_volumes: true, delete_unmanaged_pods: true },
            removal: workers::Removal::Keep,
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

    fn there_and_back(machine: &Machine, worker: &workers::WorkerRecord) -> Machine {
        let object = noted(machine, worker).unwrap();
        // As the API server keeps it.
        let object: Machine = serde_json::from_value(serde_json::to_value(object).unwrap()).unwrap();
        assert_eq!(worker_of(&object).unwrap(), *worker);
        object
    }

    #[test]
    fn each_field_that_is_kept_comes_back() {
        let made = there_and_back(&machine(), &whole());
        assert_eq!(made.spec, machine().spec, "what it is made like stays");
        for state in
            [State::Provisioning, State::Joining, State::Running, State::Rejoining, State::Failed, State::Deleting]
        {
            there_and_back(&made, &workers::WorkerRecord { state, ..whole() });
        }
        // One for which nothing was begun, over one for which all was: nothing of that is left.
        let begun = workers::WorkerRecord {
            template: Template { kubernetes: "1.36".to_owned(), ..whole().template },
            address: None,
            since: 0,
            bios_uuid: None,
            token: None,
            expires: 0,
            timeout_factor: 1,
            joined_seconds: None,
            reason: None,
            cordoned: None,
            handed_over: None,
            last_heartbeat: None,
            was_powered_on: false,
            key: None,
            impersonated: false,
            deleting_vm: None,
            deleting_disks: BTreeSet::new(),
            settings: None,
            datastore: None,
            ..whole()
        };
        there_and_back(&made, &begun);
        assert_eq!(worker_of(&machine()).unwrap(), workers::WorkerRecord { state: State::Provisioning, ..begun });
    }

    #[test]
    fn a_worker_that_was_adopted_is_known_by_the_machine_that_it_was_made_for() {
        let (mut adopted, id) = (machine(), Uuid::from_u128(7));
        adopted.status.get_or_insert_default().journal.stamp = Some(id.to_string());
        assert!(noted(&adopted, &whole()).is_err(), "it is another one's");
        let made = there_and_back(&adopted, &workers::WorkerRecord { id, allocated_uuid: Some(id), ..whole() });
        assert_eq!(made.status.unwrap().journal.stamp, Some(id.to_string()));
    }

    #[test]
    fn a_vm_stays_as_it_was_noted_until_it_is_another_one_or_gone() {
        let mut made = noted(&machine(), &whole()).unwrap();
        made.status.as_mut().unwrap().vms[0].name = "shop-general-w1-renamed".to_owned();
        let vms = |machine: &Machine| machine.status.clone().unwrap().vms;
        assert_eq!(vms(&noted(&made, &whole()).unwrap()), vms(&made));
        let other = noted(&made, &workers::WorkerRecord { bios_uuid: Some(Uuid::from_u128(9)), ..whole() }).unwrap();
        let uuids: Vec<_> = vms(&other).into_iter().map(|vm| vm.uuid).collect();
        assert_eq!(uuids, [Uuid::from_u128(9).to_string()]);
        let gone = noted(&made, &workers::WorkerRecord { bios_uuid: None, ..whole() }).unwrap();
        assert_eq!(vms(&gone), []);
    }

    /// A Machine as version 0.1 has written it. It never changes: read as another one, it would have all workers of all clusters replaced.
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
    fn a_new_version_of_the_controller_replaces_nobody() {
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
    fn what_makes_a_worker_outdated_is_listed_and_all_else_does_not() {
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
            &|wanted| (wanted.removal, wanted.drain.delete_unmanaged_pods) = (Removal::KeepVm, true),
        ];
        for (place, change) in others.iter().enumerate() {
            assert!(!outdates(*change), "the change at {place}");
        }
    }

    #[test]
    fn another_worker_or_one_that_was_made_otherwise_is_refused() {
        let (machine, other) = (machine(), Uuid::from_u128(1));
        let image = |digest: &str| Image { digest: digest.repeat(32), name: "kaas-tenant-0.2.0".to_owned() };
        for worker in [
            workers::WorkerRecord { name: "shop-general-w2".to_owned(), ..whole() },
            workers::WorkerRecord { id: other, ..whole() },
            workers::WorkerRecord { allocated_uuid: Some(other), ..whole() },
            workers::WorkerRecord { template: Template { image: image("0b"), ..whole().template }, ..whole() },
            workers::WorkerRecord { since: u64::MAX, ..whole() },
        ] {
            assert!(noted(&machine, &worker).is_err(), "{worker:?}");
        }
        let mut unmade = machine.clone();
        unmade.metadata.uid = None;
        assert_eq!(worker_of(&unmade).unwrap_err().to_string(), "metadata.uid is \"\", which is no UUID");
    }
}
