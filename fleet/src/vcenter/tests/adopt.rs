//! A cluster in VMs that an operator imported by hand: adopted, and then upgraded.

use super::mirrored::Mirrored;
use super::upgrade::{Cluster, deployment};
use super::*;
use crate::lease::{DirectoryStore, TakeOver};
use crate::upgrade::tests::fake::NODES;
use crate::upgrade::{Adoption, Deployment, Outcome, Refusals, Request, RunOutcome};
use crate::vcenter::Site;

#[tokio::test]
async fn adopted_vms_are_found_by_later_commands() {
    let cluster = Cluster::by_hand(3).await;
    let directory = tempfile::tempdir().unwrap();
    let (mirrored, snapshots) = (cluster.mirrored(), DirectoryStore::at(directory.path().to_owned()));
    let deployment = deployment(&mirrored, &cluster.store, &snapshots);
    let (ova, options) = (&cluster.guests.target.ova, &cluster.guests.options);
    assert_eq!(cluster.hypervisor.vms().await.unwrap(), []);
    assert!(deployment.plan(ova, options).await.is_err(), "they are nobody's yet");

    let adoptions = deployment.adoptable().await.unwrap();
    let shown: Vec<_> = adoptions.iter().map(|it| (it.node.as_str(), it.vm.name.as_str())).collect();
    assert_eq!(shown, NODES[..3].iter().map(|node| (*node, *node)).collect::<Vec<_>>());
    deployment.adopt(&adoptions, TakeOver::FromTheDead).await.unwrap();
    assert!(deployment.adoptable().await.unwrap().is_empty());
    cluster.runs(false, 1).await;
    for Adoption { node, vm, .. } in &adoptions {
        assert_eq!(cluster.hypervisor.again(vm).await.stamp, Some(stamp(node, None)));
    }

    // A command that searches another folder reports their place: they are neither gone nor another deployment's.
    let site = Site { folder: "elsewhere".to_owned(), ..cluster.bed.site() };
    let other = cluster.bed.hypervisor_of(DEPLOYMENT, &site).await;
    let mirrored = Mirrored { vcenter: &other, guests: &cluster.guests };
    let away = Deployment { hypervisor: &mirrored, cancelled: deployment.cancelled.clone(), ..deployment };
    let adopted = away.adoptable().await.unwrap_err();
    for error in [away.plan(ova, options).await.unwrap_err(), adopted] {
        assert!(error.to_string().contains("is in the folder control, which is not among"), "{error:#}");
    }
    let refused = away.plan(ova, options).await.unwrap_err();
    let codes: Vec<&str> = refused.downcast_ref::<Refusals>().unwrap().0.iter().map(|one| one.code).collect();
    assert_eq!(codes, ["upgrade.vm-moved"; 3]);

    deployment.plan(ova, options).await.unwrap();
    assert_eq!(cluster.give(None).await.unwrap(), RunOutcome::Ended(Outcome::Upgraded));
    cluster.runs(true, 2).await;
    let status = deployment.status().await.unwrap();
    assert_eq!((status.outcome, status.plan.nodes.len()), (Some(Outcome::Upgraded), 3));
    assert_eq!(cluster.give(Some(Request::Commit)).await.unwrap(), RunOutcome::Ended(Outcome::Committed));
    cluster.runs(true, 1).await;
}
