//! Templates that others create, change or remove: none of these becomes a node, and no foreign object is removed.

use serde_json::json;
use vsphere::{ConfigSpec, MoRef, Unguarded};

use super::others::{by_hand, full_clone};
use super::*;
use crate::vcenter::image::Image;
use crate::vcenter::template_catalog::Note;
use crate::vcenter::{Clones, Library, Site};

async fn staged(hypervisor: &VcenterHypervisor, ova: &Ova) -> Option<ImageTemplate> {
    hypervisor.find_template(&ova.digest, None, &Placement::default()).await.unwrap()
}

/// Makes a template of a VM, as this program does.
async fn as_template(client: &vsphere::Client, vm: &MoRef) {
    client.changes(&Unguarded).create_snapshot(vm, "kaas", "").await.unwrap();
    client.changes(&Unguarded).mark_as_template(vm).await.unwrap();
}

/// The data disk of a VM that was imported by hand.
async fn data_disk(client: &vsphere::Client, vm: &MoRef) -> vsphere::Disk {
    let disks = client.vm(vm).await.unwrap().devices.disks;
    disks.into_iter().find(|disk| disk.unit == 1).expect("a data disk")
}

/// A change of a VM or a template by another user.
async fn change(client: &vsphere::Client, vm: &MoRef, spec: &ConfigSpec) {
    client.changes(&Unguarded).reconfigure(vm, spec).await.unwrap();
}

/// Changes a template as a user of vSphere Client can: as a VM. Of a template, vCenter changes only the name and the
/// notes.
async fn change_template(bed: &Bed, client: &vsphere::Client, template: &MoRef, spec: &ConfigSpec) {
    let path = format!("/DC0/vm/control/{}", client.vm(template).await.unwrap().name);
    bed.govc(&["vm.markasvm", "-pool", "/DC0/host/DC0_C0/Resources", &path]);
    change(client, template, spec).await;
    client.changes(&Unguarded).mark_as_template(template).await.unwrap();
}

#[tokio::test]
async fn template_of_others_is_not_used() {
    let (bed, hypervisor, ova, client) = with_client().await;
    let other = ova_with(vec![("kaas.test".to_owned(), "another image".to_owned())]);
    // It is first by name, and has all entries of an own template.
    let planted = by_hand(&client, &other, "kaas-image-0", "control").await;
    let says =
        ConfigSpec::new().extra("kaas.image", &ova.digest).extra("kaas.laid-by", &format!("{DEPLOYMENT} kaas-image-0"));
    change(&client, &planted, &says).await;
    let data = data_disk(&client, &planted).await;
    change(&client, &planted, &ConfigSpec::new().detach(&data)).await;
    as_template(&client, &planted).await;
    assert_eq!(staged(&hypervisor, &ova).await, None);
    let image = hypervisor.lay(&ova).await;
    assert_ne!(image.reference, planted.id);
    assert_eq!(staged(&hypervisor, &ova).await, Some(image.clone()));
    // An explicit reference does not help either.
    let named = ImageTemplate { reference: planted.id.clone(), ..image.clone() };
    assert_eq!(hypervisor.try_add("cp1", &named).await.unwrap_err().kind, ErrorKind::NotFound);
    // Another deployment's template is not used either.
    let another = bed.hypervisor_of(Uuid::from_u128(0xee), &bed.site()).await;
    assert_eq!(staged(&another, &ova).await, None);
    let ours = hypervisor.laid_ready().await.unwrap();
    assert_eq!((ours.len(), ours.contains(&"kaas-image-0".to_owned())), (1, false), "{ours:?}");
    assert!(another.laid_ready().await.unwrap().is_empty());
    let theirs = another.lay(&ova).await;
    assert_eq!(hypervisor.laid_ready().await.unwrap(), ours);
    assert_ne!(theirs, image);
    assert_eq!(hypervisor.lay(&ova).await, image);
    assert_eq!(hypervisor.try_add("cp1", &theirs).await.unwrap_err().kind, ErrorKind::NotFound);
    assert!(bed.machine("kaas-image-0").await.is_some());
}

#[tokio::test]
async fn changed_template_is_not_used() {
    let (bed, hypervisor, ova, client) = with_client().await;
    let mut last = hypervisor.lay(&ova).await;
    for what in ["once", "again", "a third time"] {
        assert_eq!(staged(&hypervisor, &ova).await.as_ref(), Some(&last), "{what}");
        let template = MoRef::vm(&last.reference);
        client.changes(&Unguarded).create_snapshot(&template, what, "").await.unwrap();
        assert_eq!(staged(&hypervisor, &ova).await, None, "{what}");
        let refused = hypervisor.try_add("cp1", &last).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Changed, "{what}: {refused}");
        if what == "a third time" {
            // Others cannot make it fill the datastore.
            let error = hypervisor.import(&ova, &Free).await.unwrap_err();
            says(&error, ErrorKind::Transient, "3 templates that this deployment has imported are not as");
            client.changes(&Unguarded).unregister(&template).await.unwrap();
        }
        let next = hypervisor.lay(&ova).await;
        assert_ne!(next, last, "{what}");
        last = next;
    }
    // Those are now another user's concern: VMs may be linked to them.
    let left = bed.machines().await.into_iter().filter(|machine| machine.name.starts_with("kaas-image-")).count();
    assert_eq!(left, 3);
    hypervisor.added("cp1", &last).await;
    assert_eq!(staged(&hypervisor, &ova).await, Some(last), "what a VM was made from is still as it was");
}

#[tokio::test]
async fn image_with_lost_answer_is_imported_once() {
    let (bed, hypervisor, ova) = with_ova().await;
    bed.count_anew().await;
    bed.spoil("MarkAsTemplate", "lose-answer", json!({})).await;
    let image = hypervisor.lay(&ova).await;
    assert!(bed.has_spoilt().await);
    assert_eq!((bed.count("ImportVApp").await, bed.count("MarkAsTemplate").await), (1, 1));
    assert_eq!(staged(&hypervisor, &ova).await, Some(image));
}

#[tokio::test]
async fn clone_sets_each_property_explicitly() {
    let (bed, _, vm) = with_vm().await;
    let client = bed.client().await;
    let form = client.vm(&MoRef::vm(&vm.reference.id)).await.unwrap().properties;
    let configurable: Vec<_> = form.iter().filter(|property| property.is_configurable).collect();
    assert!(configurable.iter().any(|property| !properties("cp1").contains_key(&property.name())), "{form:?}");
    for property in configurable {
        assert!(property.is_given || property.value.is_empty(), "{property:?} is left to the template");
    }
}

#[tokio::test]
async fn only_noted_incomplete_templates_are_removed() {
    let (bed, hypervisor, ova, client) = with_client().await;
    // A user's VM that looks like an incomplete template, by all entries that can be written into it.
    let theirs = by_hand(&client, &ova, "payroll", "control").await;
    let data = data_disk(&client, &theirs).await;
    let says =
        ConfigSpec::new().extra("kaas.image", &ova.digest).extra("kaas.laid-by", &format!("{DEPLOYMENT} payroll"));
    change(&client, &theirs, &says.detach(&data)).await;
    let before = bed.machine("payroll").await;
    // Our import is interrupted after all bytes, and a user takes the VM for another purpose.
    let few = Few(AtomicUsize::new(7));
    assert_eq!(hypervisor.import(&ova, &few).await.unwrap_err().kind, ErrorKind::Fenced);
    let is_half = |machine: &bed::Machine| machine.name.starts_with("kaas-image-");
    let half = bed.machines().await.into_iter().find(is_half).expect("half of a template");
    change(&client, &MoRef::vm(&half.object), &ConfigSpec::new().name("taken")).await;
    let image = hypervisor.lay(&ova).await;
    assert_eq!(bed.machine("payroll").await, before);
    assert_eq!(bed.machine("taken").await.unwrap().object, half.object);
    assert_ne!(image.reference, half.object);
    // Another import is interrupted, and is as it was left.
    client.changes(&Unguarded).unregister(&MoRef::vm(&image.reference)).await.unwrap();
    let few = Few(AtomicUsize::new(7));
    assert_eq!(hypervisor.import(&ova, &few).await.unwrap_err().kind, ErrorKind::Fenced);
    let half = bed.machines().await.into_iter().find(is_half).expect("half of a template");
    hypervisor.lay(&ova).await;
    assert!(!bed.machines().await.iter().any(|machine| machine.object == half.object));
    assert_eq!(bed.machine("payroll").await, before);
}

#[tokio::test]
async fn hidden_incomplete_template_stays_noted_while_files_exist() {
    let (bed, hypervisor, ova, client) = with_client().await;
    for step in ["CreateSnapshot_Task", "MarkAsTemplate"] {
        bed.spoil(step, "fault", json!({ "fault": "NoPermission" })).await;
        let denied = hypervisor.import(&ova, &Free).await.unwrap_err();
        assert_eq!(denied.kind, ErrorKind::Denied, "{denied}");
        let half = bed.machines().await.into_iter().next().expect("half of a template");
        // The state of a hidden VM: its files exist, and no VM does.
        client.changes(&Unguarded).unregister(&MoRef::vm(&half.object)).await.unwrap();
        hypervisor.tidy(&ova.digest, &Free).await.unwrap();
        let notes = hypervisor.laid.all().await.unwrap();
        assert!(matches!(notes.as_slice(), [note] if note.name == half.name && note.is_denied), "{step}: {notes:?}");
        std::fs::remove_dir_all(bed.file(&format!("[LocalDS_0] {}", half.name))).unwrap();
        hypervisor.tidy(&ova.digest, &Free).await.unwrap();
        assert_eq!(hypervisor.laid.all().await.unwrap(), [], "{step}");
    }
}

#[tokio::test]
async fn clone_is_never_taken_for_an_incomplete_template() {
    let (bed, hypervisor, ova) = with_ova().await;
    let image = hypervisor.lay(&ova).await;
    // Off, in the folder of templates, with a data disk. And one that an operator has made of the template.
    let vm = hypervisor.added("cp1", &image).await;
    let client = bed.client().await;
    let pool = client.look(&client.find("DC0/host/DC0_C0").await.unwrap(), &["resourcePool"]).await.unwrap();
    let pool = pool.reference_at("resourcePool");
    let template = MoRef::vm(&image.reference);
    full_clone(&client, &template, "control/by-hand", pool.as_ref()).await.unwrap();
    let both = async || [bed.machine("cp1").await.unwrap(), bed.machine("by-hand").await.unwrap()];
    let before = both().await;
    let next = ova_with(vec![("kaas.test".to_owned(), "another image".to_owned())]);
    assert_ne!(hypervisor.lay(&next).await, image);
    assert_eq!(both().await, before);
    assert_eq!(hypervisor.again(&vm).await, vm);
    // Its template is gone: the image is imported again, and nothing else counts as one.
    client.changes(&vsphere::Unguarded).unregister(&template).await.unwrap();
    assert_eq!(staged(&hypervisor, &ova).await, None);
    hypervisor.lay(&ova).await;
    assert_eq!(both().await, before);
}

#[tokio::test]
async fn unreadable_template_blocks_no_other_template() {
    let (bed, hypervisor, ova) = with_ova().await;
    let image = hypervisor.lay(&ova).await;
    let [note]: [Note; 1] = hypervisor.laid.notes_of(&ova.digest).await.unwrap().try_into().unwrap();
    bed.count_anew().await;
    assert_eq!(staged(&hypervisor, &ova).await, Some(image.clone()));
    // The last look reads the first template by name.
    let looks = bed.count("RetrievePropertiesEx").await;
    let first = Note { name: note.name.replace(&note.name[note.name.len() - 8..], "00000000"), ..note.clone() };
    hypervisor.laid.seal(&first, note.seal.clone().unwrap(), &Free).await.unwrap();
    for fault in ["NoPermission", "NotSupported"] {
        bed.spoil("RetrievePropertiesEx", "fault", json!({ "fault": fault, "skip": looks - 1 })).await;
        assert_eq!(staged(&hypervisor, &ova).await, Some(image.clone()), "{fault}");
        assert!(bed.has_spoilt().await, "{fault}");
        bed.spoil_nothing().await;
    }
    // If none can be read, none is reported as missing, unless that lasts until a user grants a privilege again.
    for (fault, says) in [("NoPermission", Ok(None)), ("NotSupported", Err(()))] {
        bed.spoil("RetrievePropertiesEx", "fault", json!({ "fault": fault, "skip": looks - 1, "times": -1 })).await;
        let found = hypervisor.find_template(&ova.digest, None, &Placement::default()).await;
        assert_eq!(found.map_err(|error| assert!(error.to_string().contains(&first.name), "{error}")), says, "{fault}");
        bed.spoil_nothing().await;
    }
    // An import of another image looks at these two last.
    bed.count_anew().await;
    hypervisor.tidy("another image", &Free).await.unwrap();
    let looks = bed.count("RetrievePropertiesEx").await;
    for fault in ["NoPermission", "NotSupported"] {
        bed.spoil("RetrievePropertiesEx", "fault", json!({ "fault": fault, "skip": looks - 2, "times": -1 })).await;
        hypervisor.tidy("another image", &Free).await.unwrap();
        assert!(bed.has_spoilt().await, "{fault}");
        bed.spoil_nothing().await;
    }
}

#[tokio::test]
async fn clone_with_unexpected_parts_is_refused() {
    let bed = Bed::start(&[]);
    let site = Site { clones: Clones::Full, ..bed.site() };
    let (hypervisor, ova) = (bed.hypervisor_of(DEPLOYMENT, &site).await, ova());
    let staged = hypervisor.lay(&ova).await;
    let place = hypervisor.place(None, &Placement::default()).await.unwrap();
    let clone = async |image: &Image, name: &str, spec: &ConfigSpec| {
        hypervisor.clone_of(image, name, &place, Networks::Named(&[]), (spec, 0), &Free).await
    };
    let (looked_at, spec) = (hypervisor.image(&staged).await.unwrap(), ConfigSpec::new());
    assert!(!looked_at.template.devices.others.is_empty(), "the image has a CD drive");
    clone(&looked_at, "whole", &spec).await.unwrap();
    // The template that was read had no drive, fewer networks or no disk: each was added in between.
    type Change = fn(&mut vsphere::Vm);
    let changes: [(&str, Change); 5] = [
        ("a VirtualCdrom", |template| template.devices.others.clear()),
        ("network adapters", |template| template.devices.adapters.clear()),
        ("1 disks", |template| template.devices.disks.clear()),
        // Changed back since, so that the template does not show it.
        ("another boot order or firmware", |template| {
            template.boot.order = vec!["VirtualMachineBootOptionsBootableEthernetDevice".to_owned()]
        }),
        ("another boot order or firmware", |template| template.boot.is_secure = !template.boot.is_secure),
    ];
    for (number, (strange, change)) in changes.into_iter().enumerate() {
        let mut before = hypervisor.image(&staged).await.unwrap();
        change(&mut before.template);
        let refused = clone(&before, &format!("strange-{number}"), &spec).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::InDoubt, "{refused}");
        let words = refused.to_string();
        // A template without a disk is refused before that.
        assert!(words.contains(strange) || (number == 2 && words.contains("was changed while")), "{words}");
    }
    // A guest entry that the template does not have is refused too.
    let told = ConfigSpec::new().extra("guestinfo.told", "x");
    let refused = clone(&looked_at, "told", &told).await.unwrap_err();
    assert!(refused.to_string().contains("the entry guestinfo.told"), "{refused}");
}

#[tokio::test]
async fn full_clone_of_a_changed_template_is_refused() {
    let bed = Bed::start(&[]);
    bed.switch(json!({ "clones_change_their_source": true })).await;
    let site = Site { clones: Clones::Full, ..bed.site() };
    let (hypervisor, ova, client) = (bed.hypervisor_of(DEPLOYMENT, &site).await, ova(), bed.client().await);
    let staged = hypervisor.lay(&ova).await;
    let place = hypervisor.place(None, &Placement::default()).await.unwrap();
    let clone = async |image: &Image, name: &str| {
        hypervisor.clone_of(image, name, &place, Networks::Named(&[]), (&ConfigSpec::new(), 0), &Free).await
    };
    // A clone is no such change if the template was sealed with its settings.
    for name in ["one", "two"] {
        clone(&hypervisor.image(&staged).await.unwrap(), name).await.unwrap();
    }
    let looked_at = hypervisor.image(&staged).await.unwrap();
    change_template(&bed, &client, &MoRef::vm(&staged.reference), &ConfigSpec::new().memory(1 << 14)).await;
    let refused = clone(&looked_at, "three").await.unwrap_err();
    assert!(refused.to_string().contains("was changed while three was made from it"), "{refused}");
}

/// Permits everything, and makes one look fail after this many requests.
struct Spoiling<'a> {
    bed: &'a Bed,
    after: usize,
    asked: AtomicUsize,
}

#[async_trait]
impl Fence for Spoiling<'_> {
    async fn still(&self) -> Result<()> {
        if self.asked.fetch_add(1, Ordering::SeqCst) + 1 == self.after {
            // The two looks before find unchanged settings.
            let more = json!({ "fault": "HostCommunication", "skip": 2 });
            self.bed.spoil("RetrievePropertiesEx", "fault", more).await;
        }
        Ok(())
    }
}

#[tokio::test]
async fn temporary_faults_after_upload_do_not_waste_it() {
    let (bed, ova) = (Bed::start(&[]), ova());
    bed.hypervisor().await.lay(&ova).await;
    // The last written file is the seal.
    let files = bed.count("Datastore").await;
    for (method, what, more) in [
        ("CreateSnapshot_Task", "fault", json!({ "fault": "InsufficientResourcesFault", "times": 2 })),
        ("MarkAsTemplate", "fault", json!({ "fault": "InsufficientResourcesFault", "times": 2 })),
        ("Datastore", "status", json!({ "code": 503, "skip": files - 1, "times": 5 })),
    ] {
        let (bed, hypervisor) = started().await;
        bed.spoil(method, what, more).await;
        let image = hypervisor.lay(&ova).await;
        assert!(bed.has_spoilt().await, "{method}");
        assert_eq!(bed.count("ImportVApp").await, 1, "{method}");
        assert_eq!(staged(&hypervisor, &ova).await, Some(image), "{method}");
    }
}

#[tokio::test]
async fn unsealed_templates_do_not_fill_the_datastore() {
    let (bed, hypervisor) = started().await;
    let [first, second, third, fourth] =
        ["1", "2", "3", "4"].map(|number| ova_with(vec![("kaas.test".to_owned(), number.to_owned())]));
    hypervisor.lay(&first).await;
    let requests = hypervisor.requests_to_import(&second).await;
    // A failed look before the seal does not waste the upload.
    let permit = Spoiling { bed: &bed, after: requests - 1, asked: AtomicUsize::new(0) };
    hypervisor.import(&third, &permit).await.unwrap();
    assert!(bed.has_spoilt().await);
    bed.spoil_nothing().await;
    assert_eq!(hypervisor.laid.notes_of(&third.digest).await.unwrap().len(), 1);
    // Each is interrupted right before its seal.
    for number in 1..=3 {
        let error = hypervisor.import(&fourth, &Few(AtomicUsize::new(requests - 1))).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Fenced, "{error}");
        let notes = hypervisor.laid.notes_of(&fourth.digest).await.unwrap();
        assert_eq!((notes.len(), notes.iter().filter(|note| note.seal.is_none()).count()), (number, number));
    }
    let before = bed.machines().await;
    assert!(before.iter().filter(|machine| machine.name.starts_with("kaas-image-")).all(|machine| machine.template));
    let refused = hypervisor.import(&fourth, &Free).await.unwrap_err();
    says(&refused, ErrorKind::Transient, "3 templates that this deployment has imported are not as");
    assert_eq!(bed.machines().await, before);
    // Another image is imported, and this one again once an operator has removed one.
    hypervisor.lay(&first).await;
    let one = hypervisor.laid.notes_of(&fourth.digest).await.unwrap().remove(0);
    let found = before.iter().find(|machine| machine.name == one.name).unwrap();
    bed.client().await.changes(&Unguarded).unregister(&MoRef::vm(&found.object)).await.unwrap();
    hypervisor.lay(&fourth).await;
}

/// Permits everything until an import begins. Then another command has taken over.
struct UntilImport<'a>(&'a Bed);

#[async_trait]
impl Fence for UntilImport<'_> {
    async fn still(&self) -> Result<()> {
        match self.0.count("ImportVApp").await {
            0 => Ok(()),
            _ => Err(Error::new(ErrorKind::Fenced, anyhow::anyhow!("another command has taken over"))),
        }
    }
}

/// A hypervisor that does not wait for tasks.
async fn impatient(bed: &Bed) -> VcenterHypervisor {
    let settings = vsphere::Settings { patience: std::time::Duration::from_millis(50), ..Bed::settings() };
    bed.hypervisor_by(bed.limited(settings).await, DEPLOYMENT, &bed.site()).await
}

/// Interrupts an upload right after its import has begun.
async fn break_off(bed: &Bed, hypervisor: &VcenterHypervisor, ova: &Ova) {
    bed.count_anew().await;
    let broken = hypervisor.import(ova, &UntilImport(bed)).await.unwrap_err();
    assert_eq!(broken.kind, ErrorKind::Fenced, "{broken}");
}

#[tokio::test]
async fn interrupted_uploads_do_not_block_the_next_one() {
    let bed = Bed::start(&[]);
    let (hypervisor, ova) = (impatient(&bed).await, ova());
    for number in 1..=3 {
        break_off(&bed, &hypervisor, &ova).await;
        let halves = bed.machines().await.into_iter().filter(|machine| machine.name.starts_with("kaas-image-"));
        assert_eq!(halves.count(), number, "vCenter ends the lease of each five minutes after its last progress");
    }
    let image = hypervisor.lay(&ova).await;
    assert_eq!(staged(&hypervisor, &ova).await, Some(image));
}

#[tokio::test]
async fn too_many_interrupted_uploads_stop_further_ones() {
    let bed = Bed::start(&[]);
    let (hypervisor, ova) = (impatient(&bed).await, ova());
    for _ in 1..=6 {
        break_off(&bed, &hypervisor, &ova).await;
    }
    bed.count_anew().await;
    let refused = hypervisor.import(&ova, &Free).await.unwrap_err();
    assert_eq!((refused.kind, bed.count("ImportVApp").await), (ErrorKind::Transient, 0), "{refused}");
    let notes = hypervisor.laid.notes_of(&ova.digest).await.unwrap();
    let told = refused.to_string();
    assert!(told.contains("6 uploads of this image have broken off"), "{told}");
    assert!(notes.len() == 6 && notes.iter().all(|note| told.contains(&note.name)), "{told}");
    // Another image is imported.
    hypervisor.lay(&ova_with(vec![("kaas.test".to_owned(), "another image".to_owned())])).await;
    // All leases end with the vCenter's restart.
    let patient = bed.hypervisor().await;
    bed.restart(50).await;
    while let Err(error) = patient.vms().await {
        assert_eq!(error.kind, ErrorKind::Transient, "{error}");
    }
    let is_half = |machine: &bed::Machine| notes.iter().any(|note| note.name == machine.name);
    while bed.machines().await.iter().any(is_half) {
        tokio::task::yield_now().await;
    }
    let image = patient.lay(&ova).await;
    assert_eq!(staged(&patient, &ova).await, Some(image));
}

#[tokio::test]
async fn concurrent_clone_does_not_change_a_template() {
    let bed = Bed::start(&[]);
    bed.switch(json!({ "clones_change_their_source": true })).await;
    let (hypervisor, ova) = (bed.hypervisor().await, ova());
    let image = hypervisor.lay(&ova).await;
    hypervisor.added("cp1", &image).await;
    bed.count_anew().await;
    assert_eq!(staged(&hypervisor, &ova).await, Some(image.clone()));
    // The last look reads the settings.
    let looks = bed.count("RetrievePropertiesEx").await;
    bed.spoil("RetrievePropertiesEx", "delay", json!({ "milliseconds": 600_000, "skip": looks - 1 })).await;
    let another = async {
        while !bed.has_spoilt().await {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        hypervisor.added("cp2", &image).await;
        bed.spoil_nothing().await;
    };
    let (found, ()) = tokio::join!(staged(&hypervisor, &ova), another);
    assert_eq!(found, Some(image));
}

#[tokio::test]
async fn new_version_with_same_settings_is_unchanged() {
    let bed = Bed::start(&[]);
    // It is not certain whether vCenter counts a clone as a change of its source.
    bed.switch(json!({ "clones_change_their_source": true })).await;
    let (hypervisor, ova, client) = (bed.hypervisor().await, ova(), bed.client().await);
    let image = hypervisor.lay(&ova).await;
    let template = MoRef::vm(&image.reference);
    let version = async || client.vm(&template).await.unwrap().change_version;
    let before = version().await;
    for node in ["cp1", "cp2"] {
        hypervisor.added(node, &image).await;
        assert_eq!(hypervisor.lay(&ova).await, image, "{node}: it is not laid again for each node");
    }
    assert_ne!(version().await, before);
    // Other settings are a change. Yet templates with linked VMs do not fill the datastore.
    let [note]: [Note; 1] = hypervisor.laid.notes_of(&ova.digest).await.unwrap().try_into().unwrap();
    let seal = note.seal.clone().unwrap();
    for number in 0..3 {
        let name = format!("{}{number}", note.name);
        let mut other = seal.clone();
        other.parts.insert("hardware".to_owned(), "that of another one".to_owned());
        hypervisor.laid.seal(&Note { name, ..note.clone() }, other, &Free).await.unwrap();
    }
    hypervisor.tidy(&ova.digest, &Free).await.unwrap();
    for node in ["cp1", "cp2"] {
        let vm = hypervisor.vms().await.unwrap().into_iter().find(|vm| vm.name == node).unwrap();
        hypervisor.left_by(&vm).await;
    }
    assert_eq!(hypervisor.tidy(&ova.digest, &Free).await.unwrap_err().kind, ErrorKind::Transient);
}

#[tokio::test]
async fn rewritten_template_stays_and_changed_part_is_named() {
    for clones in [Clones::Linked, Clones::Full] {
        let bed = Bed::start(&[]);
        bed.switch(json!({ "rewrites_templates": true })).await;
        let site = Site { clones, ..bed.site() };
        let (hypervisor, ova, client) = (bed.hypervisor_of(DEPLOYMENT, &site).await, ova(), bed.client().await);
        let image = hypervisor.lay(&ova).await;
        for node in ["cp1", "cp2"] {
            hypervisor.added(node, &image).await;
            assert_eq!(staged(&hypervisor, &ova).await, Some(image.clone()), "{node}");
        }
        let [note]: [Note; 1] = hypervisor.laid.notes_of(&ova.digest).await.unwrap().try_into().unwrap();
        let seal = note.seal.clone().unwrap();
        let template = MoRef::vm(&image.reference);
        let config = async || hypervisor.config_of(&template).await.unwrap().1;
        assert!(seal.altered(&config().await).is_empty());
        change_template(&bed, &client, &template, &ConfigSpec::new().memory(1 << 14)).await;
        assert_eq!(seal.altered(&config().await), ["hardware"]);
        change_template(&bed, &client, &template, &ConfigSpec::new().extra("guestinfo.x", "y")).await;
        assert_eq!(seal.altered(&config().await), ["extraConfig", "hardware"]);
        let refused = hypervisor.try_add("cp3", &image).await.unwrap_err().to_string();
        assert!(refused.contains("its settings were changed (extraConfig, hardware)"), "{refused}");
    }
}

#[tokio::test]
async fn unreachable_host_of_upload_is_named() {
    let (bed, hypervisor, ova) = with_ova().await;
    bed.switch(json!({ "hosts_away": true })).await;
    hypervisor.preflight(&Placement::default()).await.expect("an upload is not always needed");
    let refused = hypervisor.import(&ova, &Free).await.unwrap_err();
    assert!(refused.to_string().contains("127.0.1."), "{refused}");
    bed.switch(json!({ "hosts_away": false })).await;
    hypervisor.lay(&ova).await;
    assert_eq!(bed.machines().await.len(), 1);
}

/// No host answers at the names in the inventory.
#[tokio::test]
async fn upload_goes_to_the_host_of_its_lease() {
    let bed = Bed::start(&[]);
    for number in 1..=3 {
        bed.rename(&format!("DC0/host/DC0_C0/127.0.1.{number}"), &format!("127.0.9.{number}")).await;
    }
    bed.hypervisor().await.lay(&ova()).await;
}

#[tokio::test]
async fn only_uploading_deployments_connect_to_hosts() {
    let bed = Bed::start(&[]);
    let (_, port) = bed.address().rsplit_once(':').unwrap();
    let host = std::net::TcpListener::bind(format!("127.0.9.1:{port}")).unwrap();
    host.set_nonblocking(true).unwrap();
    bed.rename("DC0/host/DC0_C0/127.0.1.1", "127.0.9.1").await;
    let uploads = bed.hypervisor().await;
    let library = Library { id: Uuid::from_u128(1), journal: journal_of(DEPLOYMENT) };
    let made = VcenterHypervisor::with_images_of(bed.client().await, Uuid::from_u128(2), &bed.site(), &library).await;
    made.unwrap().preflight(&Placement::default()).await.unwrap();
    assert!(host.accept().is_err());
    uploads.preflight(&Placement::default()).await.unwrap();
    host.accept().unwrap();
}
