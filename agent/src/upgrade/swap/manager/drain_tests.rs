//! The report of a node while it drains, and the last checks before the point of no return. Programs are stand-ins; etcd's
//! members and the API answer over real TLS.

use std::sync::Mutex;

use super::cuts::{Cluster, ID};
use super::tests::{request, taken};
use super::*;
use crate::cluster::etcd::fake::FakeEtcd;
use crate::upgrade::swap::facts;

/// A pod as the API returns it.
fn pod(name: &str, controller: Option<&str>) -> serde_json::Value {
    let owners: Vec<_> =
        controller.map(|kind| serde_json::json!({"kind": kind, "controller": true})).into_iter().collect();
    serde_json::json!({"metadata": {"namespace": "web", "name": name, "ownerReferences": owners}})
}

#[test]
fn pods_without_a_controller_are_named_before_deletion() {
    let cluster = Cluster::new();
    let (rig, manager) = cluster.started(None);
    cluster.api.has(vec![pod("debug", None), pod("front", Some("ReplicaSet"))], None);
    let (looked, seen) = (manager.clone(), Arc::new(Mutex::new(None)));
    let kept = Arc::clone(&seen);
    rig.kubernetes.on_drain(move || {
        *kept.lock().unwrap() = looked.state();
        true
    });
    rig.prepare(&manager);
    rig.is_prepared(&manager, "drained");
    let before = seen.lock().unwrap().clone().unwrap();
    assert_eq!((before.stage, &*before.losses.bare_pods), (Stage::Draining, &["web/debug".to_owned()][..]));
    assert_eq!(manager.state().unwrap().losses, before.losses);
    let log = std::fs::read_to_string(rig.path("/data/kaas/swaps.log")).unwrap();
    assert!(log.contains("node1 is drained: these pods have no controller and are deleted: web/debug"), "{log}");
}

#[test]
fn blocked_drain_has_its_own_code() {
    const WHY: &str = "The disruption budget front needs 1 healthy pods and has 1 currently";
    let cluster = Cluster::new();
    let front = || vec![pod("front", Some("ReplicaSet"))];
    let ending = || {
        let mut pod = pod("slow", Some("ReplicaSet"));
        pod["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z".into();
        vec![pod]
    };
    let table = [
        (front(), Some(WHY), "drain.blocked", "web/front (The disruption budget front needs 1 healthy"),
        (ending(), Some(WHY), "drain.unfinished", "have not ended after 1 s: web/slow"),
        (vec![], None, "swap.failed", "timed out"),
    ];
    for (pods, refusal, code, words) in table {
        for evacuates in [false, true] {
            let (rig, manager) = cluster.started(if evacuates { taken() } else { None });
            cluster.api.has(pods.clone(), refusal);
            rig.kubernetes.on_drain(|| false);
            if evacuates {
                rig.evacuate(&manager)
            } else {
                rig.prepare(&manager)
            }
            let swap = manager.state().map(|swap| (swap.stage, swap.code, swap.error));
            let evacuation = manager.evacuation().map(|state| (state.stage, state.code, state.error));
            let (stage, said, error) = if evacuates { evacuation } else { swap }.unwrap();
            assert_eq!((stage, said.as_deref()), (Stage::Failed, Some(code)));
            assert!(error.unwrap().contains(words), "{words}");
            rig.goes_on_as_before(&manager, code);
        }
    }
}

#[test]
fn etcd_is_checked_again_after_the_drain() {
    let cluster = Cluster::new();
    let (rig, manager) = cluster.started(None);
    type Breaks = fn(&FakeEtcd);
    let table: [(&str, Breaks); 2] = [
        ("the etcd member of node3 is not healthy", |etcd| etcd.make_ill(Some(3))),
        ("which members etcd has cannot be known", |etcd| {
            etcd.make_ill(None);
            etcd.lose_list();
        }),
    ];
    for (words, breaks) in table {
        let etcd = cluster.etcd.clone();
        rig.kubernetes.on_drain(move || {
            breaks(&etcd);
            true
        });
        let purpose = Purpose::Swap(request(ID.as_u128()));
        let cancelled = AtomicBool::new(false);
        let (context, runner, settling) = (&rig.context, &rig.kubernetes, Duration::ZERO);
        let work = PreparationTask { context, purpose: &purpose, cancelled: &cancelled, runner, settling };
        let error = work.run(&mut |_, _| Ok(true)).unwrap_err();
        let refused = failure(&error, &codes::SWAP_FAILED);
        assert!(refused.code == "swap.quorum" && refused.reason.contains(words), "{refused}");
        manager.undo(&rig.context, &purpose, &rig.kubernetes).unwrap();
        rig.goes_on_as_before(&manager, words);
    }
}

#[test]
fn unreadable_member_list_gives_no_etcd_facts() {
    let cluster = Cluster::new();
    let (rig, manager) = cluster.started(None);
    let told = || facts::node(&rig.context, manager.state(), manager.evacuation()).unwrap();
    let etcd = told().etcd.unwrap();
    assert_eq!(etcd.members.iter().map(|member| member.healthy).collect::<Vec<_>>(), [true; 3]);
    let pods = told().pods.unwrap();
    assert_eq!((pods.cordoned, pods.losses), (Some(false), Some(Losses::default())));
    cluster.etcd.lose_list();
    assert_eq!(told().etcd, None);
}
