use std::collections::BTreeSet;

use super::*;
use crate::lease::{LeaseState, standing};
use crate::upgrade::Mode;
use crate::upgrade::tests::command::deployment;
use crate::upgrade::tests::fake::{Ill, World};

async fn renewed(world: &World) -> anyhow::Result<Vec<String>> {
    deployment(world, &|_| ()).renew_certificates(Duration::from_secs(30), TakeOver::FromTheDead).await
}

/// The nodes that were asked, once for each request, and the number of renewals.
fn asked(world: &World) -> (Vec<&'static str>, usize) {
    let renewals = world.lock().renewals.clone();
    let ids: BTreeSet<Uuid> = renewals.iter().map(|(_, id)| *id).collect();
    (renewals.into_iter().map(|(node, _)| node).collect(), ids.len())
}

#[tokio::test(start_paused = true)]
async fn certificates_are_renewed_one_by_one_leader_last() {
    let world = World::of(3, Mode::Rolling, Ill::Well);
    assert_eq!(renewed(&world).await.unwrap(), ["cp2", "cp3", "cp1"]);
    assert_eq!(asked(&world), (vec!["cp2", "cp2", "cp3", "cp3", "cp1", "cp1"], 3));
    assert_eq!(standing(&world).await.unwrap(), LeaseState::Free, "the deployment is given back");
}

#[tokio::test(start_paused = true)]
async fn an_unhealthy_cluster_keeps_all_its_certificates() {
    let world = World::of(3, Mode::Rolling, Ill::Well);
    world.lock().sick.insert("cp3");
    let error = renewed(&world).await.unwrap_err().to_string();
    assert!(error.starts_with("no certificate was renewed:"), "{error}");
    assert!(error.contains("upgrade.node-not-ready: cp3"), "{error}");
    assert_eq!(asked(&world), (Vec::new(), 0));
}

#[tokio::test(start_paused = true)]
async fn next_node_waits_for_a_healthy_one_before() {
    let world = World::of(3, Mode::Rolling, Ill::Well);
    let watch = |notice: &Notice<'_>| {
        if matches!(notice, Notice::Waiting { what, .. } if what.starts_with("cp2")) {
            world.lock().sick.insert("cp2");
        }
    };
    let given = deployment(&world, &watch).renew_certificates(Duration::from_secs(30), TakeOver::FromTheDead).await;
    let error = given.unwrap_err();
    assert!(error.downcast_ref::<NotRenewed>().is_some(), "{error:#}");
    let said = "cannot renew the certificates of cp2 (renewed: none; not begun: cp3, cp1): after 30 s";
    assert!(format!("{error:#}").starts_with(said), "{error:#}");
    assert_eq!(asked(&world).0, ["cp2", "cp2"], "cp3 and cp1 keep theirs");
}

#[tokio::test(start_paused = true)]
async fn refusal_ends_renewal_and_names_renewed_nodes() {
    let world = World::of(3, Mode::Rolling, Ill::Well);
    let watch = |notice: &Notice<'_>| {
        if matches!(notice, Notice::Done { note } if note.starts_with("cp2")) {
            world.lock().refusing.insert("cp3");
        }
    };
    let given = deployment(&world, &watch).renew_certificates(Duration::from_secs(30), TakeOver::FromTheDead).await;
    let error = given.unwrap_err();
    assert!(!error.is::<NotRenewed>(), "{error:#}");
    let said = "cannot renew the certificates of cp3 (renewed: cp2; not begun: cp1): it refuses: ";
    assert!(format!("{error:#}").starts_with(said), "{error:#}");
}

#[tokio::test(start_paused = true)]
async fn cancelled_renewal_names_the_renewed_nodes() {
    let world = World::of(3, Mode::Rolling, Ill::Well);
    let (end, cancelled) = tokio::sync::watch::channel(false);
    let watch = |notice: &Notice<'_>| {
        if matches!(notice, Notice::Waiting { what, .. } if what.starts_with("cp3")) {
            end.send_replace(true);
        }
    };
    let deployment = Deployment { cancelled, ..deployment(&world, &watch) };
    let given = deployment.renew_certificates(Duration::from_secs(30), TakeOver::FromTheDead).await;
    let error = given.unwrap_err();
    assert!(error.is::<NotRenewed>(), "{error:#}");
    let said = "cannot renew the certificates of cp3 (renewed: cp2; not begun: cp1): asked to end";
    assert_eq!(format!("{error:#}"), said);
}
