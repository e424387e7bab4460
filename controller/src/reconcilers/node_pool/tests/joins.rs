//! Workers that do not join.

use std::collections::BTreeMap;

use super::*;

impl Pooled {
    /// A pool of two workers that is to have a third one. The next three workers never join.
    async fn with_failing_joins() -> Self {
        let pooled = Self::settled(2).await;
        pooled.0.place.lock().absent = [3, 4, 5].map(|number| format!("shop-general-w{number}")).into();
        pooled.want(|pool| (pool.replicas, pool.rollout.join_seconds) = (3, 60));
        pooled
    }

    /// As `with_failing_joins`, once three joins have failed.
    async fn with_failed_joins() -> Self {
        let pooled = Self::with_failing_joins().await;
        pooled.until("stopped", |it| it.condition("Ready") == "JoinFailed").await;
        pooled
    }

    fn failed_joins(&self) -> u32 {
        self.there().status.unwrap_or_default().failed_joins
    }

    /// Reconciles for this time, and adds to `seen` when each VM of a worker was first seen.
    async fn for_seconds_seeing(&self, seconds: u64, seen: &mut BTreeMap<String, Instant>) {
        let work = self.for_seconds(seconds);
        tokio::pin!(work);
        loop {
            for name in self.workers() {
                seen.entry(name).or_insert_with(Instant::now);
            }
            tokio::select! {
                () = &mut work => return,
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
        }
    }
}

/// Finding 13 of controller.md: the number of failures and the next time survive a change of leader.
#[tokio::test(start_paused = true)]
async fn failed_joins_are_retried_until_the_pool_stops() {
    let mut pooled = Pooled::with_failing_joins().await;
    let mut seen = BTreeMap::new();
    pooled.for_seconds_seeing(30, &mut seen).await;
    while pooled.failed_joins() == 0 {
        pooled.for_seconds_seeing(1, &mut seen).await;
    }
    pooled.0.term = Term::unlimited("controller two");
    while pooled.failed_joins() < 3 {
        pooled.for_seconds_seeing(1, &mut seen).await;
    }
    // A worker has 60 s to join, and a controller begins work within a minute.
    let between = |one: u32, two: u32| {
        let at = |number: u32| seen[&format!("shop-general-w{number}")];
        at(two).duration_since(at(one)).as_secs()
    };
    assert!((120..200).contains(&between(3, 4)), "{}", between(3, 4));
    assert!((180..260).contains(&between(4, 5)), "{}", between(4, 5));
    pooled.for_seconds(3600).await;
    assert_eq!(pooled.workers(), ["shop-general-w1", "shop-general-w2", "shop-general-w5"]);
    pooled.says("Ready", "JoinFailed", "run `kubectl delete machine shop-general-w5`");
    pooled.says("Ready", "JoinFailed", "3 joins in a row have failed. From 3 on (10 % of 3 workers, at least 3)");
    assert_eq!((pooled.failed_joins(), pooled.condition("Repairable").as_str()), (3, "FewUnhealthy"));
}

/// Finding 13 of controller.md.
#[tokio::test(start_paused = true)]
async fn pause_after_a_failed_join_says_its_end() {
    let pooled = Pooled::with_failing_joins().await;
    let words = "another worker is created in its place at 2027-01-01T";
    pooled.until("failed", |it| it.message("Ready").contains(words)).await;
    pooled.says("Ready", "WorkersNotReady", "it has not joined after 60 s");
}

/// Finding 13 of controller.md: one bad host stops the repair of no other worker. A worker that joins ends the row of failures.
#[tokio::test(start_paused = true)]
async fn a_stopped_pool_is_repaired_and_retries() {
    let pooled = Pooled::with_failed_joins().await;
    pooled.0.place.lock().unready.insert("shop-general-w1".to_owned());
    let is_repaired = |it: &Pooled| it.is_whole(3) && !it.workers().contains(&"shop-general-w1".to_owned());
    pooled.until("repaired", is_repaired).await;
    assert_eq!(pooled.workers(), ["shop-general-w2", "shop-general-w6", "shop-general-w7"]);
    assert_eq!(pooled.failed_joins(), 0);
    pooled.is_consistent("repaired");
}

/// Finding 13 of controller.md.
#[tokio::test(start_paused = true)]
async fn a_stopped_pool_grows_and_shrinks() {
    let pooled = Pooled::with_failed_joins().await;
    pooled.scales(2).await;
    assert_eq!(pooled.workers(), ["shop-general-w1", "shop-general-w2"], "the failed one leaves");
    let pooled = Pooled::with_failed_joins().await;
    pooled.scales(4).await;
    assert_eq!(pooled.failed_joins(), 0);
    pooled.is_consistent("four");
}

#[tokio::test(start_paused = true)]
async fn deleting_a_failed_machine_resumes_joins() {
    let pooled = Pooled::with_failed_joins().await;
    pooled.0.api.remove::<Machine>(Some("team-blue"), "shop-general-w5");
    pooled.until("created again", |it| it.is_whole(3)).await;
    assert_eq!(pooled.workers(), ["shop-general-w1", "shop-general-w2", "shop-general-w6"]);
    assert_eq!(pooled.failed_joins(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_failed_worker_leaves_with_its_pool() {
    let pooled = Pooled::with_failed_joins().await;
    pooled.0.api.remove::<NodePool>(Some("team-blue"), "shop-general");
    pooled.until("gone", |it| it.0.api.names("nodepools").is_empty()).await;
    assert_eq!((pooled.workers().len(), pooled.0.api.names("machines").len()), (0, 3));
}
