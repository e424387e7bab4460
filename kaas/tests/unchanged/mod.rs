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
