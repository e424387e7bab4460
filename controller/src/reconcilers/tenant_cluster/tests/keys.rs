//! Keys of an earlier version are moved to `kaas-system`, and the deployer's key is replaced. Finding 1 of controller.md.

use std::net::Ipv4Addr;

use contract::deployer::{PrivateKey, public_keys};
use contract::kubeconfig::Kubeconfig;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

use super::{Mortal, World, fixture};
use crate::objects::SYSTEM;

const TEAM: Option<&str> = Some("team-blue");

impl World {
    /// A ready cluster as an earlier version left it: its keys and the deployer's kubeconfig are in its namespace.
    async fn of_an_earlier_version() -> Self {
        let world = Self::ready().await;
        let (mut keys, own) = (world.keys().data.unwrap(), world.own_kubeconfig());
        keys.remove("kubeconfig");
        let mut former = world.secret("shop-kubeconfig");
        (former.metadata.name, former.metadata.uid) = (Some("shop-deployer".to_owned()), None);
        (former.type_, former.data) = (Some("Opaque".to_owned()), Some(keys));
        world.api.put(&former);
        world.put_kubeconfig(&own);
        world.remove_keys();
        assert_eq!(world.api.names("secrets"), ["shop-deployer", "shop-kubeconfig"]);
        world
    }

    fn field(&self, name: &str) -> Option<String> {
        let keys: Secret = self.api.read(Some(SYSTEM), fixture::UID)?;
        let value: ByteString = keys.data?.get(name)?.clone();
        Some(String::from_utf8(value.0).unwrap())
    }

    /// The keys in all stored Secrets that are now used: the present key, the next one, and that of an earlier version.
    fn stored(&self) -> Vec<String> {
        let former: Option<Secret> = self.api.read(TEAM, "shop-deployer");
        let former = former.map(|former| String::from_utf8(former.data.unwrap()["key.pem"].0.clone()).unwrap());
        [self.field("key.pem"), self.field("next.pem"), former].into_iter().flatten().collect()
    }

    /// Whether all nodes accept a private key in PEM.
    fn fits(&self, pem: &str) -> bool {
        let public = PrivateKey::of_pem(pem).unwrap().public().unwrap();
        let state = self.place.lock();
        let formed = state.forms.values().find_map(|form| form.get("deployer-public-key").cloned()).unwrap();
        let nodes = self.status()["deployment"]["nodes"].clone();
        let nodes: Vec<Ipv4Addr> =
            nodes.as_array().unwrap().iter().map(|node| node["address"].as_str().unwrap().parse().unwrap()).collect();
        assert!(nodes.len() == 3 && state.deployer_keys.keys().all(|node| nodes.contains(node)), "{nodes:?}");
        let has =
            |node: &Ipv4Addr| public_keys(state.deployer_keys.get(node).unwrap_or(&formed)).unwrap().contains(&public);
        nodes.iter().all(has)
    }

    fn is_replaced(&self) -> bool {
        self.field("key.pem").is_some() && self.field("stage").is_none()
    }
}

#[tokio::test(start_paused = true)]
async fn exposed_keys_are_moved_and_replaced() {
    let world = World::of_an_earlier_version().await;
    let (former, exposed) = (world.stored().remove(0), world.kubeconfig());
    world.until("replaced", World::is_replaced).await;
    world.is_whole("its keys were moved");
    let present = world.field("key.pem").unwrap();
    assert!(present != former && world.fits(&present) && !world.fits(&former));
    let user = |text: &str| Kubeconfig::parse(text).unwrap().user().unwrap();
    assert!(user(&exposed).starts_with("system:kaas:deployer:"));
    assert!(user(&world.kubeconfig()).starts_with("kaas:kubeconfig:"));
    world.until("ready", World::is_ready).await;
    // Nothing is replaced again, nor in a new cluster.
    world.reconciles(5, 60).await;
    assert_eq!(world.field("key.pem").unwrap(), present);
    let new = World::ready().await;
    let drawn = new.field("key.pem");
    new.reconciles(5, 60).await;
    assert_eq!((new.field("key.pem"), new.place.lock().deployer_keys.len()), (drawn, 0));
    world.is_deleted("its keys are in kaas-system").await;
}

/// After a rollback of the control cluster the earlier version leads again.
#[tokio::test(start_paused = true)]
async fn keys_stay_until_the_control_cluster_is_committed() {
    let mut world = World::of_an_earlier_version().await;
    let (stored, exposed) = (world.stored(), world.kubeconfig());
    world.is_marked = false;
    world.reconciles(48, 3600).await;
    assert_eq!(world.api.names("secrets"), ["shop-deployer", "shop-kubeconfig"]);
    assert!(world.is_ready() && world.stored() == stored);
    let user = Kubeconfig::parse(&world.kubeconfig()).unwrap().user().unwrap();
    assert!(world.kubeconfig() != exposed && user.starts_with("system:kaas:deployer:"), "it was renewed: {user}");
    world.is_marked = true;
    world.until("replaced", World::is_replaced).await;
    world.is_whole("it was committed");
}

#[tokio::test(start_paused = true)]
async fn one_stored_key_fits_after_each_cut() {
    for before in [true, false] {
        let world = World::of_an_earlier_version().await;
        let mut cuts = 0;
        while !world.is_replaced() {
            // Each controller gets one call further than the one before, from where that has stopped.
            let _ = world.reconcile_at(&Mortal::new(&world.api, Some((cuts % 90, before)))).await;
            let stored = world.stored();
            assert!(stored.iter().any(|pem| world.fits(pem)), "no stored key fits after {cuts} cuts");
            if let Some(present) = world.field("key.pem") {
                assert!(world.fits(&present), "the present key does not fit after {cuts} cuts");
            }
            tokio::time::sleep(std::time::Duration::from_secs(15)).await;
            cuts += 1;
            assert!(cuts < 2000, "it goes no further: {:?}", world.field("stage"));
        }
        world.until("ready", World::is_ready).await;
        world.is_whole("all was cut");
    }
}

/// Some nodes answer, others do not, and then the controller looks again.
#[tokio::test(start_paused = true)]
async fn a_silent_node_delays_the_replacement() {
    for answers in 0..6 {
        let world = World::of_an_earlier_version().await;
        world.place.lock().configures = Some(answers);
        world.reconciles(20, 60).await;
        assert!(!world.is_replaced());
        assert!(world.fits(&world.field("key.pem").unwrap()), "{answers}");
        world.place.lock().configures = None;
        world.until("replaced", World::is_replaced).await;
        assert!(world.fits(&world.field("key.pem").unwrap()), "{answers}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_older_image_keeps_its_key() {
    let world = World::of_an_earlier_version().await;
    world.place.lock().takes_one_key = true;
    let former = world.stored().remove(0);
    world.reconciles(20, 60).await;
    world.is_whole("its keys were moved");
    assert_eq!((world.field("key.pem"), world.field("stage").as_deref()), (Some(former), Some("exposed")));
    assert!(world.is_ready() && world.place.lock().deployer_keys.is_empty());
    world.place.lock().takes_one_key = false;
    world.until("replaced", World::is_replaced).await;
}

/// A tenant writes keys before the first VM.
#[tokio::test(start_paused = true)]
async fn keys_of_a_tenant_are_not_used() {
    let earlier = World::of_an_earlier_version().await;
    let forged: Secret = earlier.api.read(TEAM, "shop-deployer").unwrap();
    let world = World::new();
    world.api.put(&forged);
    world.until("ready", World::is_ready).await;
    let pem = String::from_utf8(forged.data.unwrap()["key.pem"].0.clone()).unwrap();
    assert_ne!(world.field("key.pem").unwrap(), pem);
    world.is_deleted("a Secret of the former name exists").await;
}
