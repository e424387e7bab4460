//! A caller whose fence fails changes nothing, also in the middle of a call.

mod first;

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use contract::statement::Phase;
use fleet::hypervisor::PowerState;
use ova::ovf::{
    CdRomController, Descriptor, Firmware, HardDisk, Hardware, Network, NetworkAdapter, OperatingSystem, Product, Size,
    Sizing, Transport,
};
use tempfile::TempDir;

use super::super::environment::form_of;
use super::super::qemu::machine::control_argument;
use super::super::records::LONGEST_VM;
use super::super::{EngineRecord, Hardware as QemuHardware, fixture};
use super::*;

/// A fence that holds for this number of calls.
struct Times(AtomicUsize);

impl Times {
    fn of(times: usize) -> Self {
        Self(AtomicUsize::new(times))
    }
}

#[async_trait]
impl Fence for Times {
    async fn still(&self) -> Result<()> {
        let left = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        left.map(drop).map_err(|_| Error::new(ErrorKind::Fenced, anyhow::anyhow!("another command has taken over")))
    }
}

/// A lab with its state directory and one VM, which is off and holds a disk.
fn lab() -> (TempDir, LabHypervisor) {
    let state = tempfile::tempdir().unwrap();
    let lab = fixture::lab(state.path(), 1, fixture::source(&state.path().join("tree")));
    let stamp = Stamp { deployment: lab.deployment(), node: "cp1".to_owned(), swap: None };
    lab.make_vm(&fixture::vm("cp1", Some(stamp))).unwrap();
    let mut record = lab.directory.load_vm("cp1").unwrap();
    record.disks.push(Uuid::from_u128(1));
    lab.directory.save_vm(&record).unwrap();
    lab.make_vm(&fixture::vm("unstamped", None)).unwrap();
    (state, LabHypervisor::new(Arc::new(lab)))
}

/// Replaces a VM, until the fence fails.
async fn replace(
    lab: &LabHypervisor,
    vm: &Vm,
    (name, stamp): (&str, &Stamp),
    image: &ImageTemplate,
    times: usize,
) -> Result<Uuid> {
    let request = CloneRequest {
        name,
        uuid: Uuid::from_u128(9),
        image,
        settings: CloneSettings::Replaces { vm, size: None },
        stamp: stamp.clone(),
        placement: &Placement::default(),
    };
    lab.clone_vm(&request, &Times::of(times)).await
}

fn records(lab: &LabHypervisor) -> Vec<VmRecord> {
    lab.0.vm_records().unwrap()
}

/// An unpacked image, as far as an import reads it.
fn staged(state: &TempDir) -> ImageTemplate {
    let directory = state.path().join("digest");
    fs::create_dir_all(&directory).unwrap();
    let form = form_of(&state.path().join("tree")).unwrap();
    let disk = ova::ovf::Disk { id: "system".into(), capacity: 1 << 20, file: None };
    let descriptor = Descriptor {
        name: "x".into(),
        annotation: None,
        eula: None,
        operating_system: OperatingSystem { cim_type: 96, vmware_type: None, description: "Debian".into() },
        product: Product { name: "x".into(), vendor: "x".into(), version: "1.0.0".into(), ..form },
        disks: vec![disk],
        networks: vec![Network { name: "x".into(), description: "x".into() }],
        sizing: Sizing::Fixed(Size { cpus: 2, memory_mib: 2048 }),
        hardware: Hardware {
            version: 15,
            transports: vec![Transport::Iso],
            disks: vec![HardDisk { disk: "system".into(), unit: 0, profiles: vec![] }],
            adapters: vec![NetworkAdapter { network: "x".into() }],
            cd_rom: Some(CdRomController::Sata),
            firmware: Firmware::Efi { secure_boot: false },
            extra_config: vec![],
        },
    };
    fs::write(directory.join("descriptor.ovf"), descriptor.to_xml().unwrap()).unwrap();
    ImageTemplate { digest: "digest".to_owned(), reference: directory.display().to_string() }
}

#[test]
fn only_control_plane_nodes_identify_the_cluster() {
    let (_state, LabHypervisor(lab, _)) = lab();
    let deployment = fleet::workers::deployment(lab.deployment(), "workers");
    let stamp = Stamp { deployment, node: "aw1".to_owned(), swap: None };
    lab.make_vm(&fixture::vm("aw1", Some(stamp))).unwrap();
    let asked: Vec<String> = lab.control_nodes().unwrap().into_iter().map(|vm| vm.name).collect();
    assert_eq!(asked, ["cp1", "unstamped"]);
}

#[tokio::test]
async fn a_statement_is_read_from_the_vms_engine() {
    let (_state, lab) = lab();
    let own = lab.vms().await.unwrap().remove(0);
    assert_eq!(lab.statement(&own.reference).await.unwrap(), None);
    let said = Statement {
        machine: Some(own.uuid().into()),
        phase: Phase::Refused,
        code: Some("join.token-refused".to_owned()),
        words: "it is not taken".to_owned(),
        lasting: true,
        times: 2,
        key: None,
        token: Some("abcdef".to_owned()),
        at: 7,
    };
    let shared = lab.0.directory.vm("cp1").join("platform");
    fs::create_dir_all(&shared).unwrap();
    fs::write(shared.join("statement.json"), said.to_string()).unwrap();
    assert_eq!(lab.statement(&own.reference).await.unwrap(), Some(said.clone()));
    fs::write(shared.join("statement.json"), "anything").unwrap();
    assert_eq!(lab.statement(&own.reference).await.unwrap(), None);

    let mut record = lab.0.directory.load_vm("cp1").unwrap();
    record.engine = EngineRecord::Qemu { kvm: false, hardware: QemuHardware::Quick };
    lab.0.directory.save_vm(&record).unwrap();
    fs::write(lab.0.directory.console("cp1"), format!("kaas: stopped\r\n{}\r\n", said.line())).unwrap();
    assert_eq!(lab.statement(&own.reference).await.unwrap(), Some(said));
}

#[tokio::test]
async fn without_a_fence_no_call_changes_anything() {
    let (state, lab) = lab();
    let own = lab.vms().await.unwrap().remove(0);
    let other = records(&lab).into_iter().find(|record| record.stamp.is_none()).unwrap();
    let other = lab.with_bios_uuid(other.uuid).await.unwrap().remove(0);
    let before = records(&lab);
    let (none, disk) = (Times::of(0), lab.0.disk_reference(Uuid::from_u128(1)));
    let (image, placement) = (staged(&state), Placement::default());
    let stamp = own.stamp.clone().unwrap();
    let limit = Duration::from_secs(1);
    let refused = [
        lab.stamp(&other, &stamp, &none).await,
        lab.import_template(state.path(), "digest", Some(&own), &placement, &none).await.map(drop),
        replace(&lab, &own, ("new", &stamp), &image, 0).await.map(drop),
        lab.set_properties(&own, &BTreeMap::new(), &none).await,
        lab.power_on(&own, &none).await,
        lab.shut_down(&own, limit, &none).await.map(drop),
        lab.cut_power(&own, &none).await,
        lab.connect(&own, ADAPTER, false, &none).await,
        lab.detach(&own, &disk, &none).await,
        lab.attach(&own, &disk, &none).await,
        lab.copy_disk(&disk, "before", &[], &none).await.map(drop),
        lab.delete_disk(&disk, &none).await,
        lab.destroy(&own, &none).await,
    ];
    for (number, refused) in refused.into_iter().enumerate() {
        assert_eq!(refused.unwrap_err().kind, ErrorKind::Fenced, "call {number}");
    }
    assert_eq!(records(&lab), before);
    // With the fence, the same calls make their changes.
    lab.stamp(&other, &stamp, &Times::of(1)).await.unwrap();
    lab.connect(&own, ADAPTER, false, &Times::of(1)).await.unwrap();
    assert_ne!(records(&lab), before);
}

#[tokio::test]
async fn an_interrupted_import_leaves_a_stamped_vm() {
    let (state, lab) = lab();
    let own = lab.vms().await.unwrap().remove(0);
    let image = staged(&state);
    let stamp = Stamp { swap: Some(Uuid::from_u128(2)), ..own.stamp.clone().unwrap() };
    let import = async |times: usize| replace(&lab, &own, ("new", &stamp), &image, times).await.unwrap_err().kind;
    assert_eq!(import(1).await, ErrorKind::Fenced);
    assert_eq!(lab.vms().await.unwrap().len(), 1, "it was not made");
    assert_eq!(import(2).await, ErrorKind::Fenced);
    let made = lab.vms().await.unwrap().into_iter().find(|vm| vm.stamp.as_ref() == Some(&stamp)).unwrap();
    assert_eq!(made.uuid(), Uuid::from_u128(9), "the one that its maker has noted");
    assert!(!lab.0.directory.environment(&made.name).exists(), "nothing was given to it");
}

#[tokio::test]
async fn a_replacement_of_the_longest_name_has_room() {
    let (state, lab) = lab();
    let own = lab.vms().await.unwrap().remove(0);
    let image = staged(&state);
    let stamp = Stamp { swap: Some(Uuid::from_u128(2)), ..own.stamp.clone().unwrap() };
    let longest = format!("{}-abcdef1", "a".repeat(LONGEST_VM));
    // The fence fails before the VM is complete.
    let import = async |name: &str| replace(&lab, &own, (name, &stamp), &image, 2).await.unwrap_err().kind;
    assert_eq!(import(&format!("{longest}x")).await, ErrorKind::Refused);
    assert_eq!(lab.vms().await.unwrap().len(), 1, "one was made");
    assert_eq!(import(&longest).await, ErrorKind::Fenced);
    assert!(lab.vms().await.unwrap().iter().any(|vm| vm.name == longest));
}

#[tokio::test]
async fn workers_are_a_separate_deployment() {
    let (state, control) = lab();
    let workers = LabHypervisor::of_workers(Arc::clone(&control.0), "workers");
    assert_eq!(workers.vms().await.unwrap(), [], "control nodes are no workers");
    let beside = control.vms().await.unwrap().remove(0);
    let (image, placement) = (staged(&state), Placement::default());
    let size = fleet::hypervisor::Size { processors: 2, memory: 1024, data_disk: None };
    let stamp = Stamp { deployment: workers.deployment(), node: "x-w1".to_owned(), swap: Some(Uuid::from_u128(3)) };
    let add = async |properties: &[(&str, &str)], times: usize| {
        let properties = properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let (image, networks, size, properties) = (&image, Networks::Of(&beside), &size, &properties);
        let request = CloneRequest {
            name: "x-w1",
            uuid: Uuid::new_v4(),
            image,
            settings: CloneSettings::Given { networks, size, properties },
            stamp: stamp.clone(),
            placement: &placement,
        };
        workers.clone_vm(&request, &Times::of(times)).await.unwrap_err().kind
    };
    assert_eq!(add(&[("no-such-key", "x")], 9).await, ErrorKind::Refused);
    assert_eq!(add(&[], 0).await, ErrorKind::Fenced);
    assert_eq!(workers.vms().await.unwrap(), [], "one was made");
    // The fence fails in the middle: an incomplete VM remains, with its stamp.
    assert_eq!(add(&[], 2).await, ErrorKind::Fenced);
    let half = workers.vms().await.unwrap().remove(0);
    assert_eq!((half.stamp.as_ref(), half.name.as_str()), (Some(&stamp), "x-w1"));
    assert_eq!(control.vms().await.unwrap().len(), 1);
    // Neither deployment changes VMs of the other.
    assert_eq!(control.destroy(&half, &Times::of(9)).await.unwrap_err().kind, ErrorKind::Refused);
    let disk = control.0.disk_reference(Uuid::from_u128(1));
    assert_eq!(workers.detach(&beside, &disk, &Times::of(9)).await.unwrap_err().kind, ErrorKind::Refused);
}

#[tokio::test]
async fn a_missing_or_changed_image_is_not_imported() {
    let (state, lab) = lab();
    let own = lab.vms().await.unwrap().remove(0);
    let stamp = own.stamp.clone().unwrap();
    let import = async |image: &ImageTemplate| replace(&lab, &own, ("new", &stamp), image, 9).await.unwrap_err().kind;
    let image = staged(&state);
    assert_eq!(import(&ImageTemplate { digest: "another".to_owned(), ..image.clone() }).await, ErrorKind::Refused);
    fs::remove_dir_all(&image.reference).unwrap();
    assert_eq!(import(&image).await, ErrorKind::NotFound);
}

#[tokio::test]
async fn refused_properties_change_nothing() {
    let (state, lab) = lab();
    let own = async || lab.vms().await.unwrap().remove(0);
    let before = records(&lab);
    let give = async |properties: &[(&str, &str)]| {
        let properties = properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        lab.set_properties(&own().await, &properties, &Times::of(9)).await.unwrap_err()
    };
    let refused = give(&[("no-such-key", "x")]).await;
    assert!(refused.kind == ErrorKind::Refused, "{refused}");
    assert!(refused.to_string().contains("\"no-such-key\" does not exist"), "{refused}");
    fs::rename(state.path().join("tree"), state.path().join("elsewhere")).unwrap();
    assert_eq!(give(&[]).await.kind, ErrorKind::Refused, "its image is gone");
    fs::rename(state.path().join("elsewhere"), state.path().join("tree")).unwrap();
    assert_eq!(records(&lab), before);
    // A change that fails later may have happened: no program can write the CD-ROM.
    assert_eq!(give(&[]).await.kind, ErrorKind::InDoubt);
    let mut record = lab.0.directory.load_vm("cp1").unwrap();
    record.unconfigured = vec!["Node name".to_owned()];
    lab.0.directory.save_vm(&record).unwrap();
    let refused = lab.power_on(&own().await, &Times::of(9)).await.unwrap_err();
    assert!(refused.kind == ErrorKind::Refused && refused.to_string().contains("Node name"), "{refused}");
}

#[tokio::test]
async fn a_lab_refuses_other_placements() {
    let (_state, lab) = lab();
    let placement = Placement { datastore: Some("fast".to_owned()), ..Placement::default() };
    let refused = lab.0.has_place(&placement).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Refused);
    assert_eq!(refused.to_string(), "the lab x has one place for its VMs: it cannot put any on the datastore fast");
    lab.0.has_place(&Placement::default()).unwrap();
}

#[tokio::test]
async fn an_interrupted_start_ends_under_the_fence() {
    let (_state, lab) = lab();
    let mut record = lab.0.directory.load_vm("cp1").unwrap();
    record.engine = EngineRecord::Qemu { kvm: false, hardware: QemuHardware::Quick };
    lab.0.directory.save_vm(&record).unwrap();
    // An interrupted command leaves a process that is in no record.
    let argument = control_argument(&lab.0.directory.vm("cp1").join("qmp"));
    let mut left = Command::new("sh").args(["-c", "read line", &argument]).stdin(Stdio::piped()).spawn().unwrap();
    // A process that was just started has no command line for a moment.
    while fs::read(format!("/proc/{}/cmdline", left.id())).unwrap().is_empty() {
        thread::yield_now();
    }
    let power = async || lab.vms().await.unwrap().remove(0).power;
    assert_eq!(power().await, PowerState::Unknown);
    assert_eq!(lab.settle(&Times::of(0)).await.unwrap_err().kind, ErrorKind::Fenced);
    assert_eq!((power().await, left.try_wait().unwrap()), (PowerState::Unknown, None), "a look changes nothing");
    lab.settle(&Times::of(1)).await.unwrap();
    assert!(!left.wait().unwrap().success());
    assert_eq!(power().await, PowerState::Off);
    lab.settle(&Times::of(0)).await.unwrap();
}
