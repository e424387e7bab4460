//! Holds and journals of `fleet` as objects of a real API server: a part of the story of the kinds.

use std::path::Path;

use controller::reach::{Api, ClusterStore, Swap};
use controller::term::Term;
use fleet::control_plane::{self, Records};
use fleet::journals::File;
use fleet::lease::{Lease, Store as _, TakeOver};
use fleet::upgrade::{Action, Event, Journal, Outcome, Plan, Reason, Step};
use scenarios::api_server::ApiServer;
use serde_json::{Value, json};
use tokio::runtime::Builder;

const CLUSTER: &str = "/apis/kaas.local/v1alpha1/namespaces/team-blue/tenantclusters/shop";

/// The record of a cluster, which has formed or not.
fn kept(formed: bool) -> control_plane::DeploymentRecord {
    let kept = json!({
        "cluster": "shop", "id": "6f1c2f0e-7a57-4b8f-9d55-2a1f0b3c4d5e", "lifecycle": "Active", "formed": formed,
        "image": {"digest": format!("sha256:{}", "0a".repeat(32)), "name": "kaas-tenant 0.2.0"},
        "nodes": [{"name": "shop-cp1", "address": "192.168.10.21", "settingsHash": "0c".repeat(32)}],
    });
    serde_json::from_value(kept).expect("what is kept")
}

fn plan() -> Plan {
    let id = "b3a1c5d7-0f5e-4a30-8c1b-4d7e9a550d6a";
    let plan = json!({
        "id": id, "deployment": id, "cluster": id, "members": [], "grounds": [], "nodes": [],
        "target": {
            "ova": "a.ova", "digest": "0b".repeat(32), "name": "kaas-tenant", "kubernetes": ["1.36"], "signer": null,
            "image": {"version": "0.2.0", "build": "0c".repeat(16)},
        },
        "options": {
            "mode": "rolling", "gate_seconds": 900, "drain_seconds": 300, "on_failure": "node", "downgrade": false,
            "publisher": null,
        },
        "steps": [{"action": "verify"}, {"action": "snapshot"}],
    });
    serde_json::from_value(plan).expect("a plan")
}

/// One hold begins, the next one goes on, and who was overtaken writes nothing more.
pub fn holds_and_journals_are_kept_as_objects(server: &ApiServer) {
    let inside = |kubeconfig: &Path| {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async { kept_and_read(Api::connect(Some(kubeconfig)).await.expect("a client")).await });
    };
    server.inside(inside).unwrap_or_else(|error| panic!("{error:#}"));
    let read = |path: &str| -> Value { server.read(path).unwrap_or_else(|error| panic!("{error:#}")) };
    let deployment = read(CLUSTER)["status"]["deployment"].clone();
    assert_eq!((&deployment["lease"], &deployment["formed"]), (&json!(2), &json!(true)));
    let operation = read(&format!("/apis/kaas.local/v1alpha1/namespaces/team-blue/operations/shop-{}", plan().id));
    assert_eq!(operation["spec"]["plan"]["id"], plan().id.to_string());
    let events: Vec<&str> = (0..5).filter_map(|at| operation["status"]["entries"][at]["event"].as_str()).collect();
    assert_eq!(events, ["planned", "begun", "paused", "done", "ended"]);
    let leases = read("/apis/coordination.k8s.io/v1/namespaces/kaas-system/leases");
    assert_eq!(leases["items"].as_array().map(Vec::len), Some(3));
}

async fn kept_and_read(api: Api) {
    let [from_image, to_image] = ["kaas-tenant-0.1.0", "kaas-tenant-0.2.0"].map(str::to_owned);
    let swap = Swap { from_image, to_image, sizes: (None, None), class: None, generation: 1 };
    let store = ClusterStore::new(&api, "team-blue", "shop", &Term::unlimited("controller-1")).beginning(swap);
    let take = || Lease::acquire(&store, "a scenario", TakeOver::FromTheDead, &|_| {});
    let step = Step::whole(Action::Verify);
    let paused = |code: &str| Event::Paused { step, reason: Reason::new(code, "it waits"), looked: 1 };

    let first = take().await.expect("a hold");
    assert!(take().await.is_err(), "it is held");
    let mut records = Records::begin(&first, kept(false)).await.expect("a record");
    let mut journal = Journal::begin(&first, plan()).await.expect("a journal");
    for event in [
        Event::Begun { step, disk: None, vm: None, copy: None, datastore: None, settings: None },
        paused("one"),
        paused("two"),
        paused("one"),
    ] {
        journal.append(event).await.expect("an entry");
    }
    records.save(kept(true)).await.expect("a record");
    first.release().await;

    let second = take().await.expect("a hold");
    assert_eq!(second.number(), 2);
    let mut continued = Journal::continued(&second).await.expect("a journal");
    assert_eq!((continued.plan(), continued.entries().len()), (&plan(), 3), "{:?}", continued.entries());
    let done = Event::Done { step, note: "whole".to_owned(), vm: None, replaced: false, copies: Vec::new() };
    continued.append(done).await.expect("an entry");
    let late = json!({"at": 1, "lease": 1, "event": "ended", "outcome": "upgraded"}).to_string();
    for (file, text) in [("journal-000009.json", late), (File::UPGRADE, String::new())] {
        assert!(store.write(1, file, &text).await.is_err(), "{file} of a hold that was overtaken");
    }
    continued.append(Event::Ended { outcome: Outcome::Upgraded }).await.expect("an entry");
    Records::begin(&second, kept(true)).await.expect("a record");
    let stale = serde_json::to_string(&kept(false)).expect("a record");
    assert!(store.write(1, File::DEPLOYMENT, &stale).await.is_err(), "a record of a hold that was overtaken");
    second.release().await;

    let third = take().await.expect("a hold");
    let read = Journal::continued(&third).await.expect("a journal");
    assert_eq!(read.entries().len(), 5);
    third.release().await;
}
