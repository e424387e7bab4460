//! Workers whose VMs are kept: everything else of them is removed.

use fleet::hypervisor::{PowerState, Vm};

use super::*;
use crate::objects::Removal;

impl Pooled {
    /// Sets what happens to a worker's VM, as the operator would.
    fn is_removed_by(&self, name: &str, removal: Removal) {
        let mut machine: Machine = self.0.api.read(Some("team-blue"), name).unwrap();
        machine.spec.removal = removal;
        self.0.api.put(&machine);
    }

    pub(super) fn keeps(&self, name: &str) {
        self.is_removed_by(name, Removal::Keep);
    }

    /// The VMs without a deployment.
    pub(super) fn kept(&self) -> Vec<Vm> {
        let is_nobodys = |vm: &&Vm| vm.stamp.as_ref().is_some_and(|stamp| stamp.deployment.is_nil());
        self.0.place.lock().vms.iter().map(|(vm, ..)| vm).filter(is_nobodys).cloned().collect()
    }

    /// Checks that one VM of this worker is kept, unchanged.
    fn has_kept(&self, name: &str, what: &str) {
        let all = self.kept();
        let [kept] = &all[..] else { panic!("{what}: {all:?}") };
        assert_eq!(kept.name, format!("{name}-kept-{}", &kept.uuid().to_string()[..8]), "{what}");
        assert_eq!((kept.power, kept.is_fenced()), (PowerState::Off, true), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_vm_of_a_worker_is_kept() {
    let pooled = Pooled::settled(2).await;
    let disks = |vm: Vm| vm.disks;
    let before = pooled.0.place.lock().vms.iter().map(|(vm, ..)| vm.clone()).find(|vm| vm.name == "shop-general-w2");
    pooled.keeps("shop-general-w2");
    let made = pooled.0.place.lock().changes.len();
    pooled.scale(1);
    pooled.until("one", |it| it.is_whole(1)).await;
    assert_eq!(pooled.0.place.lock().changes[made..], ["shut_down", "connect", "release"]);
    pooled.has_kept("shop-general-w2", "one");
    assert_eq!(pooled.kept().pop().map(disks), before.map(disks));
    // Its address is released too.
    pooled.is_consistent("one");
    // VMs of other workers are destroyed.
    pooled.scale(0);
    pooled.until("none", |it| it.is_whole(0)).await;
    assert_eq!(pooled.kept().len(), 1);
}

/// A foreign finalizer keeps the Machine here.
#[tokio::test(start_paused = true)]
async fn the_machine_names_the_kept_vm() {
    let pooled = Pooled::settled(1).await;
    pooled.keeps("shop-general-w1");
    let mut machine: Machine = pooled.0.api.read(Some("team-blue"), "shop-general-w1").unwrap();
    machine.metadata.finalizers.get_or_insert_default().push("example.com/reads".to_owned());
    pooled.0.api.put(&machine);
    pooled.scale(0);
    pooled.until("kept", |it| it.kept().len() == 1).await;
    pooled.has_kept("shop-general-w1", "it is told");
    let machine: Machine = pooled.0.api.read(Some("team-blue"), "shop-general-w1").unwrap();
    let conditions = machine.status.unwrap().conditions;
    let told = conditions.into_iter().find(|condition| condition.about == "VMReady").unwrap();
    let name = pooled.kept().pop().unwrap().name;
    assert!(told.reason == "Kept" && told.message.contains(&format!("is kept as {name}")), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn the_removal_can_change_until_the_end() {
    for removal in [Removal::Keep, Removal::Destroy] {
        let pooled = Pooled::settled(2).await;
        let before = if removal == Removal::Keep { Removal::Destroy } else { Removal::Keep };
        pooled.is_removed_by("shop-general-w1", before);
        pooled.sticks_to("shop-general-w1", false);
        pooled.0.api.remove::<Machine>(Some("team-blue"), "shop-general-w1");
        pooled.is_heeded(|| pooled.is_removed_by("shop-general-w1", removal)).await;
        pooled.0.place.lock().stuck.clear();
        let is_anew = |it: &Pooled| it.is_whole(2) && !it.workers().contains(&"shop-general-w1".to_owned());
        pooled.until("created again", is_anew).await;
        assert_eq!(pooled.kept().len(), usize::from(removal == Removal::Keep));
        pooled.is_consistent("created again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kept_vm_survives_pool_and_cluster() {
    let pooled = Pooled::settled(1).await;
    pooled.keeps("shop-general-w1");
    pooled.0.api.remove::<NodePool>(Some("team-blue"), "shop-general");
    pooled.until("gone", |it| it.0.api.names("nodepools").is_empty()).await;
    assert_eq!((pooled.workers().len(), pooled.0.api.names("machines").len()), (0, 3));
    pooled.has_kept("shop-general-w1", "its pool went");

    let pooled = Pooled::settled(2).await;
    pooled.keeps("shop-general-w1");
    pooled.sticks_to("shop-general-w1", true);
    pooled.goes_with_its_cluster().await;
    pooled.has_kept("shop-general-w1", "its cluster went");
    // All else is deleted.
    let name = pooled.kept().pop().unwrap().name;
    pooled.0.place.lose(&name);
    pooled.0.is_clean("it went but for one VM");
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_loses_no_kept_vm() {
    async fn story(pooled: &Pooled, what: &str) {
        pooled.keeps("shop-general-w2");
        pooled.scale(1);
        pooled.until(what, |it| it.is_whole(1)).await;
        pooled.has_kept("shop-general-w2", what);
        pooled.is_consistent(what);
    }
    let begun = || Pooled::settled(2);
    let (calls, changes) = with_lost_answers("answers while a VM is kept", begun, story).await;
    assert!(calls > 20 && changes == 3, "{calls} {changes}");
    with_vm_faults(changes, begun, story).await;
}
