//! The first VMs of an empty lab, and disks that no VM holds.

use std::path::Path;

use super::*;

const BLANK: fleet::hypervisor::Size =
    fleet::hypervisor::Size { processors: 2, memory: 2048, data_disk: Some(1 << 20) };

/// The UUID that the caller has recorded before.
const DRAWN: Uuid = Uuid::from_u128(0xd1);

/// A lab without VMs.
fn empty() -> (TempDir, LabHypervisor) {
    let state = tempfile::tempdir().unwrap();
    let lab = fixture::lab(state.path(), 1, fixture::source(&state.path().join("tree")));
    (state, LabHypervisor::new(Arc::new(lab)))
}

/// Asks for a first VM, with a fence that holds for this number of calls.
async fn add(state: &TempDir, lab: &LabHypervisor, name: &str, network: &str, times: usize) -> ErrorKind {
    let (image, placement, networks) = (staged(state), Placement::default(), [network.to_owned()]);
    let addition = Addition {
        name,
        uuid: Some(DRAWN),
        image: &image,
        networks: Networks::Named(&networks),
        size: &BLANK,
        properties: &BTreeMap::new(),
        stamp: Stamp { deployment: lab.deployment(), node: "cp1".to_owned(), swap: None },
        placement: &placement,
    };
    lab.add(&addition, &Times::of(times)).await.unwrap_err().kind
}

#[tokio::test]
async fn the_first_vm_is_created_once_and_stamped() {
    let (state, lab) = empty();
    assert_eq!(lab.vms().await.unwrap(), []);
    assert_eq!(add(&state, &lab, "cp1", "another", 9).await, ErrorKind::Refused);
    assert_eq!(add(&state, &lab, "cp1", "x", 0).await, ErrorKind::Fenced);
    assert_eq!(lab.vms().await.unwrap(), [], "one was made");
    assert_eq!(add(&state, &lab, "cp1", "x", 2).await, ErrorKind::Fenced);
    let half = lab.vms().await.unwrap().remove(0);
    assert_eq!(half.stamp, Some(Stamp { deployment: lab.deployment(), node: "cp1".to_owned(), swap: None }));
    assert_eq!((half.name.as_str(), half.power, half.uuid()), ("cp1", PowerState::Off, DRAWN));
    assert_eq!(records(&lab)[0].engine, lab.0.engine());
    // The stamp identifies it, whatever its name is.
    assert_eq!(add(&state, &lab, "other", "x", 9).await, ErrorKind::Refused);
    assert_eq!(lab.vms().await.unwrap(), [half]);
}

#[tokio::test]
async fn template_calls_work_without_vms() {
    let (_state, lab) = empty();
    let none = Times::of(0);
    let (ova, placement) = (Path::new("none.ova"), Placement::default());
    assert_eq!(lab.import_template(ova, "digest", None, &placement, &none).await.unwrap_err().kind, ErrorKind::Fenced);
    assert_eq!(lab.find_template("no-such-digest", None, &placement).await.unwrap(), None);
}

#[tokio::test]
async fn only_an_unattached_disk_is_removed() {
    let (_state, lab) = lab();
    fs::create_dir_all(lab.0.directory.path().join("disks")).unwrap();
    let [held, free] = [(); 2].map(|()| lab.0.disk_reference(lab.0.create_disk(1 << 20).unwrap()));
    let mut record = lab.0.directory.load_vm("unstamped").unwrap();
    record.disks.push(held.uuid);
    lab.0.directory.save_vm(&record).unwrap();
    let delete = async |disk: &DiskRef| lab.delete_disk(disk, &Times::of(1)).await;
    assert_eq!(delete(&held).await.unwrap_err().kind, ErrorKind::Refused);
    let elsewhere = DiskRef { path: held.path.clone(), ..free.clone() };
    assert_eq!(delete(&elsewhere).await.unwrap_err().kind, ErrorKind::NotFound);
    assert!(lab.has_disk(&free).await.unwrap() && lab.has_disk(&held).await.unwrap());
    assert!(!lab.has_disk(&elsewhere).await.unwrap());
    delete(&free).await.unwrap();
    assert!(!lab.has_disk(&free).await.unwrap());
    assert_eq!(delete(&free).await.unwrap_err().kind, ErrorKind::NotFound);
    assert!(Path::new(&held.path).exists() && !Path::new(&free.path).exists());
}

#[tokio::test]
async fn an_unattached_disk_is_copied_to_another() {
    let (_state, lab) = lab();
    fs::create_dir_all(lab.0.directory.path().join("disks")).unwrap();
    let disk = lab.0.disk_reference(lab.0.create_disk(1 << 20).unwrap());
    let copy = async |mark: &str| lab.copy_disk(&disk, mark, &[], &Times::of(1)).await;
    let made = copy("before-1").await.unwrap();
    assert_eq!(made.path, lab.copy_path(&disk, "before-1"));
    assert!(made.uuid != disk.uuid && lab.has_disk(&made).await.unwrap());
    assert_eq!(fs::metadata(&made.path).unwrap().len(), 1 << 20);
    // A repeated copy replaces the first one. The copy of another swap does not.
    fs::write(&disk.path, "later").unwrap();
    assert_eq!(copy("before-1").await.unwrap(), made);
    assert_eq!(fs::read(&made.path).unwrap(), b"later");
    assert_ne!(copy("before-2").await.unwrap().uuid, made.uuid);
    lab.delete_disk(&made, &Times::of(1)).await.unwrap();
    assert!(!Path::new(&made.path).exists() && Path::new(&disk.path).exists());
    let gone = DiskRef { uuid: Uuid::from_u128(7), ..disk.clone() };
    assert_eq!(lab.copy_disk(&gone, "before-1", &[], &Times::of(1)).await.unwrap_err().kind, ErrorKind::NotFound);
    let mut record = lab.0.directory.load_vm("unstamped").unwrap();
    record.disks.push(disk.uuid);
    lab.0.directory.save_vm(&record).unwrap();
    assert_eq!(copy("before-1").await.unwrap_err().kind, ErrorKind::Refused);
}
