//! New VMs of a vCenter that drops parts of the request.

use serde_json::json;

use super::*;
use crate::vcenter::{Clones, Site};

const PARTS: [(&str, &str); 4] = [
    ("vapp", "the OVF property node-name"),
    ("uuid", "the BIOS UUID"),
    ("extra", "the entry kaas.stamp of extraConfig"),
    ("devices", "a disk"),
];

#[tokio::test]
async fn clone_gets_dropped_parts_before_power_on() {
    for clones in [Clones::Linked, Clones::Full] {
        let bed = Bed::start(&[]);
        let hypervisor = bed.hypervisor_of(DEPLOYMENT, &Site { clones, ..bed.site() }).await;
        let image = hypervisor.lay(&ova()).await;
        bed.count_anew().await;
        let whole = hypervisor.added("whole", &image).await;
        assert_eq!(bed.count("ReconfigVM_Task").await, 0, "a whole clone is not changed");
        for (part, _) in PARTS.into_iter().chain([("all", "")]) {
            let drops: Vec<&str> =
                PARTS.iter().map(|(one, _)| *one).filter(|one| part == "all" || *one == part).collect();
            bed.switch(json!({ "clone_drops": drops })).await;
            bed.count_anew().await;
            // It has its BIOS UUID.
            let vm = hypervisor.added(part, &image).await;
            assert_eq!(bed.count("ReconfigVM_Task").await, 1, "{part}");
            assert_eq!(vm.stamp, Some(stamp(part, None)), "{part}");
            assert_eq!(vm.disks.len(), whole.disks.len(), "{part}");
            hypervisor.power_on(&vm, &Free).await.unwrap();
            let told = bed.machine(part).await.unwrap().guestinfo["ovfEnv"].clone();
            assert!(told.contains(&format!("\"{part}\"")) && told.contains("a &lt;secret&gt; &amp; more"), "{told}");
            let name = bed.client().await.vm(&vsphere::MoRef::vm(&vm.reference.id)).await.unwrap().properties;
            let name = name.into_iter().find(|property| property.name() == "node-name").unwrap();
            assert!(name.is_configurable, "{part}: the next swap takes it over");
        }
        bed.switch(json!({ "clone_drops": ["uuid", "extra", "vapp"] })).await;
        let new = hypervisor.replaced(&whole, "whole-new", &image).await.unwrap();
        assert_eq!(hypervisor.of_uuid(new).await.stamp, Some(stamp("whole", Some(7))));
    }
}

#[tokio::test]
async fn clone_that_still_differs_is_refused_by_part() {
    let (bed, hypervisor) = started().await;
    let image = hypervisor.lay(&ova()).await;
    for (part, name) in PARTS {
        bed.switch(json!({ "clone_drops": [part], "reconfigure_drops": [part] })).await;
        // The incomplete VM exists.
        let refused = hypervisor.try_add(part, &image).await.unwrap_err();
        says(&refused, ErrorKind::InDoubt, &format!("the new VM {part} differs in {name}"));
        assert_eq!(bed.machine(part).await.unwrap().power, "poweredOff");
    }
}

#[tokio::test]
async fn import_gets_dropped_parts() {
    let bed = Bed::start(&[]);
    bed.switch(json!({ "import_drops": ["uuid", "extra"] })).await;
    let (hypervisor, ova) = (bed.hypervisor().await, ova());
    let image = hypervisor.lay(&ova).await;
    bed.switch(json!({ "import_drops": [] })).await;
    assert_eq!(hypervisor.find_template(&ova.digest, None, &Placement::default()).await.unwrap(), Some(image.clone()));
    hypervisor.added("cp1", &image).await;
}
