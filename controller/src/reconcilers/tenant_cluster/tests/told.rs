//! Changes of settings of a running cluster: they reach its control-plane nodes one after the other. Finding 14 of controller.md.

use std::net::Ipv4Addr;

use kube::api::ObjectMeta;

use super::*;
use crate::decisions::INPUT_TYPE;
use crate::objects::{Backup, Operation, PodSecurity, Reference};

const TEAM: Option<&str> = Some("team-blue");

type Edit = fn(&mut TenantCluster);

fn there(world: &World) -> TenantCluster {
    serde_json::from_value(world.api.object("tenantclusters")).unwrap()
}

fn edit(world: &World, edit: Edit) {
    let mut changed = there(world);
    edit(&mut changed);
    world.api.put(&changed);
}

fn is_current(world: &World) -> bool {
    world.condition("UpToDate").1 == "Current"
}

impl World {
    /// The value of a property on each control-plane node, in their order. Unset ones are empty.
    fn property(&self, key: &str) -> Vec<String> {
        let (state, nodes) = (self.place.lock(), self.status()["deployment"]["nodes"].clone());
        let value = |node: &Value| {
            let address: Ipv4Addr = node["address"].as_str().unwrap().parse().unwrap();
            let formed = || state.forms[node["name"].as_str().unwrap()].get(key).cloned();
            state.settings.get(&address).and_then(|set| set.get(key).cloned()).or_else(formed).unwrap_or_default()
        };
        nodes.as_array().unwrap().iter().map(value).collect()
    }

    fn address_of(&self, node: usize) -> Ipv4Addr {
        self.status()["deployment"]["nodes"][node]["address"].as_str().unwrap().parse().unwrap()
    }

    /// Outcomes of Operations that change settings.
    fn outcomes(&self) -> Vec<String> {
        let names = self.api.names("operations").into_iter().filter(|name| name.contains("-configure-"));
        let outcome = |name: String| {
            let operation: Operation = self.api.read(TEAM, &name).unwrap();
            operation.status.unwrap_or_default().outcome.unwrap_or_default()
        };
        names.map(outcome).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn changed_settings_reach_all_nodes() {
    let edits: [(&str, Edit, &str, &str); 5] = [
        ("site.sshAuthorizedKeys", |it| it.spec.site.ssh_authorized_keys.clear(), "ssh-authorized-keys", ""),
        ("site.ntpServers", |it| it.spec.site.ntp_servers = vec!["10.0.0.7".to_owned()], "ntp-servers", "10.0.0.7"),
        ("podSecurity", |it| it.spec.pod_security = PodSecurity::Restricted, "pod-security", "restricted"),
        ("addons.localVolumes", |it| it.spec.add_ons.local_volumes = false, "local-volumes", "false"),
        (
            "backup.target",
            |it| {
                let (every, target) = ("6h".to_owned(), "https://elsewhere.example.com/shop/".to_owned());
                it.spec.backup = Some(Backup { every, target, credentials_ref: None, recovery_public_key: None });
            },
            "snapshot-target",
            "https://elsewhere.example.com/shop/",
        ),
    ];
    let world = World::ready().await;
    world.reconcile().await.unwrap();
    assert!(is_current(&world));
    for (field, change, key, value) in edits {
        world.place.lock().configured.clear();
        edit(&world, change);
        world.reconcile().await.unwrap();
        world.says("UpToDate", "Changing", field);
        assert_eq!(world.condition("Progressing").1, "OperationRuns", "{field}");
        world.until("current", is_current).await;
        assert_eq!(world.property(key), [value; 3], "{field}");
        let order = [0, 1, 2].map(|node| world.address_of(node));
        assert_eq!(world.place.lock().configured, order, "{field}: one after the other");
        assert!(world.is_ready() && world.outcomes().iter().all(|outcome| outcome == "done"), "{field}");
    }
    assert_eq!(world.outcomes().len(), 5);
    world.is_whole("no VM was replaced");
}

// A change of one field gave nodes all other fields too, and undid settings made by hand.
#[tokio::test(start_paused = true)]
async fn settings_made_by_hand_survive_other_changes() {
    let world = World::ready().await;
    for node in 0..3 {
        let address = world.address_of(node);
        let by_hand = [("ntp-servers".to_owned(), "10.0.0.9".to_owned())].into();
        world.place.lock().settings.insert(address, by_hand);
    }
    let former = world.property("pod-security");
    edit(&world, |it| it.spec.pod_security = PodSecurity::Restricted);
    world.reconcile().await.unwrap();
    assert_eq!(world.property("pod-security")[0], "restricted");
    // A field that changes meanwhile follows in the next Operation, and one that changes back is undone.
    edit(&world, |it| {
        it.spec.pod_security = PodSecurity::Baseline;
        it.spec.add_ons.local_volumes = false;
    });
    world.until("current", is_current).await;
    assert_eq!(world.property("pod-security"), former);
    assert_eq!(world.property("local-volumes"), ["false"; 3]);
    assert_eq!(world.property("ntp-servers"), ["10.0.0.9"; 3]);
    assert_eq!(world.outcomes(), ["done", "done"]);
    edit(&world, |it| it.spec.site.ntp_servers = vec!["10.0.0.7".to_owned()]);
    world.reconcile().await.unwrap();
    world.until("current", is_current).await;
    assert_eq!(world.property("ntp-servers"), ["10.0.0.7"; 3]);
}

#[tokio::test(start_paused = true)]
async fn next_node_waits_until_others_are_ready() {
    let world = World::ready().await;
    edit(&world, |it| it.spec.pod_security = PodSecurity::Restricted);
    world.reconcile().await.unwrap();
    let changed = world.place.lock().configured.len();
    assert_eq!(changed, 1);
    world.place.lock().configures = Some(0);
    world.reconciles(5, 15).await;
    assert_eq!(world.place.lock().configured.len(), 1);
    world.says("UpToDate", "Changing", "does not answer");
    world.place.lock().configures = None;
    world.until("current", is_current).await;
    assert_eq!(world.property("pod-security"), ["restricted"; 3]);
}

#[tokio::test(start_paused = true)]
async fn content_of_a_named_secret_counts() {
    let world = World::ready().await;
    let put = |hash: &str| {
        let metadata = ObjectMeta {
            name: Some("console".to_owned()),
            namespace: TEAM.map(str::to_owned),
            ..ObjectMeta::default()
        };
        let data = Some([("console-password-hash".to_owned(), ByteString(hash.as_bytes().to_vec()))].into());
        world.api.put(&Secret { metadata, data, type_: Some(INPUT_TYPE.to_owned()), ..Secret::default() });
    };
    edit(&world, |it| it.spec.site.console_password_ref = Some(Reference::to("console")));
    world.reconcile().await.unwrap();
    world.says("Preflight", "SecretMissing", "console");
    assert_eq!(world.property("console-password-hash"), [""; 3], "a missing Secret removes nothing");
    for hash in ["$y$j9T$salt$one", "$y$j9T$salt$two"] {
        put(hash);
        world.reconcile().await.unwrap();
        world.until("current", is_current).await;
        assert_eq!(world.property("console-password-hash"), [hash; 3]);
    }
    // A write of the same content changes no node.
    world.place.lock().configured.clear();
    put("$y$j9T$salt$two");
    world.reconciles(3, 15).await;
    assert!(is_current(&world) && world.place.lock().configured.is_empty());
}

/// An earlier version recorded no version of the Secret.
#[tokio::test(start_paused = true)]
async fn upgrade_of_the_controller_changes_no_node() {
    let world = World::ready().await;
    let put = |hash: &str| {
        let metadata = ObjectMeta {
            name: Some("console".to_owned()),
            namespace: TEAM.map(str::to_owned),
            ..ObjectMeta::default()
        };
        let data = Some([("console-password-hash".to_owned(), ByteString(hash.as_bytes().to_vec()))].into());
        world.api.put(&Secret { metadata, data, type_: Some(INPUT_TYPE.to_owned()), ..Secret::default() });
    };
    put("$y$j9T$salt$one");
    edit(&world, |it| it.spec.site.console_password_ref = Some(Reference::to("console")));
    world.reconcile().await.unwrap();
    world.until("current", is_current).await;
    edit(&world, |it| {
        let resolved = it.status.as_mut().unwrap().resolved.as_mut().unwrap();
        assert!(resolved.node_settings.remove("site.consolePasswordRef.content").is_some());
    });
    // Neither a node with an older image nor one that differs is an obstacle.
    world.place.lock().configured.clear();
    world.place.lock().takes_one_key = true;
    world.reconciles(3, 15).await;
    assert!(is_current(&world) && world.condition("Preflight").0 == "True");
    world.place.lock().takes_one_key = false;
    world.reconciles(3, 15).await;
    assert!(is_current(&world) && world.place.lock().configured.is_empty());
    put("$y$j9T$salt$two");
    world.reconcile().await.unwrap();
    world.until("current", is_current).await;
    assert_eq!(world.property("console-password-hash"), ["$y$j9T$salt$two"; 3]);
}

#[tokio::test(start_paused = true)]
async fn refused_settings_change_no_node() {
    let world = World::ready().await;
    world.place.lock().refuses = Some((world.address_of(2), "ntp-servers".to_owned()));
    edit(&world, |it| it.spec.site.ntp_servers = vec!["10.0.0.7".to_owned()]);
    world.reconciles(3, 60).await;
    world.says("UpToDate", "SettingsRefused", "site.ntpServers: shop-cp3: the node refuses it");
    assert!(world.place.lock().configured.is_empty() && world.outcomes().is_empty() && world.is_ready());
    edit(&world, |it| it.spec.site.ntp_servers = fixture::cluster().spec.site.ntp_servers);
    world.until("current", is_current).await;
    assert!(world.place.lock().configured.is_empty());
}

/// The node refuses only after another one was changed.
#[tokio::test(start_paused = true)]
async fn late_refusal_restores_changed_nodes() {
    let world = World::ready().await;
    let former = world.property("ntp-servers");
    edit(&world, |it| it.spec.site.ntp_servers = vec!["10.0.0.7".to_owned()]);
    world.reconcile().await.unwrap();
    assert_eq!(world.property("ntp-servers")[0], "10.0.0.7");
    let third = world.address_of(2);
    world.place.lock().refuses = Some((third, "ntp-servers".to_owned()));
    world.until("refused", |world| world.condition("UpToDate").1 == "SettingsRefused").await;
    assert_eq!(world.property("ntp-servers"), former);
    assert_eq!(world.outcomes(), ["refused"]);
}

/// Nodes are asked for the fields of the Operation. The message listed those that differ from the record.
#[tokio::test(start_paused = true)]
async fn message_names_the_fields_that_were_asked() {
    let other: Edit = |it| it.spec.pod_security = PodSecurity::Restricted;
    let reverted: Edit = |it| it.spec.site.ntp_servers = fixture::cluster().spec.site.ntp_servers;
    for (later, reason) in [(other, "SettingsRefused"), (reverted, "Changing")] {
        let world = World::ready().await;
        edit(&world, |it| it.spec.site.ntp_servers = vec!["10.0.0.7".to_owned()]);
        world.reconcile().await.unwrap();
        world.place.lock().refuses = Some((world.address_of(2), "ntp-servers".to_owned()));
        edit(&world, later);
        world.reconcile().await.unwrap();
        world.until(reason, |world| world.condition("UpToDate").1 == reason).await;
        let message = world.condition("UpToDate").2;
        assert!(message.starts_with("site.ntpServers: "), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn older_image_is_named_with_its_upgrade() {
    let world = World::ready().await;
    world.place.lock().takes_one_key = true;
    edit(&world, |it| it.spec.pod_security = PodSecurity::Restricted);
    world.reconcile().await.unwrap();
    world.says("UpToDate", "ChangeBlocked", "podSecurity: the image kaas-tenant-0.2.0 of shop-cp1");
    world.says("Preflight", "ImageUnsuitable", "upgrade the cluster");
    assert!(world.outcomes().is_empty());
    world.place.lock().takes_one_key = false;
    world.until("current", is_current).await;
}

#[tokio::test(start_paused = true)]
async fn paused_cluster_keeps_its_settings() {
    let world = World::ready().await;
    edit(&world, |it| {
        it.spec.paused = true;
        it.spec.pod_security = PodSecurity::Restricted;
    });
    world.reconciles(3, 15).await;
    world.says("UpToDate", "Changing", "podSecurity");
    assert!(world.place.lock().configured.is_empty());
    edit(&world, |it| it.spec.paused = false);
    world.until("current", is_current).await;
    assert_eq!(world.property("pod-security"), ["restricted"; 3]);
}

#[tokio::test(start_paused = true)]
async fn addresses_for_services_are_added_and_stay() {
    let world = World::ready().await;
    // An operator has added addresses on the nodes.
    let by_hand = "192.168.10.200-192.168.10.209";
    let formed = world.property("service-vips")[0].clone();
    for node in 0..3 {
        let set = [("service-vips".to_owned(), format!("{formed},{by_hand}"))].into();
        let address = world.address_of(node);
        world.place.lock().settings.insert(address, set);
    }
    edit(&world, |it| it.spec.network.service_vips.as_mut().unwrap().count = Some(3));
    world.reconcile().await.unwrap();
    world.until("current", is_current).await;
    let claimed = world.status()["resolved"]["serviceVIPs"].as_array().unwrap().len();
    assert_eq!((claimed, world.api.names("pooladdresses").len()), (3, 7));
    let present = world.property("service-vips");
    assert!(
        present.iter().all(|vips| vips.ends_with(by_hand) && *vips != format!("{formed},{by_hand}")),
        "{present:?}"
    );

    edit(&world, |it| it.spec.network.service_vips = None);
    world.reconciles(3, 15).await;
    world.says("UpToDate", "ChangeNotSupported", "network.serviceVIPs: these addresses stay");
    assert_eq!((world.property("service-vips"), world.api.names("pooladdresses").len()), (present, 7));
    world.is_deleted("addresses were added").await;
}

/// Finding 16 of controller.md: addresses that were claimed before the spec changed back did not count.
#[tokio::test(start_paused = true)]
async fn claimed_addresses_are_recorded_one_by_one() {
    let world = World::ready().await;
    let recorded = || world.status()["resolved"]["serviceVIPs"].as_array().unwrap().len();
    edit(&world, |it| it.spec.network.service_vips.as_mut().unwrap().count = Some(6));
    // Each controller gets one call further than the one before.
    for calls in 0..2000 {
        let _ = world.reconcile_at(&Mortal::new(&world.api, Some((calls, true)))).await;
        if recorded() > 2 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_secs(15)).await;
    }
    // Three nodes and the endpoint have the others.
    let claimed = || world.api.names("pooladdresses").len() - 4;
    assert!(claimed() < 6, "all were claimed before one was recorded");
    assert_eq!(recorded(), claimed());
    edit(&world, |it| it.spec.network.service_vips.as_mut().unwrap().count = Some(2));
    world.reconciles(2, 15).await;
    assert_eq!(recorded(), claimed());
}

#[tokio::test(start_paused = true)]
async fn settings_survive_a_cut_at_each_call() {
    for before in [true, false] {
        let world = World::ready().await;
        edit(&world, |it| it.spec.pod_security = PodSecurity::Restricted);
        let mut cuts = 0;
        while !(is_current(&world) && world.property("pod-security") == ["restricted"; 3]) {
            // Each controller gets one call further than the one before, from where that has stopped.
            let _ = world.reconcile_at(&Mortal::new(&world.api, Some((cuts % 90, before)))).await;
            tokio::time::sleep(std::time::Duration::from_secs(15)).await;
            cuts += 1;
            assert!(cuts < 2000, "it goes no further: {:?}", world.condition("UpToDate"));
        }
        world.reconciles(2, 15).await;
        assert_eq!(world.outcomes(), ["done"]);
        world.is_whole("all was cut");
    }
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
