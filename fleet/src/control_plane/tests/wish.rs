//! Which goals are accepted for a record.

use uuid::Uuid;

use super::fake::{DEPLOYMENT, DESTROY, DESTROY_ALL, vm, wanted};
use crate::control_plane::{DeploymentRecord, Goal, HeldDisk, Inventory, next};
use crate::hypervisor::{Disk, DiskKind, DiskRef, PowerState, Stamp, Vm};

/// A description was copied with another folder in it, or a datastore was renamed. The seen VMs are not those of the journal:
/// they must not be removed, and the others must not be taken for gone.
#[test]
fn a_journal_of_another_deployment_is_left_alone() {
    let other = Uuid::from_u128(0xbb);
    let wanted = wanted(1);
    let begun = Goal::Deploy(&wanted).applied(DEPLOYMENT, None, &[]).unwrap();
    assert_eq!(begun.deployment, Some(DEPLOYMENT));
    for wish in [Goal::Deploy(&wanted), DESTROY_ALL] {
        let refused = wish.applied(other, Some(begun.clone()), &[]).unwrap_err().to_string();
        assert!(refused.contains(&DEPLOYMENT.to_string()) && refused.contains(&other.to_string()), "{refused}");
        assert!(wish.applied(DEPLOYMENT, Some(begun.clone()), &[]).is_ok());
        // A journal of an earlier version belongs to the deployment that finds it.
        let noted = wish.applied(other, Some(DeploymentRecord { deployment: None, ..begun.clone() }), &[]).unwrap();
        assert_eq!(noted.deployment, Some(other));
    }
}

#[test]
fn each_command_must_name_a_vm_again() {
    let stamp = Stamp { deployment: DEPLOYMENT, node: "cp1".to_owned(), swap: None };
    let disk = |number: u128| {
        let reference = DiskRef { uuid: Uuid::from_u128(number), path: format!("[ds] {number}.vmdk") };
        Disk { reference, kind: DiskKind::Data, parent: None, controller: "c".to_owned() }
    };
    let with = |disks: Vec<Disk>| Vm { disks, ..vm("by hand", Uuid::from_u128(9), Some(stamp.clone())) };
    let also = |kept: DeploymentRecord, vm: &Vm| {
        let also = std::slice::from_ref(vm);
        let wish = Goal::Destroy { cluster: "control", disks: true, left: &[], doubtful: &[], held: &[], also };
        wish.applied(DEPLOYMENT, Some(kept), std::slice::from_ref(vm)).unwrap()
    };
    let waits = |kept: &DeploymentRecord, vm: &Vm| {
        let vms = vec![Vm { power: PowerState::On, ..vm.clone() }];
        let now = next(kept, &Inventory { vms, ..Inventory::default() });
        (now.actions.len(), now.waits.iter().map(|wait| wait.reason.code.clone()).collect::<Vec<_>>())
    };
    let begun = Goal::Deploy(&wanted(1)).applied(DEPLOYMENT, None, &[]).unwrap();
    let first = also(begun, &with(vec![disk(1)]));
    assert_eq!(waits(&first, &with(vec![disk(1)])), (1, vec![]));
    // That command has ended. The VM has been given another disk since, which was not shown.
    let changed = with(vec![disk(2)]);
    for wish in [DESTROY, DESTROY_ALL] {
        let plain = wish.applied(DEPLOYMENT, Some(first.clone()), std::slice::from_ref(&changed)).unwrap();
        assert_eq!(waits(&plain, &changed), (0, vec!["deploy.vm-unnoted".to_owned()]));
        let noted = plain.noting(&with(vec![disk(1)]), &disk(1).reference).unwrap();
        assert_eq!(noted.disks_to_delete.len(), usize::from(plain.removes_disks), "what was confirmed stays so");
        let noted = plain.noting(&changed, &disk(2).reference).unwrap();
        assert_eq!((noted.retained_disks.len(), noted.disks_to_delete.len()), (1, 0));
        let again = also(plain, &changed);
        assert_eq!(waits(&again, &changed), (1, vec![]));
        assert_eq!(again.adopted_vms[0].disks.len(), 2);
    }
}

/// All that the question shows of it counts: a VM that runs now is in use.
#[test]
fn a_changed_named_vm_stays() {
    let stamp = Stamp { deployment: DEPLOYMENT, node: "cp1".to_owned(), swap: None };
    let shown = vm("by hand", Uuid::from_u128(9), Some(stamp));
    let also = std::slice::from_ref(&shown);
    let wish = Goal::Destroy { cluster: "control", disks: true, left: &[], doubtful: &[], held: &[], also };
    assert!(wish.applied(DEPLOYMENT, None, also).is_ok());
    let on = Vm { power: PowerState::On, ..shown.clone() };
    let refused = wish.applied(DEPLOYMENT, None, &[on]).unwrap_err().to_string();
    assert!(refused.contains("is no longer as it was shown"), "{refused}");
}

#[test]
fn a_held_disk_stays_at_its_shown_place() {
    let disk = |path: &str| DiskRef { uuid: Uuid::from_u128(1), path: path.to_owned() };
    let begun = Goal::Deploy(&wanted(1)).applied(DEPLOYMENT, None, &[]).unwrap();
    let begun = DeploymentRecord { disks_to_delete: vec![disk("[ds] before.vmdk")], ..begun };
    let held = [HeldDisk { disk: disk("[ds] now.vmdk"), by: "a VM".to_owned() }];
    let wish = Goal::Destroy { cluster: "control", disks: true, left: &[], doubtful: &[], held: &held, also: &[] };
    let kept = wish.applied(DEPLOYMENT, Some(begun), &[]).unwrap();
    assert_eq!((kept.retained_disks, kept.disks_to_delete), (vec![disk("[ds] now.vmdk")], vec![]));
}
