//! `storage-policy`.

use serde_json::json;
use testbed::{ADMINISTRATOR, IN_ROLE, LOOKER, Machine};

use super::bed::Bed;
use super::says;

/// The commented-out key of the example.
const NAMED: &str = "storage-policy = \"vSAN Default Storage Policy\"";

#[test]
fn new_vms_have_the_policy_that_must_exist() {
    let bed = Bed::start(&[]);
    bed.make_folder("control");
    let user = |name: &str| format!("user = \"{name}\"");
    let by = |name: &str, policy: &str| {
        bed.described(&[(&user(ADMINISTRATOR), &user(name)), (&format!("# {NAMED}"), policy)])
    };
    let told = says(1, &["control", "create", "--dry-run"], &by(IN_ROLE, "storage-policy = \"gold\""));
    let missing = "storage-policy: there is no storage policy gold, or the account cannot see it; there are ";
    assert!(told.contains(missing) && told.contains("vSAN Default Storage Policy"), "{told}");
    let told = says(1, &["control", "create", "--dry-run"], &by(LOOKER, NAMED));
    assert!(told.contains("StorageProfile.View (finding a storage policy by its name)"), "{told}");

    let file = by(IN_ROLE, NAMED);
    let plan = says(0, &["control", "create", "--dry-run"], &file);
    assert!(plan.contains("the storage policy vSAN Default Storage Policy"), "{plan}");
    says(3, &["control", "create", "--timeout", "1s"], &file);
    for node in ["cp1", "cp2", "cp3"] {
        let Machine { policy, policies, disks, .. } = bed.vsphere(async |_| bed.machine(node).await.expect("a VM"));
        assert!(!policy.is_empty(), "{node}");
        let with_policies: Vec<_> = disks.keys().map(|disk| policies.get(disk)).collect();
        assert_eq!(with_policies, [Some(&policy), Some(&policy)], "{node}");
    }
    // Deployments without new VMs must not need vCenter's policy service.
    let fails = json!({ "fault": "SystemError", "times": -1 });
    bed.vsphere(async |_| bed.spoil("PbmQueryProfile", "fault", fails).await);
    says(0, &["control", "create", "--dry-run"], &file);
    bed.goes_on();
    // A look at existing VMs needs no policy: it may have been renamed.
    let renamed = by(IN_ROLE, "storage-policy = \"gold\"");
    assert!(says(3, &["control", "status"], &renamed).contains("has not formed yet"));
}
