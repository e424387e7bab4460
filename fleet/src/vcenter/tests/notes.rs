//! Notes of imports that others have made too long or too many.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use super::*;
use crate::vcenter::template_catalog::{LONGEST, MOST_BYTES};

const NOTES: &str = "[LocalDS_0] kaas/control/images";

#[tokio::test]
async fn notes_beyond_the_limits_are_ignored() {
    let (bed, hypervisor, ova) = with_ova().await;
    let image = hypervisor.lay(&ova).await;
    let staged = async || hypervisor.find_template(&ova.digest, None, &Placement::default()).await.unwrap();
    let template = bed.machines().await.into_iter().find(|machine| machine.template).unwrap().name;
    let note = bed.file(&format!("{NOTES}/{template}.sealed.json"));
    let text = fs::read_to_string(&note).unwrap();
    assert_eq!(staged().await, Some(image.clone()));
    fs::write(&note, format!("{text}{}", " ".repeat(LONGEST))).unwrap();
    assert_eq!(staged().await, None);
    fs::write(&note, &text).unwrap();
    assert_eq!(staged().await, Some(image.clone()));

    // Their names come first, and they are newer.
    let write = |name: &str, days: u64, count: usize, text: &str| {
        let changed = SystemTime::now() + Duration::from_secs(days * 24 * 60 * 60);
        for number in 0..count {
            let path = bed.file(&format!("{NOTES}/{name}-{number}.begun.json"));
            fs::write(&path, text).unwrap();
            File::options().write(true).open(&path).unwrap().set_modified(changed).unwrap();
        }
    };
    write("a", 1, 250, "{}");
    assert_eq!(hypervisor.laid.all().await.unwrap().len(), 1);
    assert_eq!(hypervisor.image(&image).await.unwrap().note.name, template);
    hypervisor.settle(&Free).await.unwrap();
    let most = MOST_BYTES / LONGEST;
    write("b", 2, most + 20, &" ".repeat(LONGEST));
    bed.count_anew().await;
    assert_eq!(hypervisor.laid.all().await.unwrap(), []);
    let read = usize::try_from(bed.count("Datastore").await).unwrap();
    assert!(read <= most, "{read} files were read");
    // A node is still created from its image, and commands wait only for the account's own clones.
    hypervisor.try_add("cp1", &image).await.unwrap();
    hypervisor.settle(&Free).await.unwrap();
    bed.delay_unanswered("CloneVM_Task", 60_000).await;
    assert_eq!(hypervisor.try_add("cp2", &image).await.unwrap_err().kind, ErrorKind::InDoubt);
    let successor = bed.hypervisor().await;
    let error = successor.settling_within(Duration::from_millis(200)).settle(&Free).await.unwrap_err();
    says(&error, ErrorKind::Transient, "VirtualMachine.clone");
    bed.spoil_nothing().await;
    hypervisor.settle(&Free).await.unwrap();
    assert_eq!(hypervisor.vms().await.unwrap().len(), 2);
}
