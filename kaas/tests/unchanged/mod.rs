//! Commands that change nothing on the API server.

use serde_json::json;

use crate::with_shop;

#[test]
fn describe_prints_the_tree_of_a_cluster() {
    let bed = with_shop();
    let machine = |pool: &str| json!({"spec": {"clusterRef": {"name": "shop"}, "poolRef": {"name": pool}}});
    bed.kept().put("machines", "team-blue", "shop-workers-w1", machine("shop-workers"));
    bed.kept().put("machines", "team-blue", "other-w1", json!({"spec": {"clusterRef": {"name": "other"}}}));
    bed.kept().says("machines", "shop-workers-w1", "Ready", "False", "NotReady");
    let (out, _) = bed.says(0, "cluster describe shop -n team-blue");
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("NAME ") && lines[1].starts_with("TenantCluster/shop "), "{out}");
    let worker = lines.iter().find(|line| line.contains("Machine/shop-workers-w1")).unwrap();
    assert!(worker.starts_with("    └─") && worker.contains("  False  Info "), "{out}");
    assert!(!out.contains("other-w1"), "{out}");
    let shown = bed.json(0, "cluster describe shop -n team-blue");
    assert_eq!(shown["machines"][0]["metadata"]["name"], "shop-workers-w1");
    assert_eq!((shown["machines"].as_array().unwrap().len(), shown["pools"].as_array().unwrap().len()), (1, 1));
    let (_, err) = bed.says(1, "cluster describe missing -n team-blue");
    assert!(err.contains("there is no cluster missing in the namespace team-blue"), "{err}");
    assert!(bed.kept().written().is_empty());
}

#[test]
fn completion_knows_names_of_the_control_cluster() {
    let bed = with_shop();
    bed.kept().put("tenantclusters", "team-red", "bakery", json!({}));
    bed.kept().put("providers", "", "dc1", json!({}));
    assert_eq!(bed.completes("kaas cluster get -n team-blue "), ["shop"]);
    assert_eq!(bed.completes("kaas cluster delete --namespace=team-red "), ["bakery"]);
    assert_eq!(bed.completes("kaas cluster get -n team-blue s"), ["shop"]);
    assert_eq!(bed.completes("kaas pool scale --namespace team-blue "), ["shop-workers"]);
    assert_eq!(bed.completes("kaas provider get "), ["dc1"]);
    assert_eq!(bed.completes("kaas cluster get --context "), ["admin"]);
    assert!(bed.completes("kaas ").contains(&"cluster".to_owned()));
}

#[test]
fn completion_without_a_control_cluster_has_no_candidates() {
    let bed = with_shop();
    bed.kept().refuses = Some(("GET", "the account may not list"));
    assert_eq!(bed.completes("kaas cluster get -n team-blue "), [""; 0]);
    assert_eq!(bed.completes("kaas cluster get --kubeconfig missing "), [""; 0]);
    let offline = bed.file("offline", "{}");
    assert_eq!(bed.completes(&format!("kaas cluster get --kubeconfig {offline} ")), [""; 0]);
}
