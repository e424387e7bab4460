//! Workers that the spec names to leave first.

use super::*;

/// The drain of a named worker is not forced, and no other worker leaves in its place.
#[tokio::test(start_paused = true)]
async fn named_workers_are_drained_and_leave_first() {
    let pooled = Pooled::settled(4).await;
    pooled.sticks_to("shop-general-w2", false);
    pooled.want(|pool| {
        pool.replicas = 2;
        pool.remove_first = [1, 2].map(|number| format!("shop-general-w{number}")).to_vec();
    });
    pooled.for_seconds(600).await;
    assert_eq!(pooled.workers(), ["shop-general-w2", "shop-general-w3", "shop-general-w4"]);
    assert_eq!(pooled.condition("UpToDate"), "DrainBlocked");
    pooled.0.place.lock().stuck.clear();
    pooled.until("two", |it| it.is_whole(2)).await;
    assert_eq!(pooled.workers(), ["shop-general-w3", "shop-general-w4"]);
    // The names stay in the spec, and concern no other worker.
    pooled.scales(3).await;
    assert_eq!(pooled.workers(), ["shop-general-w3", "shop-general-w4", "shop-general-w5"]);
    pooled.scales(2).await;
    assert_eq!(pooled.workers(), ["shop-general-w3", "shop-general-w4"]);
    assert_eq!(pooled.there().spec.remove_first.len(), 2);
    pooled.is_consistent("two again");
}

/// As `kaas pool scale --remove` writes it: names and replicas change together. After a lost answer no other worker leaves.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_removes_only_the_named_worker() {
    async fn story(pooled: &Pooled, what: &str) {
        pooled.want(|pool| {
            pool.replicas = 1;
            pool.remove_first = vec!["shop-general-w1".to_owned()];
        });
        pooled.until(what, |it| it.is_whole(1)).await;
        assert_eq!(pooled.workers(), ["shop-general-w2"], "{what}");
        pooled.is_consistent(what);
    }
    let begun = || Pooled::settled(2);
    let (calls, changes) = with_lost_answers("answers while a named worker leaves", begun, story).await;
    assert!(calls > 10 && changes >= 1, "{calls} {changes}");
    with_vm_faults(changes, begun, story).await;
}

/// A name alone removes no worker.
#[tokio::test(start_paused = true)]
async fn a_name_without_fewer_replicas_changes_nothing() {
    let pooled = Pooled::settled(2).await;
    pooled.want(|pool| pool.remove_first = vec!["shop-general-w1".to_owned()]);
    pooled.for_seconds(300).await;
    assert!(pooled.is_settled(2));
    assert_eq!(pooled.workers(), ["shop-general-w1", "shop-general-w2"]);
}
