//! A Provider and its credentials on a vCenter without bodies.

use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use testbed::{ADMINISTRATOR, IN_ROLE, LOOKER, PASSWORD};

use super::super::tests::{cluster, context, now, settled, standing};
use super::*;
use crate::objects::SYSTEM;
use crate::reach::in_memory::InMemory;
use crate::reach::providers::bed::{Bed, secret};

async fn looked(api: &InMemory, context: &Arc<Context>) -> Provider {
    settled(api, context, (None, "dc1"), reconcile).await;
    now(api, None, "dc1").await.unwrap()
}

fn words(provider: &Provider) -> [String; 4] {
    ["Reachable", "Authenticated", "Privileged", "Ready"].map(|condition| standing(provider, condition).0)
}

/// A Provider with these credentials and this change of its spec.
fn stored(bed: &Bed, user: &str, password: &str, change: &Value) -> (InMemory, Arc<Context>, Provider) {
    let (api, provider) = (InMemory::default(), bed.provider(change));
    api.put(&secret(user, password));
    api.put(&provider);
    let context = context(&api);
    (api, context, provider)
}

/// As `stored`, after its reconcile.
async fn judged(bed: &Bed, user: &str, password: &str, change: &Value) -> Provider {
    let (api, context, _) = stored(bed, user, password, change);
    looked(&api, &context).await
}

/// Checks that the limit of one request at a time includes both sessions.
async fn share_one_request(bed: &Bed, first: vsphere::Client, second: impl AsyncFnOnce() -> vsphere::Client) {
    let look = |client: vsphere::Client| {
        tokio::spawn(async move { client.look(&client.service().root_folder().unwrap(), &["name"]).await })
    };
    bed.spoil("RetrievePropertiesEx", "delay", json!({"milliseconds": 600_000})).await;
    let looking = look(first);
    while !bed.has_spoilt().await {
        tokio::task::yield_now().await;
    }
    let waiting = look(second().await);
    // Other requests succeed meanwhile, several times.
    bed.make_tenants().await;
    assert!(!looking.is_finished() && !waiting.is_finished(), "two requests are made at once");
    bed.spoil_nothing().await;
    looking.await.unwrap().unwrap();
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn rejected_credentials_are_sent_once() {
    let bed = Bed::start();
    bed.make_tenants().await;
    let api = InMemory::default();
    let context = context(&api);
    api.put(&bed.provider(&json!({})));
    let seen = looked(&api, &context).await;
    assert_eq!(words(&seen), ["NotAsked", "SecretMissing", "NotLoggedIn", "NotReady"]);
    api.put(&secret(ADMINISTRATOR, "wrong"));
    bed.count_anew().await;
    for _ in 0..3 {
        let seen = looked(&api, &context).await;
        assert_eq!(words(&seen), ["Connected", "LoginRefused", "NotLoggedIn", "NotReady"]);
    }
    assert_eq!(bed.count("Login").await, 1, "an account is not locked by asking again and again");
    api.put(&secret(ADMINISTRATOR, PASSWORD));
    let seen = looked(&api, &context).await;
    assert_eq!(words(&seen), ["Connected", "LoggedIn", "Complete", "Available"], "{:?}", seen.status);
    let status = seen.status.as_ref().unwrap();
    assert!(status.version.as_ref().unwrap().contains("vCenter"), "{status:?}");
    assert_eq!((status.zones.len(), status.zones[0].datastore.as_deref()), (1, Some("LocalDS_0")));
    assert!(status.free_storage_gib.unwrap() > 0 && status.zones[0].free_storage_gib.unwrap() > 0, "{status:?}");
    assert!(status.zones[0].free_memory_mib.unwrap() > 65536, "{status:?}");
    assert_eq!(status.zones[0].host_processors, Some(64));
    // All callers use one session, and the look is reused.
    let logins = bed.count("Login").await;
    for _ in 0..3 {
        looked(&api, &context).await;
        context.providers.session(&seen).await.unwrap();
    }
    assert_eq!(bed.count("Login").await, logins);
    // The password was rotated: the next call uses the new account.
    api.put(&secret(LOOKER, PASSWORD));
    let seen = looked(&api, &context).await;
    assert_eq!(words(&seen), ["Connected", "LoggedIn", "PrivilegesMissing", "NotReady"]);
    let said = standing(&seen, "Privileged").1;
    assert!(said.contains(LOOKER) && said.contains("VirtualMachine.") && said.contains("Folder.Create"), "{said}");
    // The Secret was deleted: no new session is opened.
    api.remove::<Secret>(Some(SYSTEM), "dc1");
    let seen = looked(&api, &context).await;
    assert_eq!(words(&seen), ["NotAsked", "SecretMissing", "NotLoggedIn", "NotReady"]);
}

#[tokio::test]
async fn an_unreadable_switch_or_host_lacks_a_privilege() {
    let bed = Bed::start();
    bed.make_tenants().await;
    let change = json!({"networks": [{"name": "blue", "portGroup": "DC0_DVPG0", "addressing": "DHCP"}]});
    bed.count_anew().await;
    let seen = judged(&bed, IN_ROLE, PASSWORD, &change).await;
    assert_eq!(standing(&seen, "Privileged").0, "Complete", "{:?}", seen.status);
    let looks = bed.count("RetrievePropertiesEx").await;
    let mut told = Vec::new();
    for skip in 0..looks {
        bed.spoil("RetrievePropertiesEx", "fault", json!({"fault": "NoPermission", "skip": skip})).await;
        let seen = judged(&bed, IN_ROLE, PASSWORD, &change).await;
        bed.spoil_nothing().await;
        let (reason, said) = standing(&seen, "Privileged");
        if reason == "PrivilegesMissing" {
            told.push(said);
        }
    }
    for part in ["System.Read on the distributed switch of the port group", "System.Read for the hosts of DC0_C0"] {
        assert!(told.iter().any(|said| said.contains(part)), "{part} is not in {told:?}");
    }
}

#[tokio::test]
async fn all_missing_objects_are_named_together() {
    let bed = Bed::start();
    let change = json!({
        "templatesFolder": "no/such", "zones": [
            {"name": "a", "cluster": "DC0_C0", "datastore": "none"},
            {"name": "b", "cluster": "other", "datastore": "LocalDS_0"},
            {"name": "c", "cluster": "DC0_C0", "resourcePool": "nobodys", "datastore": "LocalDS_1"},
        ],
        "networks": [{"name": "blue", "portGroup": "none", "addressing": "DHCP"}],
    });
    let seen = judged(&bed, ADMINISTRATOR, PASSWORD, &change).await;
    assert_eq!(words(&seen), ["Connected", "LoggedIn", "ObjectsMissing", "NotReady"]);
    let said = standing(&seen, "Privileged").1;
    for part in
        ["folder tenants", "folder no/such", "datastore none", "cluster other", "Resources/nobodys", "port group none"]
    {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    let seen = judged(&bed, ADMINISTRATOR, PASSWORD, &json!({"datacenter": "DC9"})).await;
    assert!(standing(&seen, "Privileged").1.contains("the data center DC9"));
}

#[tokio::test]
async fn a_cluster_without_drs_is_named() {
    for (version, is_named) in [("8.0.3.0", true), ("9.0.0.0", false)] {
        let bed = Bed::of_api(version);
        bed.make_tenants().await;
        bed.govc(&["cluster.change", "-drs-enabled=false", "DC0_C0"]);
        let seen = judged(&bed, ADMINISTRATOR, PASSWORD, &json!({})).await;
        let (reason, said) = standing(&seen, "Ready");
        assert_eq!(reason, "Available", "{version}: {said}");
        let words = "not everywhere now: the cluster DC0_C0: DRS is turned off";
        assert_eq!(said.contains(words), is_named, "{version}: {said}");
    }
}

// The name was resolved only in a look that had logged in.
#[tokio::test]
async fn addresses_of_an_unusable_vcenter_are_known() {
    let bed = Bed::start();
    let api = InMemory::default();
    let context = context(&api);
    api.put(&bed.provider(&json!({"server": "192.0.2.7:443"})));
    let addresses = |provider: &Provider| provider.status.as_ref().unwrap().server_addresses.clone();
    let mut seen = looked(&api, &context).await;
    assert_eq!(words(&seen), ["NotAsked", "SecretMissing", "NotLoggedIn", "NotReady"]);
    assert_eq!(addresses(&seen), ["192.0.2.7"]);
    // An earlier answer had another address.
    seen.status.as_mut().unwrap().server_addresses = vec!["192.0.2.6".to_owned()];
    api.put(&seen);
    let mut seen = looked(&api, &context).await;
    assert_eq!(addresses(&seen), ["192.0.2.6", "192.0.2.7"]);
    seen.spec.vsphere.as_mut().unwrap().server = "192.0.2.8:443".to_owned();
    api.put(&seen);
    assert_eq!(addresses(&looked(&api, &context).await), ["192.0.2.8"], "the spec names another server");
}

/// The object does not change. The next look finds what was missing, and a complete Provider is not read in full each time.
#[tokio::test]
async fn an_added_object_is_seen_a_minute_later() {
    async fn a_minute_passes() {
        tokio::time::pause();
        tokio::time::advance(INTERVAL).await;
        tokio::time::resume();
    }
    let bed = Bed::start();
    let (api, context, _) = stored(&bed, ADMINISTRATOR, PASSWORD, &json!({}));
    let seen = looked(&api, &context).await;
    assert_eq!(words(&seen), ["Connected", "LoggedIn", "ObjectsMissing", "NotReady"]);
    bed.make_tenants().await;
    a_minute_passes().await;
    let seen = looked(&api, &context).await;
    assert_eq!(words(&seen), ["Connected", "LoggedIn", "Complete", "Available"], "{:?}", seen.status);
    let asked = bed.count("HasUserPrivilegeOnEntities").await;
    a_minute_passes().await;
    looked(&api, &context).await;
    assert_eq!(bed.count("HasUserPrivilegeOnEntities").await, asked);
}

#[tokio::test]
async fn an_untrusted_or_different_vcenter_is_not_used() {
    let bed = Bed::start();
    bed.make_tenants().await;
    bed.count_anew().await;
    let other = json!({"thumbprint": "00".repeat(32)});
    let seen = judged(&bed, ADMINISTRATOR, PASSWORD, &other).await;
    assert_eq!(words(&seen), ["Untrusted", "NotReached", "NotLoggedIn", "NotReady"]);
    assert_eq!(bed.count("Login").await, 0, "no password was sent");
    let (api, context, mut provider) = stored(&bed, ADMINISTRATOR, PASSWORD, &json!({}));
    let before = "11111111-2222-3333-4444-555555555555".to_owned();
    provider.status = Some(ProviderStatus { instance_uuid: Some(before.clone()), ..ProviderStatus::default() });
    api.put(&provider);
    let seen = looked(&api, &context).await;
    assert_eq!(words(&seen), ["OtherServer", "NotReached", "NotLoggedIn", "NotReady"]);
    assert!(standing(&seen, "Reachable").1.contains(&before));
    assert_eq!(seen.status.as_ref().unwrap().instance_uuid, Some(before), "it stays what it was");
}

#[tokio::test]
async fn an_outage_backs_off_and_keeps_free_capacity() {
    let mut bed = Bed::start();
    bed.make_tenants().await;
    let (api, context, _) = stored(&bed, ADMINISTRATOR, PASSWORD, &json!({}));
    let seen = looked(&api, &context).await;
    assert_eq!(words(&seen)[3], "Available");
    let free = seen.status.as_ref().unwrap().free_storage_gib;
    bed.end();
    // A look at a former spec is not reused.
    let mut provider: Provider = now(&api, None, "dc1").await.unwrap();
    provider.spec.vsphere.as_mut().unwrap().requests = 4;
    api.put(&provider);
    for _ in 0..3 {
        let seen = looked(&api, &context).await;
        assert_eq!(words(&seen)[..2], ["Unreachable", "NotReached"]);
    }
    let again = settled(&api, &context, (None, "dc1"), reconcile).await.unwrap();
    let seen: Provider = now(&api, None, "dc1").await.unwrap();
    assert_eq!(words(&seen), ["Unreachable", "NotReached", "NotLoggedIn", "BackingOff"]);
    assert!(again != Action::requeue(INTERVAL), "{again:?}");
    let unavailable = context.providers.session(&seen).await.err().unwrap();
    assert!(matches!(unavailable.why, UnavailableReason::BackingOff { .. }), "{unavailable}");
    assert_eq!(seen.status.as_ref().unwrap().free_storage_gib, free);
}

/// The Secret of a Provider with clusters is not deleted, even if the Provider no longer names it. Both go after the last
/// cluster.
#[tokio::test]
async fn clusters_keep_their_provider_and_its_secret() {
    let bed = Bed::start();
    bed.make_tenants().await;
    let (api, context, mut provider) = stored(&bed, ADMINISTRATOR, PASSWORD, &json!({}));
    provider.spec.allowed_namespaces.names.push("team-blue".to_owned());
    api.put(&provider);
    api.put(&cluster("shop", "i1", "auto"));
    looked(&api, &context).await;
    api.remove::<Secret>(Some(SYSTEM), "dc1");
    api.remove::<Provider>(None, "dc1");
    let seen = looked(&api, &context).await;
    assert_eq!((words(&seen)[1].as_str(), seen.status.as_ref().unwrap().clusters), ("LoggedIn", 1));
    assert!(now::<Secret>(&api, Some(SYSTEM), "dc1").await.is_some());
    api.remove::<TenantCluster>(Some("team-blue"), "shop");
    settled(&api, &context, (None, "dc1"), reconcile).await;
    assert!(now::<Provider>(&api, None, "dc1").await.is_none());
    assert!(now::<Secret>(&api, Some(SYSTEM), "dc1").await.is_none());
}

#[tokio::test]
async fn a_cluster_has_its_folder_and_shared_images() {
    let bed = Bed::start();
    bed.make_tenants().await;
    let (api, context, _) = stored(&bed, IN_ROLE, PASSWORD, &json!({}));
    let provider = looked(&api, &context).await;
    assert_eq!(words(&provider), ["Connected", "LoggedIn", "Complete", "Available"], "{:?}", provider.status);
    let deployment = uuid::Uuid::from_u128(0xabc);
    let place = crate::reach::providers::ClusterPlacement { deployment, cluster: "shop", networks: vec!["blue"] };
    let providers = &context.providers;
    let created = || bed.count("CreateFolder");
    let before = created().await;
    let found = providers.hypervisor(&provider, &place, false).await.unwrap();
    assert_eq!((found.vms().await.unwrap(), created().await), (Vec::new(), before), "nothing is made by looking");
    for _ in 0..2 {
        let made = providers.hypervisor(&provider, &place, true).await.unwrap();
        assert_eq!(made.deployment(), deployment);
    }
    assert_eq!(created().await, before + 1);
    let client = providers.session(&provider).await.unwrap();
    client.find(&format!("DC0/vm/tenants/{}", place.folder())).await.unwrap();
    let images = providers.images(&provider).await.unwrap();
    let at = crate::reach::providers::placement(vsphere(&provider).unwrap(), "a").unwrap();
    assert_eq!(images.templates(&"0a".repeat(32), &at).await.unwrap(), Vec::new());
    let green = crate::reach::providers::ClusterPlacement { networks: vec!["green"], ..place };
    let error = providers.hypervisor(&provider, &green, false).await.err().unwrap();
    assert!(error.to_string().contains("a network green"), "{error}");
    // After the term no folder is created.
    context.term.end();
    let other = crate::reach::providers::ClusterPlacement { deployment: uuid::Uuid::from_u128(1 << 100), ..green };
    let other = crate::reach::providers::ClusterPlacement { networks: vec!["blue"], ..other };
    assert!(providers.hypervisor(&provider, &other, true).await.is_err());
    assert_eq!(created().await, before + 1);
}

#[tokio::test]
async fn a_providers_limits_include_earlier_sessions() {
    let bed = Bed::start();
    let (api, context, provider) = stored(&bed, ADMINISTRATOR, PASSWORD, &json!({"requests": 1}));
    let earlier = context.providers.session(&provider).await.unwrap();
    let later = async || {
        // The password was rotated: a new session for the same Provider.
        api.put(&secret(LOOKER, PASSWORD));
        let later = context.providers.session(&provider).await.unwrap();
        assert_eq!(bed.count("Login").await, 2);
        later
    };
    share_one_request(&bed, earlier, later).await;
}

#[tokio::test]
async fn a_rejected_session_does_not_change_limits() {
    let bed = Bed::start();
    let (_, context, provider) = stored(&bed, ADMINISTRATOR, PASSWORD, &json!({"requests": 1}));
    let open = context.providers.session(&provider).await.unwrap();
    // The spec names another vCenter now that accepts the same account.
    let mut other = bed.provider(&json!({"requests": 64}));
    let before = Some("11111111-2222-3333-4444-555555555555".to_owned());
    other.status = Some(ProviderStatus { instance_uuid: before, ..ProviderStatus::default() });
    let refused = context.providers.session(&other).await.err().unwrap();
    assert!(matches!(refused.why, UnavailableReason::OtherServer(_)), "{refused}");
    share_one_request(&bed, open.clone(), async || open).await;
}
