//! Changes of settings that control-plane nodes got when they were created: they do not reach the nodes, and the cluster reports
//! them.

use super::*;
use crate::objects::{Backup, PodSecurity};

type Edit = fn(&mut TenantCluster);

fn there(world: &World) -> TenantCluster {
    serde_json::from_value(world.api.object("tenantclusters")).unwrap()
}

async fn with(world: &World, edit: Edit) -> (String, String, String) {
    let mut changed = there(world);
    edit(&mut changed);
    world.api.put(&changed);
    world.reconcile().await.unwrap();
    world.condition("UpToDate")
}

#[tokio::test(start_paused = true)]
async fn changed_settings_are_named_until_they_are_reverted() {
    let edits: [(&str, Edit); 6] = [
        ("site.sshAuthorizedKeys", |it| it.spec.site.ssh_authorized_keys.clear()),
        ("site.adminCIDRs", |it| it.spec.site.admin_cidrs = vec!["192.168.10.7/32".to_owned()]),
        ("podSecurity", |it| it.spec.pod_security = PodSecurity::Restricted),
        ("addons.localVolumes", |it| it.spec.add_ons.local_volumes = false),
        ("network.serviceVIPs", |it| it.spec.network.service_vips = None),
        ("backup.target", |it| {
            let (every, target) = ("6h".to_owned(), "https://elsewhere.example.com/shop/".to_owned());
            it.spec.backup = Some(Backup { every, target, credentials_ref: None, recovery_public_key: None });
        }),
    ];
    let world = World::ready().await;
    world.reconcile().await.unwrap();
    assert_eq!(world.condition("UpToDate").1, "Current");
    let before = there(&world).spec;
    for (field, edit) in edits {
        let (status, reason, words) = with(&world, edit).await;
        assert_eq!((status.as_str(), reason.as_str()), ("False", "ChangeNotSupported"), "{field}: {words}");
        assert!(words.contains(field), "{field}: {words}");
        assert!(world.is_ready(), "{field}");
        world.api.put(&TenantCluster { spec: before.clone(), ..there(&world) });
        world.reconcile().await.unwrap();
        assert_eq!(world.condition("UpToDate").1, "Current", "{field}");
    }
    let (.., words) = with(&world, |it| {
        it.spec.pod_security = PodSecurity::Restricted;
        it.spec.site.ntp_servers.clear();
    })
    .await;
    assert!(words.contains("podSecurity") && words.contains("site.ntpServers"), "{words}");
    world.is_whole("nothing was changed");
}

#[tokio::test(start_paused = true)]
async fn changes_before_the_first_vm_reach_nodes() {
    let world = World::new();
    world.place.lock().lacks_template = true;
    for _ in 0..3 {
        world.reconcile().await.unwrap();
    }
    let mut changed = there(&world);
    changed.spec.pod_security = PodSecurity::Restricted;
    world.api.put(&changed);
    world.place.lock().lacks_template = false;
    world.until("ready", World::is_ready).await;
    world.reconcile().await.unwrap();
    assert_eq!(world.condition("UpToDate").1, "Current");
}
