//! Faults during a call: the error kind says what each leaves behind.

use serde_json::{Value, json};

use super::*;
use crate::hypervisor::{PowerState, ShutDown};

#[tokio::test]
async fn lost_answer_is_in_doubt_unlike_a_fault() {
    let (bed, hypervisor, image) = with_image().await;
    let cases: [(&str, &str, Value, ErrorKind, bool); 10] = [
        ("CloneVM_Task", "lose-answer", json!({}), ErrorKind::InDoubt, true),
        ("CloneVM_Task", "drop", json!({}), ErrorKind::InDoubt, false),
        ("CloneVM_Task", "status", json!({ "code": 503 }), ErrorKind::InDoubt, false),
        ("CloneVM_Task", "fault", json!({ "fault": "NoPermission" }), ErrorKind::Denied, false),
        ("CloneVM_Task", "fault", json!({ "fault": "InsufficientResourcesFault" }), ErrorKind::Transient, false),
        ("CloneVM_Task", "fail-task", json!({ "fault": "NoDiskSpace" }), ErrorKind::Transient, false),
        ("CloneVM_Task", "fail-task", json!({ "fault": "DuplicateName" }), ErrorKind::Transient, false),
        ("CloneVM_Task", "fail-task-late", json!({ "fault": "HostCommunication" }), ErrorKind::InDoubt, true),
        ("CloneVM_Task", "fail-task", json!({ "fault": "SystemError" }), ErrorKind::InDoubt, false),
        ("CloneVM_Task", "end-session", json!({}), ErrorKind::Transient, true),
    ];
    for (at, (method, what, more, kind, happened)) in cases.into_iter().enumerate() {
        let node = format!("cp{at}");
        bed.spoil(method, what, more).await;
        let made = hypervisor.try_add(&node, &image).await;
        bed.spoil_nothing().await;
        match &made {
            // A new session was opened, and the call repeated.
            Ok(_) => assert_eq!(what, "end-session"),
            Err(error) => assert_eq!(error.kind, kind, "{what}: {error}"),
        }
        hypervisor.settle(&Free).await.unwrap();
        let there = hypervisor.vms().await.unwrap().into_iter().any(|vm| vm.name == node);
        assert_eq!(there, happened, "{what}");
        // A repeated call creates it once.
        match hypervisor.try_add(&node, &image).await {
            Ok(_) => assert!(!happened, "{what}"),
            Err(error) => assert_eq!((error.kind, happened), (ErrorKind::Refused, true), "{what}: {error}"),
        }
        assert_eq!(bed.machines().await.iter().filter(|machine| machine.name == node).count(), 1);
    }
}

#[tokio::test]
async fn change_in_doubt_is_visible_after_settling() {
    let (bed, hypervisor, vm) = with_vm().await;
    let disk = vm.data_disks().next().unwrap().reference.clone();

    bed.spoil("PowerOnVM_Task", "lose-answer", json!({})).await;
    assert_eq!(hypervisor.power_on(&vm, &Free).await.unwrap_err().kind, ErrorKind::InDoubt);
    hypervisor.settle(&Free).await.unwrap();
    assert_eq!(hypervisor.again(&vm).await.power, PowerState::On);

    // The guest got the request, and the answer is unknown.
    bed.spoil("ShutdownGuest", "lose-answer", json!({})).await;
    let limit = std::time::Duration::from_secs(20);
    let asked = hypervisor.shut_down(&hypervisor.again(&vm).await, limit, &Free).await;
    assert_eq!(asked.unwrap_err().kind, ErrorKind::InDoubt);
    // If it ends between the read and the request, the request fails, and the next read shows it off.
    let ended = loop {
        match hypervisor.shut_down(&hypervisor.again(&vm).await, limit, &Free).await {
            Err(error) if error.kind == ErrorKind::Changed => {}
            ended => break ended.unwrap(),
        }
    };
    assert_eq!(ended, ShutDown::Off);

    bed.spoil("ReconfigVM_Task", "lose-answer", json!({})).await;
    let off = hypervisor.again(&vm).await;
    assert_eq!(hypervisor.detach(&off, &disk, &Free).await.unwrap_err().kind, ErrorKind::InDoubt);
    hypervisor.settle(&Free).await.unwrap();
    let bare = hypervisor.again(&vm).await;
    assert_eq!(bare.data_disks().count(), 0);
    // The VM has changed since it was read: nothing is done.
    assert_eq!(hypervisor.attach(&off, &disk, &Free).await.unwrap_err().kind, ErrorKind::Changed);
    bed.spoil("ReconfigVM_Task", "fail-task", json!({ "fault": "ConcurrentAccess" })).await;
    assert_eq!(hypervisor.attach(&bare, &disk, &Free).await.unwrap_err().kind, ErrorKind::Changed);
    bed.spoil("ReconfigVM_Task", "fail-task", json!({ "fault": "FileLocked" })).await;
    assert_eq!(hypervisor.attach(&bare, &disk, &Free).await.unwrap_err().kind, ErrorKind::Transient);
    assert_eq!(hypervisor.again(&vm).await.data_disks().count(), 0);
    hypervisor.attach(&bare, &disk, &Free).await.unwrap();

    // After an interrupted removal the VM still exists, and the removal is repeated.
    let off = hypervisor.again(&vm).await;
    hypervisor.detach(&off, &disk, &Free).await.unwrap();
    bed.spoil("Destroy_Task", "fail-task", json!({ "fault": "HostCommunication" })).await;
    let bare = hypervisor.again(&vm).await;
    assert_eq!(hypervisor.destroy(&bare, &Free).await.unwrap_err().kind, ErrorKind::InDoubt);
    hypervisor.settle(&Free).await.unwrap();
    bed.spoil("Destroy_Task", "lose-answer", json!({})).await;
    let bare = hypervisor.again(&vm).await;
    assert_eq!(hypervisor.destroy(&bare, &Free).await.unwrap_err().kind, ErrorKind::InDoubt);
    hypervisor.settle(&Free).await.unwrap();
    assert_eq!(hypervisor.vm(&vm.reference).await.unwrap_err().kind, ErrorKind::NotFound);
    assert!(bed.file(&disk.path).exists());
}

#[tokio::test]
async fn successor_waits_for_a_running_clone() {
    let (bed, hypervisor, image) = with_image().await;
    bed.delay_unanswered("CloneVM_Task", 1500).await;
    assert_eq!(hypervisor.try_add("cp1", &image).await.unwrap_err().kind, ErrorKind::InDoubt);
    let successor = bed.hypervisor().await;
    assert_eq!(successor.vms().await.unwrap(), []);
    successor.settle(&Free).await.unwrap();
    assert_eq!(successor.vms().await.unwrap().len(), 1);

    bed.delay_unanswered("PowerOnVM_Task", 60_000).await;
    let vm = successor.vms().await.unwrap().remove(0);
    assert_eq!(hypervisor.power_on(&vm, &Free).await.unwrap_err().kind, ErrorKind::InDoubt);
    let seen = successor.again(&vm).await;
    assert!(matches!(seen.tasks.as_slice(), [task] if task.contains("powerOn")), "{seen:?}");
    let impatient = successor.settling_within(std::time::Duration::from_millis(200));
    assert_eq!(impatient.settle(&Free).await.unwrap_err().kind, ErrorKind::Transient);
    bed.spoil_nothing().await;
    hypervisor.settle(&Free).await.unwrap();
    assert_eq!(hypervisor.again(&vm).await.power, PowerState::On);
}

#[tokio::test]
async fn former_holder_begins_no_request() {
    let (bed, hypervisor, image) = with_image().await;
    let vm = hypervisor.added("cp1", &image).await;
    let before = bed.machines().await;
    let none = Few(AtomicUsize::new(0));
    let limit = std::time::Duration::from_secs(20);
    let (disk, adapter) = (vm.disks[1].reference.clone(), vm.adapters[0].key.clone());
    let replacement = CloneRequest {
        name: "cp1-new",
        uuid: Uuid::from_u128(9),
        image: &image,
        settings: CloneSettings::Replaces { vm: &vm, size: None },
        stamp: stamp("cp1", Some(7)),
        placement: &Placement::default(),
    };
    let stopped = [
        hypervisor.power_on(&vm, &none).await,
        hypervisor.clone_vm(&replacement, &none).await.map(drop),
        hypervisor.connect(&vm, &adapter, false, &none).await,
        hypervisor.set_properties(&vm, &properties("cp2"), &none).await,
        hypervisor.detach(&vm, &disk, &none).await,
    ];
    for error in stopped.map(Result::unwrap_err) {
        assert_eq!((error.kind, error.to_string().as_str()), (ErrorKind::Fenced, "another command has taken over"));
    }
    hypervisor.detach(&vm, &disk, &Free).await.unwrap();
    let bare = hypervisor.again(&vm).await;
    for permitted in [0, 1] {
        let bare = hypervisor.again(&bare).await;
        let error = hypervisor.destroy(&bare, &Few(AtomicUsize::new(permitted))).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Fenced, "{error}");
    }
    let bare = hypervisor.again(&bare).await;
    assert_eq!(hypervisor.attach(&bare, &disk, &none).await.unwrap_err().kind, ErrorKind::Fenced);
    assert_eq!(hypervisor.delete_disk(&disk, &none).await.unwrap_err().kind, ErrorKind::Fenced);
    hypervisor.attach(&bare, &disk, &Free).await.unwrap();
    assert_eq!(bed.machines().await, before);
    let on = hypervisor.again(&vm).await;
    hypervisor.power_on(&on, &Free).await.unwrap();
    let on = hypervisor.again(&vm).await;
    assert_eq!(hypervisor.shut_down(&on, limit, &none).await.unwrap_err().kind, ErrorKind::Fenced);
    assert_eq!(hypervisor.cut_power(&on, &none).await.unwrap_err().kind, ErrorKind::Fenced);
    assert_eq!(hypervisor.again(&vm).await.power, PowerState::On);
}

#[tokio::test]
async fn client_recovers_from_ended_sessions_and_restart() {
    let (bed, hypervisor, ova) = with_ova().await;
    // The upload ends with the session.
    bed.spoil("HttpNfcLeaseComplete", "end-session", json!({})).await;
    let mut tries = 0;
    let image = loop {
        match hypervisor.import(&ova, &Free).await {
            Ok(image) => break image,
            Err(error) => assert!(
                matches!(error.kind, ErrorKind::Transient | ErrorKind::InDoubt | ErrorKind::NotFound),
                "{error}"
            ),
        }
        tries += 1;
        assert!(tries < 5);
        hypervisor.settle(&Free).await.unwrap();
    };
    let vm = hypervisor.added("cp1", &image).await;
    bed.end_sessions().await;
    hypervisor.power_on(&vm, &Free).await.unwrap();
    bed.restart(50).await;
    let seen = loop {
        match hypervisor.vms().await {
            Ok(seen) => break seen,
            Err(error) => assert_eq!(error.kind, ErrorKind::Transient, "{error}"),
        }
    };
    assert!(matches!(seen.as_slice(), [vm] if vm.power == PowerState::On), "{seen:?}");
}

#[tokio::test]
async fn missing_privileges_are_reported_together() {
    let of = |without: &[&str]| -> Vec<&str> {
        vsphere::PRIVILEGES.iter().map(|privilege| privilege.id).filter(|id| !without.contains(id)).collect()
    };
    let missing = ["VirtualMachine.Interact.PowerOn", "Datastore.FileManagement"];
    let bed = Bed::of_users(&[
        json!({ "name": bed::ADMINISTRATOR, "password": testbed::PASSWORD }),
        json!({ "name": "all@vsphere.local", "password": "a", "privileges": of(&[]) }),
        json!({ "name": "few@vsphere.local", "password": "f", "privileges": of(&missing) }),
    ]);
    drop(bed.hypervisor().await);
    let all = bed.client_of("all@vsphere.local", "a").await;
    let all = VcenterHypervisor::new(all, DEPLOYMENT, &bed.site(), &journal_of(DEPLOYMENT)).await.unwrap();
    all.preflight(&Placement::default()).await.unwrap();
    // The role's privileges are sufficient.
    let ova = ova();
    let image = all.lay(&ova).await;
    let vm = all.added("cp1", &image).await;
    // A VM that is given up is renamed. The role has that privilege in addition.
    all.connect(&vm, &vm.adapters[0].key, false, &Free).await.unwrap();
    let vm = all.again(&vm).await;
    assert_eq!(all.disown(&vm, "cp1-kept", &Free).await.unwrap_err().kind, ErrorKind::Denied);
    assert_eq!(all.again(&vm).await, vm);
    let few = bed.client_of("few@vsphere.local", "f").await;
    let few = VcenterHypervisor::new(few, DEPLOYMENT, &bed.site(), &journal_of(DEPLOYMENT)).await.unwrap();
    let error = few.preflight(&Placement::default()).await.unwrap_err();
    missing.iter().for_each(|id| says(&error, ErrorKind::Denied, id));
    assert_eq!(few.power_on(&vm, &Free).await.unwrap_err().kind, ErrorKind::Denied);
    all.power_on(&vm, &Free).await.unwrap();
    let site = crate::vcenter::Site { datastore: "no-such".to_owned(), ..bed.site() };
    let error = VcenterHypervisor::new(bed.client().await, DEPLOYMENT, &site, &journal_of(DEPLOYMENT))
        .await
        .err()
        .expect("there is no such place");
    assert_eq!(error.kind, ErrorKind::Refused, "{error}");
}
