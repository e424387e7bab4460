//! Objects that this version cannot read, and records of other clusters. None of them is missing, and nothing follows from one.

use serde_json::json;

use super::World;
use crate::decisions::fixture;
use crate::objects::{Machine, NodeImage, TenantCluster};
use crate::reach::Collection;

const WORDS: &str = "the Machine team-blue/shop-cp2 cannot be read: unknown variant `Dreaming`";

impl World {
    fn set_phase(&self, phase: &str) {
        let mut machine = self.api.named("machines", "shop-cp2").unwrap();
        machine["status"]["phase"] = json!(phase);
        self.api.put_value(&Collection::of::<Machine>(Some("team-blue")), machine);
    }

    /// Checks that a reconcile fails with these words, and that a condition has them.
    async fn is_blocked(&self, words: &str) {
        let trouble = self.reconcile().await.unwrap_err().to_string();
        assert!(trouble.contains(words), "{trouble}");
        let (_, reason, message) = self.condition("Progressing");
        assert!(reason == "Blocked" && message.starts_with(words), "{reason}: {message}");
        self.is_whole(words);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_machine_stops_its_cluster() {
    let world = World::new();
    world.until("ready", World::is_ready).await;
    world.set_phase("Dreaming");
    let trouble = world.without_last_call(async || world.reconcile().await).await.unwrap_err().to_string();
    assert!(trouble.contains(WORDS), "the status was not written: {trouble}");
    assert_ne!(world.condition("Progressing").1, "Blocked");
    world.is_blocked(WORDS).await;
    world.delete();
    world.is_blocked(WORDS).await;
    world.set_phase("Running");
    world.until("gone", World::is_gone).await;
    world.is_clean("its Machine can be read again");
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_image_stops_only_its_clusters() {
    let world = World::new();
    let spoil = |name: &str| {
        let mut image = world.api.named("nodeimages", name).unwrap();
        image["status"] = json!({"phase": "Dreaming"});
        world.api.put_value(&Collection::of::<NodeImage>(None), image);
    };
    world.api.put(&fixture::image("kaas-tenant-0.3.0", "0.3.0"));
    spoil("kaas-tenant-0.3.0");
    world.until("ready", World::is_ready).await;
    spoil("kaas-tenant-0.2.0");
    world.is_blocked("the NodeImage kaas-tenant-0.2.0 cannot be read: unknown variant `Dreaming`").await;
}

#[tokio::test(start_paused = true)]
async fn a_record_of_another_cluster_is_not_followed() {
    let world = World::new();
    world.until("ready", World::is_ready).await;
    let own = world.api.object("tenantclusters");
    for (field, what, value) in
        [("cluster", "cluster", "bank"), ("id", "deployment", "00000000-0000-0000-0000-000000000009")]
    {
        let mut cluster = own.clone();
        cluster["status"]["deployment"][field] = json!(value);
        cluster["status"]["deployment"]["lifecycle"] = json!("Deleted");
        world.api.put_value(&Collection::of::<TenantCluster>(Some("team-blue")), cluster);
        let words = format!("status.deployment of the TenantCluster shop is the record of the {what} {value}");
        world.is_blocked(&words).await;
        world.delete();
        world.is_blocked(&words).await;
    }
}
