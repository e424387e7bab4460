//! A controller dies while it repairs, replaces or removes workers: the next one continues, and each VM is created once.

use fleet::hypervisor::PowerState;

use super::*;
use crate::reconcilers::tenant_cluster::tests::Mortal;
use crate::term::Term;

impl Pooled {
    /// A reconcile by a controller that may die. `None` if it has died.
    async fn reconcile_at(&self, objects: &Mortal) -> Option<Result<Action, ReconcileError>> {
        let World { place, clock, term, .. } = &self.0;
        let (work, there) =
            (PoolReconciler(Reconciler { objects, places: place, term, clock, is_marked: true }), self.there());
        tokio::select! {
            biased;
            () = objects.died.notified() => None,
            done = work.reconcile(&there) => Some(done),
        }
    }

    /// Reconciles with one controller until it dies or the condition holds. True if it has died.
    pub(super) async fn until_death(&self, objects: &Mortal, is_so: impl Fn(&Self) -> bool) -> bool {
        for _ in 0..80 {
            if is_so(self) {
                return false;
            }
            if self.reconcile_at(objects).await.is_none() {
                return true;
            }
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        panic!("no end: {:#}", self.0.api.object("nodepools"));
    }
}

/// A story with a pool of two workers: its begin and its end.
struct Story {
    what: &'static str,
    begins: fn(&Pooled),
    has_ended: fn(&Pooled) -> bool,
}

impl Story {
    async fn begun(&self) -> Pooled {
        let pooled = Pooled::settled(2).await;
        (self.begins)(&pooled);
        pooled
    }

    async fn is_told(&self) {
        let calls = {
            let pooled = self.begun().await;
            let mortal = Mortal::new(&pooled.0.api, None);
            assert!(!pooled.until_death(&mortal, self.has_ended).await, "{}: nobody was to die", self.what);
            mortal.calls()
        };
        assert!(calls > 50, "{}: {calls}", self.what);
        let of_call = |call| [true, false].map(|before| (call, before));
        let tried = drawn(self.what, (0..calls).flat_map(of_call).collect());
        let (all, mut died) = (tried.len(), 0);
        for (call, before) in tried {
            let what = format!("{}: a death {} call {call}", self.what, if before { "before" } else { "after" });
            let mut pooled = self.begun().await;
            let mortal = Mortal::new(&pooled.0.api, Some((call, before)));
            died += usize::from(pooled.until_death(&mortal, self.has_ended).await);
            pooled.0.term = Term::unlimited("controller two");
            pooled.until(&what, self.has_ended).await;
            pooled.is_consistent(&what);
        }
        // If calls come in another order, the last ones may not be reached.
        assert!(died * 2 >= all, "{}: {died} of {all} controllers died", self.what);
    }
}

#[tokio::test(start_paused = true)]
async fn a_repair_continues_once() {
    let story = Story {
        what: "deaths while a worker is repaired",
        begins: |it| it.0.place.change("shop-general-w1", |vm| vm.power = PowerState::Off),
        has_ended: |it| it.is_whole(2) && !it.workers().contains(&"shop-general-w1".to_owned()),
    };
    story.is_told().await;
}

#[tokio::test(start_paused = true)]
async fn a_rollout_continues() {
    let story = Story {
        what: "deaths while workers are replaced",
        begins: |it| it.commits(),
        has_ended: |it| it.is_updated(2),
    };
    story.is_told().await;
}

#[tokio::test(start_paused = true)]
async fn a_kept_vm_survives_a_death() {
    let story = Story {
        what: "deaths while a worker is made anew whose VM is kept",
        begins: |it| {
            it.keeps("shop-general-w1");
            it.0.api.remove::<Machine>(Some("team-blue"), "shop-general-w1");
        },
        has_ended: |it| it.is_whole(2) && !it.workers().contains(&"shop-general-w1".to_owned()) && it.kept().len() == 1,
    };
    story.is_told().await;
}
