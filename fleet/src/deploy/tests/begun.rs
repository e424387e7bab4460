//! What a cluster was begun with, and with what it goes on.

use contract::deployer::PrivateKey;
use contract::properties::DEPLOYER_PUBLIC_KEY;

use super::fake::{World, wanted};
use crate::deploy::{Arrived, Wanted, Wish, records};

/// A cluster whose VMs are told a deployer's key.
fn wanted_by(key: &PrivateKey) -> Wanted {
    let mut wanted = wanted(1);
    let public = key.public().unwrap().to_string();
    wanted.nodes[0].properties.insert(DEPLOYER_PUBLIC_KEY.to_owned(), public);
    Wanted { digests: key.digests().unwrap(), ..wanted }
}

/// Two operators have each drawn one, for neither had seen anything of the other.
#[tokio::test(start_paused = true)]
async fn who_comes_with_another_deployers_key_than_vms_were_told_is_refused_by_its_fingerprint() {
    let keys = [PrivateKey::draw().unwrap(), PrivateKey::draw().unwrap()];
    let [first, second] = keys.each_ref().map(wanted_by);
    let world = World::new();
    world.lock().refuses = true;
    let (arrived, _) = world.give(Wish::Deploy(&first)).await.arrived();
    assert!(matches!(arrived, Arrived::Stopped(_)), "{arrived:?}");
    // Nothing was made with that key: the other one counts from now on.
    world.lock().refuses = false;
    world.lock().ill = true;
    world.give(Wish::Deploy(&second)).await.arrived();
    let noted = records::read(&world).await.unwrap().unwrap().deployer;
    assert_eq!(noted, second.deployer());
    let before = world.lock().machines.clone();
    let refused = world.give(Wish::Deploy(&first)).await.failed();
    for wanted in [&first, &second] {
        assert!(refused.contains(&wanted.deployer().unwrap().to_string()), "{refused}");
    }
    assert_eq!(world.lock().machines, before);
    // The nodes of a cluster that has formed may have been given another one since.
    world.lock().ill = false;
    for wanted in [&second, &first] {
        let (arrived, _) = world.give(Wish::Deploy(wanted)).await.arrived();
        assert!(matches!(arrived, Arrived::Up(_)), "{arrived:?}");
    }
    assert_eq!(records::read(&world).await.unwrap().unwrap().deployer, noted);
}
