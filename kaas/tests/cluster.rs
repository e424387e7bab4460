//! `kaas cluster` and `kaas provider` as they are called, before an API server in memory: what they ask for, what they wait for,
//! and how they end.

mod control;
mod schemas;
mod support;
mod unchanged;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use contract::kubeconfig::Kubeconfig;
use contract::secret::Secret;
use controller::objects::{ADOPT, CONFIRM_DELETE, DO};
use fleet::nodes::Credentials;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

use control::{Bed, Kept};

const CREATE: &str = "cluster create shop --namespace team-blue --provider dc1 --kubernetes 1.36 --network blue \
                      --endpoint 192.168.10.10 --control-nodes 3 --workers 2 --worker-class medium";
const SHOP: &str = "/apis/kaas.local/v1alpha1/namespaces/team-blue/tenantclusters/shop";
const POOL: &str = "/apis/kaas.local/v1alpha1/namespaces/team-blue/nodepools/shop-workers";

/// A bed with a cluster that is Ready, and its pool of two.
fn with_shop() -> Bed {
    let bed = Bed::start();
    bed.says(0, &format!("{CREATE} --wait=false"));
    let mut kept = bed.kept();
    kept.says("tenantclusters", "shop", "Ready", "True", "Available");
    kept.says("tenantclusters", "shop", "UpToDate", "True", "Current");
    kept.object("tenantclusters", "shop")["status"]["resolved"] =
        json!({"endpoint": "192.168.10.10", "image": "kaas-tenant-0.2.0"});
    kept.says("nodepools", "shop-workers", "Ready", "True", "AllReady");
    for count in ["replicas", "readyReplicas"] {
        kept.object("nodepools", "shop-workers")["status"][count] = 2.into();
    }
    kept.asked.clear();
    drop(kept);
    bed
}

#[test]
fn create_waits_for_a_cluster_and_its_workers() {
    let bed = Bed::start();
    bed.acts(|kept, look| {
        match look {
            // Before it is made, and before anybody has judged it.
            1 | 2 => {}
            3 => kept.says("tenantclusters", "shop", "ControlPlaneReady", "False", "Forming"),
            _ => {
                kept.says("tenantclusters", "shop", "ControlPlaneReady", "True", "AllReady");
                kept.says("tenantclusters", "shop", "Ready", "True", "Available");
                kept.says("nodepools", "shop-workers", "Ready", "True", "AllReady");
                kept.object("tenantclusters", "shop")["status"]["resolved"]["endpoint"] = "192.168.10.10".into();
            }
        }
    });
    let (out, err) = bed.says(0, CREATE);
    let expected = "the cluster shop with one pool is asked for\n\
                    shop: the controller has not reconciled it yet\n";
    assert!(out.starts_with(expected) && err.is_empty(), "{out}{err}");
    assert!(out.contains("shop: ControlPlaneReady is False (Forming): as it is\n"), "{out}");
    assert!(out.ends_with("the cluster shop is Ready: https://192.168.10.10:6443\n"), "{out}");
    let mut kept = bed.kept();
    // All are judged before any is made.
    let patches = [SHOP, POOL, SHOP, POOL].map(|path| format!("PATCH {path}"));
    assert_eq!(kept.written(), patches);
    let dry: Vec<bool> = kept
        .asked
        .iter()
        .filter(|one| one.line.starts_with("PATCH"))
        .map(|one| one.line.contains("dryRun=All"))
        .collect();
    assert_eq!(dry, [true, true, false, false]);
    let spec = json!({
        "providerRef": {"name": "dc1"},
        "version": "1.36",
        "controlPlane": {"replicas": 3},
        "network": {"name": "blue", "endpoint": {"address": "192.168.10.10"}},
    });
    assert_eq!(kept.object("tenantclusters", "shop")["spec"], spec);
    let pool = json!({"clusterRef": {"name": "shop"}, "replicas": 2, "vmClass": "medium"});
    assert_eq!(kept.object("nodepools", "shop-workers")["spec"], pool);
}

#[test]
fn where_one_object_is_refused_none_is_made() {
    let bed = Bed::start();
    bed.kept().refuses = Some(("nodepools", "whoever asks may make none"));
    let (out, err) = bed.says(1, CREATE);
    assert!(out.is_empty() && err.contains("the API server refuses it: nodepools is forbidden"), "{out}{err}");
    assert!(!bed.kept().has("tenantclusters", "shop") && bed.kept().objects.is_empty());
    bed.kept().refuses = None;
    let file = bed.file(
        "shop.yaml",
        "apiVersion: kaas.local/v1alpha1\nkind: TenantCluster\nmetadata: {name: shop}\nspec: {version: 1.36}\n",
    );
    let (_, err) = bed.says(1, &format!("cluster create --file {file}"));
    assert!(err.contains("the API server refuses it") && bed.kept().objects.is_empty(), "{err}");
    let (out, _) = bed.says(0, &format!("{CREATE} --dry-run"));
    assert_eq!(out, "the API server accepts the cluster shop with one pool\n");
    for format in ["yaml", "json"] {
        let (objects, _) = bed.says(0, &format!("{CREATE} --dry-run -o {format}"));
        let file = bed.file("printed", &objects);
        let (again, _) = bed.says(0, &format!("cluster create -f {file} --dry-run -o {format}"));
        assert_eq!(again, objects);
    }
    let pool = "pool create shop-two --cluster shop --worker-class large -n team-blue --dry-run -o yaml";
    let (_, err) = bed.says(1, pool);
    assert!(err.contains("there is no cluster shop in the namespace team-blue"), "{err}");
    assert!(bed.kept().objects.is_empty());
    // A name leads to no other object.
    bed.says(2, "cluster get shop --namespace a/../b");
    assert!(bed.kept().asked.iter().all(|asked| !asked.line.contains("..")));
}

#[test]
fn a_repeated_create_undoes_no_later_change() {
    let bed = with_shop();
    bed.says(0, "pool scale shop-workers 1 -n team-blue --wait=false");
    let (out, _) = bed.says(0, &format!("{CREATE} --dry-run"));
    assert_eq!(out.matches("shop-workers: .spec.replicas from 1 to 2\n").count(), 1, "{out}");
    let (out, _) = bed.says(0, &format!("{CREATE} --wait=false"));
    assert_eq!(out.matches("shop-workers: .spec.replicas from 1 to 2\n").count(), 1, "more take nothing away: {out}");
    assert_eq!(bed.kept().object("nodepools", "shop-workers")["spec"]["replicas"], 2);
    // Later changes of another user stay: without the check they would be lost unnoticed.
    bed.says(0, "pool scale shop-workers 10 -n team-blue --wait=false");
    bed.says(0, "cluster upgrade shop -n team-blue --kubernetes 1.37 --image kaas-tenant-0.3.0 --wait=false");
    bed.kept().asked.clear();
    let upgraded = CREATE.replace("1.36", "1.37");
    for (create, words) in [
        (CREATE.to_owned(), ".spec.version from 1.37 to 1.36. "),
        (format!("{upgraded} --image kaas-tenant-0.2.0"), ".spec.image from kaas-tenant-0.3.0 to kaas-tenant-0.2.0. "),
        (upgraded, "shop-workers: .spec.replicas from 10 to 2. "),
    ] {
        let (_, err) = bed.says(1, &format!("{create} --wait=false"));
        assert!(err.contains(words) && err.contains("`kaas cluster upgrade`"), "{err}");
    }
    assert!(bed.kept().asked.iter().all(|asked| !asked.line.contains("force=true")));
    assert_eq!(bed.kept().object("nodepools", "shop-workers")["spec"]["replicas"], 10);
    bed.kept().owners.values_mut().for_each(|owner| *owner = "kubectl-edit");
    let (_, err) = bed.says(1, &format!("{CREATE} --wait=false"));
    assert!(err.contains("the API server refuses it: Apply failed with 1 conflicts"), "{err}");
}

#[test]
fn blocked_clusters_end_waits_and_stuck_ones_pause() {
    let bed = Bed::start();
    let paused = bed.json(3, &format!("{CREATE} --timeout 0s"));
    let why = "shop: the controller has not reconciled it yet";
    assert_eq!((&paused["arrived"], &paused["reasons"][0]), (&json!("paused"), &json!(why)));
    assert_eq!(paused["cluster"]["metadata"]["name"], "shop");
    bed.acts(|kept, _| {
        kept.says("tenantclusters", "shop", "Preflight", "False", "AddressesMissing");
        kept.says("tenantclusters", "shop", "Progressing", "False", "Blocked");
    });
    let (_, err) = bed.says(4, CREATE);
    assert!(err.contains("error: shop: Progressing is False (Blocked)"), "{err}");
    assert!(err.contains("Preflight is False (AddressesMissing)"), "{err}");
    bed.kept().object("tenantclusters", "shop")["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z".into();
    let (_, err) = bed.says(1, CREATE);
    assert!(err.contains("the cluster shop is being deleted: wait until it is gone"), "{err}");
}

#[test]
fn clusters_are_listed_by_page_and_shown() {
    let bed = with_shop();
    for name in ["bakery", "cafe", "depot"] {
        bed.kept().put("tenantclusters", "team-red", name, json!({}));
    }
    let (out, _) = bed.says(0, "cluster get --all-namespaces");
    let names: Vec<&str> = out.lines().map(|line| line.split_whitespace().nth(1).unwrap()).collect();
    assert_eq!(names, ["NAME", "shop", "bakery", "cafe", "depot"], "{out}");
    let (out, _) = bed.says(0, "cluster get -n team-blue");
    assert_eq!(out.lines().count(), 2, "{out}");
    let (out, _) = bed.says(0, "cluster get shop -n team-blue");
    assert!(out.contains("Ready is True (Available): as it is") && out.contains("shop-workers  2"), "{out}");
    let shown = bed.json(0, "cluster get shop -n team-blue");
    assert_eq!(shown["pools"][0]["spec"]["vmClass"], "medium");
    let all = bed.json(0, "cluster get -A");
    assert_eq!(all["clusters"].as_array().unwrap().len(), 4);
    let (_, err) = bed.says(1, "cluster get nobody -n team-blue");
    assert!(err.contains("there is no cluster nobody in the namespace team-blue"), "{err}");
}

/// From the third look, the pool has three workers, and all are Ready.
fn scales_to_three(kept: &mut Kept, look: usize) {
    if look > 2 {
        for count in ["replicas", "readyReplicas"] {
            kept.object("nodepools", "shop-workers")["status"][count] = 3.into();
        }
        kept.says("nodepools", "shop-workers", "Ready", "True", "AllReady");
    }
}

/// Issue 43, leftover 2: the change and the wait for it continue.
#[test]
fn closed_output_does_not_end_a_change() {
    let bed = with_shop();
    bed.acts(scales_to_three);
    assert_eq!(bed.unread("pool scale shop-workers 3 -n team-blue"), (Some(0), String::new()));
    assert_eq!(bed.kept().object("nodepools", "shop-workers")["status"]["readyReplicas"], 3);
    assert_eq!(bed.kept().object("nodepools", "shop-workers")["spec"]["replicas"], 3);
}

#[test]
fn scaling_uses_the_subresource_and_waits() {
    let bed = with_shop();
    bed.acts(scales_to_three);
    let (out, _) = bed.says(0, "pool scale shop-workers 3 -n team-blue");
    assert!(out.ends_with("the pool shop-workers has 3 workers, and all are Ready\n"), "{out}");
    assert_eq!(bed.kept().written(), [format!("PATCH {POOL}/scale")]);
    assert_eq!(bed.kept().object("nodepools", "shop-workers")["spec"]["replicas"], 3);
    let (_, err) = bed.says(1, "pool scale shop-two 3 -n team-blue");
    assert!(err.contains("there is no pool shop-two in the namespace team-blue"), "{err}");
    assert_eq!(bed.kept().written().len(), 1);

    let two = "pool create shop-two --cluster shop --worker-class large --workers 2 -n team-blue --wait=false";
    for _ in 0..2 {
        let (out, _) = bed.says(0, two);
        assert!(out.contains("the pool shop-two of 2 workers is requested"), "{out}");
    }
    assert_eq!(bed.kept().written().len(), 2);
    let (_, err) = bed.says(1, &two.replace("large", "small"));
    assert!(err.contains("the pool shop-two exists, and its vmClass is \"large\", not \"small\""), "{err}");
    let (_, err) = bed.says(1, &two.replace("--cluster shop", "--cluster other"));
    assert!(err.contains("there is no cluster other in the namespace team-blue"), "{err}");

    bed.kept().put("nodepools", "team-blue", "other-one", json!({"spec": {"clusterRef": {"name": "other"}}}));
    let names = |arguments: &str| {
        let listed = bed.json(0, arguments);
        let pools = listed["pools"].as_array().unwrap().iter();
        pools.map(|pool| pool["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("pool list -A"), ["other-one", "shop-two", "shop-workers"]);
    assert_eq!(names("pool list -n team-blue --cluster shop"), ["shop-two", "shop-workers"]);
    let (out, _) = bed.says(0, "pool list -n team-blue --cluster shop");
    assert!(out.contains("team-blue  shop-two      shop     2         -      -        large   "), "{out}");

    let (_, err) = bed.says(1, "pool delete shop-two -n team-blue --confirm shop");
    assert!(err.contains("not confirmed: the pool is shop-two; nothing was changed"), "{err}");
    let (_, err) = bed.says(1, "pool delete shop-two -n team-blue");
    let going = "The pool shop-two of the cluster shop in the namespace team-blue is deleted: ";
    let place = format!("\nThe control cluster is https://127.0.0.1:{} (context admin).\n", bed.port);
    assert!(err.starts_with(going) && err.contains(&place), "{err}");
    let (out, _) = bed.says(0, "pool delete shop-two -n team-blue --confirm shop-two --wait=false");
    assert!(out.starts_with(going) && out.contains(&place), "{out}");
    assert!(out.contains("the pool shop-two is being deleted"), "{out}");
    assert!(bed.kept().object("nodepools", "shop-two")["metadata"]["deletionTimestamp"].is_string());
    let (_, err) = bed.says(1, two);
    assert!(err.contains("the pool shop-two is being deleted: wait until it is gone"), "{err}");
}

#[test]
fn named_workers_are_removed_with_one_request() {
    let bed = with_shop();
    for number in 1..=2 {
        let machine = json!({"spec": {"clusterRef": {"name": "shop"}, "poolRef": {"name": "shop-workers"}}});
        bed.kept().put("machines", "team-blue", &format!("shop-workers-w{number}"), machine);
    }
    let remove = "pool scale shop-workers -n team-blue --remove shop-workers-w1";
    let (_, err) = bed.says(1, &format!("{remove} --remove shop-workers-w7"));
    assert!(err.contains("the pool shop-workers has no worker shop-workers-w7. Nothing was changed. "), "{err}");
    let (_, err) = bed.says(2, "pool scale shop-workers 1 -n team-blue --remove shop-workers-w1");
    assert!(err.contains("cannot be used with"), "{err}");
    bed.says(2, "pool scale shop-workers -n team-blue");
    let (out, _) = bed.says(0, &format!("{remove} --dry-run"));
    let changes = "would change NodePool/shop-workers: .spec.replicas from 2 to 1\n\
                   would change NodePool/shop-workers: .spec.removeFirst from null to [\"shop-workers-w1\"]\n";
    assert_eq!(out, changes);
    let shown = bed.json(0, &format!("{remove} --dry-run"));
    assert_eq!(shown["actions"][1]["change"]["to"], json!(["shop-workers-w1"]));
    assert!(bed.kept().object("nodepools", "shop-workers")["spec"]["removeFirst"].is_null());
    bed.kept().asked.clear();
    bed.acts(|kept, _| {
        if kept.object("nodepools", "shop-workers")["spec"]["replicas"] == 1 {
            for count in ["replicas", "readyReplicas"] {
                kept.object("nodepools", "shop-workers")["status"][count] = 1.into();
            }
            kept.says("nodepools", "shop-workers", "Ready", "True", "AllReady");
        }
    });
    let (out, _) = bed.says(0, remove);
    assert!(out.ends_with("the pool shop-workers has 1 worker, which is Ready\n"), "{out}");
    let mut kept = bed.kept();
    assert_eq!(kept.written(), [format!("PATCH {POOL}")]);
    let spec = kept.object("nodepools", "shop-workers")["spec"].clone();
    assert_eq!((&spec["replicas"], &spec["removeFirst"]), (&json!(1), &json!(["shop-workers-w1"])));
}

/// The number of workers is computed from the pool that was read.
#[test]
fn removal_is_refused_if_the_pool_has_changed() {
    let bed = with_shop();
    let machine = json!({"spec": {"clusterRef": {"name": "shop"}, "poolRef": {"name": "shop-workers"}}});
    bed.kept().put("machines", "team-blue", "shop-workers-w1", machine);
    // Another client scales the pool after it was read: the command looks at the cluster next.
    bed.acts(|kept, _| {
        let pool = kept.object("nodepools", "shop-workers");
        pool["spec"]["replicas"] = 5.into();
        pool["metadata"]["resourceVersion"] = "changed".into();
    });
    let (_, err) = bed.says(1, "pool scale shop-workers -n team-blue --remove shop-workers-w1");
    assert!(err.contains("the object has been modified"), "{err}");
    let spec = bed.kept().object("nodepools", "shop-workers")["spec"].clone();
    assert!(spec["replicas"] == 5 && spec["removeFirst"].is_null(), "{spec}");
}

#[test]
fn an_upgrade_changes_given_fields_and_shows_progress() {
    let bed = with_shop();
    bed.acts(|kept, look| match look {
        1 => {}
        2 => {
            kept.put(
                "operations",
                "team-blue",
                "shop-swap-2",
                json!({
                    "spec": {"clusterRef": {"name": "shop"}, "type": "ImageSwap", "clusterGeneration": 2,
                             "fromImage": "kaas-tenant-0.2.0", "toImage": "kaas-tenant-0.3.0",
                             "steps": [{"action": "verify"}, {"action": "snapshot"}]},
                    "status": {"stepsDone": 1, "step": "snapshot"},
                }),
            );
            kept.object("tenantclusters", "shop")["status"]["operation"] = "shop-swap-2".into();
            kept.says("tenantclusters", "shop", "UpToDate", "False", "Changing");
        }
        _ => {
            kept.object("operations", "shop-swap-2")["status"] = json!({"stepsDone": 2, "outcome": "upgraded"});
            kept.object("tenantclusters", "shop")["status"]["version"] = "1.36.3".into();
            kept.object("tenantclusters", "shop")["status"]["resolved"]["image"] = "kaas-tenant-0.3.0".into();
            kept.says("tenantclusters", "shop", "UpToDate", "True", "Current");
            kept.says("tenantclusters", "shop", "Ready", "True", "Available");
        }
    });
    let (out, _) = bed.says(0, "cluster upgrade shop -n team-blue --image kaas-tenant-0.3.0");
    assert!(out.contains("shop-swap-2 (ImageSwap): 1 of 2 steps are done, snapshot\n"), "{out}");
    assert!(
        out.ends_with("the cluster shop runs Kubernetes 1.36.3 on kaas-tenant-0.3.0\n"),
        "it has no workers: {out}"
    );
    let mut kept = bed.kept();
    let spec = &kept.object("tenantclusters", "shop")["spec"];
    assert_eq!((&spec["image"], &spec["version"]), (&json!("kaas-tenant-0.3.0"), &json!("1.36")));
    drop(kept);
    let (_, err) = bed.says(1, "cluster upgrade shop -n team-blue");
    assert!(err.contains("name a target"), "{err}");
    let (_, err) = bed.says(1, "cluster upgrade shop -n team-blue --do rollback");
    assert!(err.contains("shop-swap-2 has ended: upgraded"), "{err}");
}

#[test]
fn requests_to_an_upgrade_are_annotations() {
    let bed = with_shop();
    let operation = json!({
        "spec": {"clusterRef": {"name": "shop"}, "type": "ImageSwap", "clusterGeneration": 2, "fromImage": "kaas-tenant-0.2.0",
                 "toImage": "kaas-tenant-0.3.0", "steps": [{"action": "verify"}]},
        "status": {"stepsDone": 1, "step": "gate shop-cp2"},
    });
    bed.kept().put("operations", "team-blue", "shop-swap-2", operation);
    bed.kept().object("tenantclusters", "shop")["status"]["operation"] = "shop-swap-2".into();
    bed.acts(|kept, look| {
        let operation = kept.object("operations", "shop-swap-2");
        let asked = operation["metadata"]["annotations"][DO].clone();
        if look > 2 && asked == "rollback" {
            operation["metadata"]["annotations"][DO].take();
            operation["status"]["outcome"] = "rolled back".into();
        }
    });
    let (out, _) = bed.says(0, "cluster upgrade shop -n team-blue --do rollback");
    assert!(out.ends_with("shop-swap-2 has ended: rolled back\n"), "{out}");
}

#[test]
fn a_commit_reports_and_awaits_following_workers() {
    let bed = with_shop();
    let operation = json!({
        "spec": {"clusterRef": {"name": "shop"}, "type": "ImageSwap", "clusterGeneration": 2, "fromImage": "kaas-tenant-0.2.0",
                 "toImage": "kaas-tenant-0.3.0", "steps": [{"action": "verify"}]},
        "status": {"stepsDone": 1, "step": "waiting for the commit"},
    });
    let machine = |cluster: &str, image: &str| {
        json!({"spec": {"clusterRef": {"name": cluster}, "poolRef": {"name": format!("{cluster}-workers")},
                        "image": {"name": image}, "kubernetes": "1.36"}})
    };
    let prepared = || {
        let mut kept = bed.kept();
        kept.put("operations", "team-blue", "shop-swap-2", operation.clone());
        let status = &mut kept.object("tenantclusters", "shop")["status"];
        (status["operation"], status["kubernetes"]) = ("shop-swap-2".into(), "1.36".into());
        status["resolved"]["image"] = "kaas-tenant-0.2.0".into();
        for (name, cluster) in [("shop-workers-1", "shop"), ("shop-workers-2", "shop"), ("other-workers-1", "other")] {
            kept.put("machines", "team-blue", name, machine(cluster, "kaas-tenant-0.2.0"));
        }
        kept.put("machines", "team-blue", "shop-cp1", json!({"spec": {"clusterRef": {"name": "shop"}}}));
    };
    prepared();
    let (out, _) = bed.says(0, "cluster upgrade shop -n team-blue --do commit --wait=false");
    assert_eq!(out, "shop-swap-2 is asked to commit; once it is committed the workers follow\n");
    prepared();
    bed.acts(move |kept, look| match look {
        1 | 2 => {}
        // Its end is written before what it has come to.
        3 => {
            let operation = kept.object("operations", "shop-swap-2");
            operation["metadata"]["annotations"][DO].take();
            operation["status"]["outcome"] = "committed".into();
        }
        4 => kept.object("tenantclusters", "shop")["status"]["resolved"]["image"] = "kaas-tenant-0.3.0".into(),
        5 => kept.put("machines", "team-blue", "shop-workers-2", machine("shop", "kaas-tenant-0.3.0")),
        _ => kept.put("machines", "team-blue", "shop-workers-1", machine("shop", "kaas-tenant-0.3.0")),
    });
    let (out, _) = bed.says(0, "cluster upgrade shop -n team-blue --do commit");
    assert!(out.contains("; the workers follow at the pace"), "{out}");
    for count in [0, 1] {
        assert!(out.contains(&format!("shop-workers: {count} of 2 workers run kaas-tenant-0.3.0\n")), "{out}");
    }
    assert!(out.ends_with("shop-swap-2 has ended: committed, and its 2 workers have followed\n"), "{out}");
}

/// A kubeconfig of the cluster with this server, valid for half a day. The CA's key is the client's as well.
fn of_shop(bed: &Bed, server: &str) -> Kubeconfig {
    let control = Kubeconfig::parse(&fs::read_to_string(bed.path("control.kubeconfig")).unwrap()).unwrap();
    let key = KeyPair::from_pem(control.key.expose()).unwrap();
    let certificate = good_until(&key, SystemTime::now() + Duration::from_secs(12 * 3600));
    Kubeconfig { server: server.to_owned(), certificate, ..control }
}

/// A certificate that this key has signed for itself.
fn good_until(key: &KeyPair, ends: SystemTime) -> String {
    let mut parameters = CertificateParams::default();
    parameters.not_after = ends.into();
    parameters.self_signed(key).unwrap().pem()
}

#[test]
fn kubeconfigs_are_private_and_the_clusters_alone() {
    let bed = with_shop();
    let (_, err) = bed.says(1, "cluster kubeconfig shop -n team-blue");
    assert!(err.contains("has no kubeconfig yet"), "{err}");
    let own = of_shop(&bed, "https://192.168.10.10:6443");
    let formed = Credentials::parse(&own.render("any")).unwrap().authorities().unwrap();
    bed.kept().object("tenantclusters", "shop")["status"]["deployment"] = json!({
        "lifecycle": "Active", "image": {"name": "kaas-tenant-0.2.0"}, "formed": true, "caFingerprint": formed[0].to_string(),
        "nodes": [{"name": "shop-cp1", "address": "192.168.10.20", "settingsHash": "x"}],
    });
    let text = own.render("deployer");
    let (now, day) = (SystemTime::now(), Duration::from_secs(24 * 3600));
    let (own_key, other) = (KeyPair::from_pem(own.key.expose()).unwrap(), KeyPair::generate().unwrap());
    let other = good_until(&other, now + day);
    let secret = |kind: &str, of: &str, value: &str| {
        json!({"type": kind, "metadata": {"labels": {"cluster.x-k8s.io/cluster-name": of}},
               "data": {"value": BASE64_STANDARD.encode(value)}})
    };
    let handed = |value: &str| secret("cluster.x-k8s.io/secret", "shop", value);
    let with = |field: &str, before: &str| handed(&text.replacen(before, &format!("{field}, {before}"), 1));
    let certified = |authority: &str, certificate: &str| {
        let (authority, certificate) = (authority.to_owned(), certificate.to_owned());
        handed(&Kubeconfig { authority, certificate, ..own.clone() }.render("deployer"))
    };
    let leads = |server: &str| handed(&of_shop(&bed, server).render("deployer"));
    let wrong = [
        (secret("Opaque", "shop", &text), "is not the kubeconfig"),
        (secret("cluster.x-k8s.io/secret", "shop-two", &text), "is not the kubeconfig"),
        (handed("{}"), "no kubeconfig of a cluster"),
        (with(r#""exec": {"command": "/tmp/evil"}"#, r#""client-certificate-data""#), "such as exec"),
        (with(r#""proxy-url": "http://10.9.9.9""#, r#""server""#), "such as exec, token or proxy-url"),
        (leads("https://10.9.9.9:6443"), "it leads to 10.9.9.9:6443, which is neither the cluster's endpoint"),
        (leads("https://192.168.10.10:443"), "it leads to 192.168.10.10:443"),
        (leads("https://evil\u{1b}[2J.example.com:6443"), "it leads to no address of the cluster:"),
        (certified(&other, &other), "it trusts another CA"),
        (certified(&own.authority, &other), "its certificate was not signed by its CA"),
        (certified(&own.authority, &good_until(&own_key, now - day)), "it expired at "),
        (certified(&own.authority, &good_until(&own_key, now + 15 * day)), "longer than the controller issues"),
    ];
    for (secret, words) in wrong {
        bed.kept().put("secrets", "team-blue", "shop-kubeconfig", secret);
        let (_, err) = bed.says(1, "cluster kubeconfig shop -n team-blue");
        assert!(err.contains(words) && !bed.path("shop.kubeconfig").exists(), "{words}: {err}");
    }
    // Without a fingerprint of the CA the command reads both objects, and does not judge the Secret.
    bed.kept().put("secrets", "team-blue", "shop-kubeconfig", handed(&text));
    let authority = bed.kept().object("tenantclusters", "shop")["status"]["deployment"]["caFingerprint"].take();
    bed.kept().asked.clear();
    let (_, err) = bed.says(1, "cluster kubeconfig shop -n team-blue");
    assert!(err.contains("does not name its CA yet") && !err.contains("another client"), "{err}");
    assert_eq!(bed.kept().asked.len(), 2, "the cluster, and the Secret");
    bed.kept().object("tenantclusters", "shop")["status"]["deployment"]["caFingerprint"] = authority;
    // One of its control-plane nodes serves as well as the endpoint.
    bed.kept().put("secrets", "team-blue", "shop-kubeconfig", leads("https://192.168.10.20:6443"));
    bed.says(0, "cluster kubeconfig shop -n team-blue --to-file cp1.kubeconfig");
    // Entries that are not the current ones are not written either: kubectl could use them.
    let more = text.replacen(
        r#""users": ["#,
        r#""users": [{"name": "other", "user": {"exec": {"command": "/tmp/evil"}}},"#,
        1,
    );
    assert_ne!(more, *text);
    bed.kept().put("secrets", "team-blue", "shop-kubeconfig", handed(&more));
    let (out, _) = bed.says(0, "cluster kubeconfig shop -n team-blue");
    let ends = humantime::format_rfc3339_seconds(own.valid_until().unwrap());
    let expected =
        format!("shop.kubeconfig: leads to https://192.168.10.10:6443, valid until {ends}; run the command again");
    assert!(out.starts_with(&expected), "{out}");
    schemas::fits("kubeconfig", &bed.json(0, "cluster kubeconfig shop -n team-blue"));
    let written = bed.path("shop.kubeconfig");
    assert_eq!(fs::read_to_string(&written).unwrap(), *own.render_named("shop"));
    assert_eq!(fs::metadata(&written).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_kubeconfig_replaces_only_an_earlier_one() {
    let bed = with_shop();
    let server = "https://192.168.10.10:6443";
    let (own, key) = (of_shop(&bed, server), KeyPair::generate().unwrap());
    let formed = Credentials::parse(&own.render("any")).unwrap().authorities().unwrap();
    bed.kept().object("tenantclusters", "shop")["status"]["deployment"] =
        json!({"lifecycle": "Active", "image": {"name": "kaas-tenant-0.2.0"}, "caFingerprint": formed[0].to_string()});
    let secret = json!({"type": "cluster.x-k8s.io/secret", "metadata": {"labels": {"cluster.x-k8s.io/cluster-name": "shop"}},
                        "data": {"value": BASE64_STANDARD.encode(own.render("deployer").as_bytes())}});
    bed.kept().put("secrets", "team-blue", "shop-kubeconfig", secret);
    let written = bed.path("shop.kubeconfig");
    let earlier = CertificateParams::default().self_signed(&key).unwrap().pem();
    let earlier = Kubeconfig { certificate: earlier, key: Secret::new(key.serialize_pem()), ..own.clone() };
    // As it is written, and as it was written before: what the Secret held.
    for earlier in [earlier.render_named("shop"), earlier.render("deployer")] {
        fs::write(&written, &*earlier).unwrap();
        bed.says(0, "cluster kubeconfig shop -n team-blue");
        assert_eq!(fs::read_to_string(&written).unwrap(), *own.render_named("shop"));
    }
    symlink(&written, bed.path("link.kubeconfig")).unwrap();
    for other in ["link.kubeconfig", "/dev/stdout"] {
        let (_, err) = bed.says(1, &format!("cluster kubeconfig shop -n team-blue --to-file {other}"));
        assert!(err.contains("is no regular file"), "{err}");
    }
    for other in ["another one's".to_owned(), earlier.render("anna").to_string()] {
        fs::write(&written, &other).unwrap();
        let (_, err) = bed.says(1, "cluster kubeconfig shop -n team-blue");
        assert!(
            err.contains("shop.kubeconfig exists, and is no kubeconfig of the cluster shop that this command"),
            "{err}"
        );
        assert_eq!(fs::read_to_string(&written).unwrap(), other);
    }
}

#[test]
fn adopt_sets_an_annotation_and_waits() {
    let bed = with_shop();
    bed.kept().says("tenantclusters", "shop", "Progressing", "False", "AdoptionRequired");
    bed.kept().asked.clear();
    bed.acts(|kept, look| {
        let annotations = &mut kept.object("tenantclusters", "shop")["metadata"]["annotations"];
        if look == 3 && annotations[ADOPT] == "shop" {
            annotations[ADOPT].take();
            kept.says("tenantclusters", "shop", "Progressing", "False", "Idle");
        }
    });
    let (out, _) = bed.says(0, "cluster adopt shop -n team-blue");
    assert!(out.starts_with("VMs of the cluster shop that are newer than the database are to be adopted\n"), "{out}");
    assert!(out.ends_with("no VM of the cluster shop is newer than the database\n"), "{out}");
    assert_eq!(bed.kept().written(), [format!("PATCH {SHOP}")]);
    let (_, err) = bed.says(1, "cluster adopt bank -n team-blue");
    assert!(err.contains("there is no cluster bank in the namespace team-blue"), "{err}");
}

#[test]
fn delete_needs_the_name_and_waits() {
    let bed = with_shop();
    let (_, err) = bed.says(1, "cluster delete shop -n team-blue");
    assert!(err.contains("2 workers with their VMs") && err.contains("standard input is closed"), "{err}");
    let place = format!("\nThe control cluster is https://127.0.0.1:{} (context admin).\n", bed.port);
    assert!(err.contains(&place), "{err}");
    let (_, err) = bed.says(1, "cluster delete shop -n team-blue --confirm shop-two");
    assert!(err.contains("not confirmed: the cluster is shop; nothing was changed"), "{err}");
    assert!(bed.kept().written().is_empty());
    // After a denied deletion no confirmation stays, with which a later one would need no question.
    bed.kept().refuses = Some(("DELETE", "whoever asks may not"));
    let (_, err) = bed.says(1, "cluster delete shop -n team-blue --confirm shop");
    assert!(err.contains("DELETE is forbidden"), "{err}");
    assert!(bed.kept().object("tenantclusters", "shop")["metadata"]["annotations"][CONFIRM_DELETE].is_null());
    bed.kept().refuses = None;
    bed.kept().asked.clear();
    bed.acts(|kept, look| {
        if look == 2 {
            assert!(!kept.object("tenantclusters", "shop")["metadata"]["deletionTimestamp"].is_null());
            kept.says("tenantclusters", "shop", "Progressing", "True", "Deleting");
        }
        if look == 3 {
            // Another one of its name is not the one that was deleted.
            kept.put("tenantclusters", "team-blue", "shop", json!({}));
        }
    });
    let (out, _) = bed.says(0, "cluster delete shop -n team-blue --confirm shop");
    let expected = "the cluster shop is being deleted\n\
                    shop: Progressing is True (Deleting): as it is\n\
                    shop-workers: 2 of 2 workers are Ready; Ready is True (AllReady): as it is\n\
                    the cluster shop is gone\n";
    let going = "The cluster shop in the namespace team-blue is deleted: 0 control-plane nodes and 2 workers";
    assert!(out.starts_with(going) && out.ends_with(&format!("{place}{expected}")), "{out}");
    assert_eq!(bed.kept().written(), [format!("PATCH {SHOP}"), format!("DELETE {SHOP}")]);
}

const PROVIDER: &str = "\
apiVersion: kaas.local/v1alpha1
kind: Provider
metadata: {name: dc1}
spec:
  type: vSphere
  vsphere:
    server: vcenter.example.com
    datacenter: DC1
    folder: tenants
    zones: [{name: a, cluster: cluster-1, datastore: vsan-1}]
    networks: [{name: blue, portGroup: VM Network, addressing: Pool, poolRef: {name: blue}}]
  credentialsRef: {name: dc1-account}
---
apiVersion: kaas.local/v1alpha1
kind: IPPool
metadata: {name: blue}
spec: {subnet: 192.168.10.0/24, ranges: [{first: 192.168.10.20, last: 192.168.10.99}], gateway: 192.168.10.1}
";

#[test]
fn provider_creation_hides_the_password() {
    let bed = Bed::start();
    let (file, password) = (bed.file("dc1.yaml", PROVIDER), bed.file("password", "s3cret\n"));
    let controller = |kept: &mut control::Kept, look| {
        if !kept.has("providers", "dc1") {
            return;
        }
        // The second command looks before it changes anything, and once more before the controller does: that is of before.
        let ready = if look < 5 { ("False", "LoginRefused") } else { ("True", "LoggedIn") };
        kept.says("providers", "dc1", "Authenticated", ready.0, ready.1);
        if look > 4 {
            kept.says("providers", "dc1", "Ready", "True", "Available");
        }
    };
    let create = format!("provider create --file {file} --user kaas@vsphere.local --password-file {password}");
    let (out, _) = bed.says(0, &format!("{create} --dry-run -o yaml"));
    assert!(out.contains("kind: \"Provider\"") && out.contains("kind: \"IPPool\"") && !out.contains("Secret"), "{out}");
    assert!(bed.kept().objects.is_empty());
    bed.kept().asked.clear();
    bed.acts(controller);
    let (out, err) = bed.says(4, &create);
    assert!(err.contains("dc1: Authenticated is False (LoginRefused)"), "{err}");
    let (again, _) = bed.says(0, &create);
    assert!(again.ends_with("clusters can be made on dc1\n"), "{again}");
    let mut kept = bed.kept();
    let secret = &kept.object("secrets", "dc1-account")["data"];
    assert_eq!(secret["password"], BASE64_STANDARD.encode("s3cret"));
    let plurals: Vec<String> =
        kept.written()[3..6].iter().map(|line| line.rsplit('/').nth(1).unwrap().to_owned()).collect();
    assert_eq!(plurals, ["secrets", "ippools", "providers"], "what a Provider names comes before it");
    assert!(kept.asked.iter().all(|asked| !asked.line.contains("s3cret")));
    drop(kept);
    assert!(!format!("{out}{again}").contains("s3cret"));
    let (out, _) = bed.says(0, "provider get");
    assert!(out.contains("dc1   vcenter.example.com  True"), "{out}");
    let (out, _) = bed.says(0, "provider get dc1");
    assert!(out.contains("Authenticated is True (LoggedIn): as it is"), "{out}");
    let shown: Value = bed.json(0, "provider get dc1");
    assert_eq!(shown["spec"]["credentialsRef"]["name"], "dc1-account");
}

#[test]
fn waits_survive_an_absent_api_server() {
    let bed = with_shop();
    // It breaks off its answer, twice.
    bed.acts(|kept, look| {
        if look == 2 || look == 3 {
            kept.breaks = true;
        }
    });
    let (out, _) = bed.says(0, "pool scale shop-workers 2 -n team-blue");
    assert!(out.contains("waiting: asking for shop of tenantclusters in the namespace team-blue"), "{out}");
    assert!(out.ends_with("the pool shop-workers has 2 workers, and all are Ready\n"), "{out}");
}
