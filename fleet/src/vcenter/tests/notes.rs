//! Notes of what was laid ready that somebody has made long, or many of.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use super::*;
use crate::vcenter::laid::{LONGEST, MOST};

const NOTES: &str = "[LocalDS_0] kaas/control/images";

#[tokio::test]
async fn notes_that_are_too_long_or_too_many_are_passed_over() {
    let bed = Bed::start(&[]);
    let (hypervisor, ova) = (bed.hypervisor().await, ova());
    let image = hypervisor.lay(&ova).await;
    let staged = async || hypervisor.staged(&ova.digest, None, &Placement::default()).await.unwrap();
    let template = bed.machines().await.into_iter().find(|machine| machine.template).unwrap().name;
    let note = bed.file(&format!("{NOTES}/{template}.sealed.json"));
    let text = fs::read_to_string(&note).unwrap();
    assert_eq!(staged().await, Some(image.clone()));
    fs::write(&note, format!("{text}{}", " ".repeat(LONGEST))).unwrap();
    assert_eq!(staged().await, None);
    fs::write(&note, &text).unwrap();
    assert_eq!(staged().await, Some(image.clone()));

    // By their names they all come before it.
    let yesterday = SystemTime::now() - Duration::from_secs(24 * 60 * 60);
    for number in 0..MOST + 50 {
        let path = bed.file(&format!("{NOTES}/a-{number}.begun.json"));
        fs::write(&path, "{}").unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(yesterday).unwrap();
    }
    bed.count_anew().await;
    hypervisor.try_add("cp1", &image).await.unwrap();
    let read = usize::try_from(bed.count("Datastore").await).unwrap();
    assert!(read <= MOST, "{read} files were read");
}
