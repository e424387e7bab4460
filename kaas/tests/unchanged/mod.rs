//! Commands that change nothing on the API server.

use controller::objects::DO;
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
    let (_, err) = bed.says(1, "cluster describe shop -n team-blue --all-conditions -o json");
    assert!(err.contains("json and yaml have all conditions"), "{err}");
    let (_, err) = bed.says(1, "cluster describe missing -n team-blue");
    assert!(err.contains("there is no cluster missing in the namespace team-blue"), "{err}");
    assert!(bed.kept().written().is_empty());
}

/// Issue 43, leftover 2: `kaas … | head` ended with "Broken pipe" and status 1.
#[test]
fn reader_that_ends_early_is_no_error() {
    let bed = with_shop();
    let list = "cluster get -n team-blue";
    for arguments in [
        "--help",
        "explain",
        "provider create --example",
        list,
        "cluster describe shop -n team-blue",
        &format!("{list} -o json"),
        &format!("{list} -o yaml"),
    ] {
        assert_eq!(bed.unread(arguments), (Some(0), String::new()), "kaas {arguments}");
    }
    // Other failures stay errors.
    let (status, err) = bed.unread("cluster get missing -n team-blue");
    assert!(status == Some(1) && err.contains("there is no cluster missing"), "{status:?} {err}");
}

#[test]
fn completion_knows_names_of_the_control_cluster() {
    let bed = with_shop();
    bed.kept().put("tenantclusters", "team-red", "bakery", json!({}));
    bed.kept().put("providers", "", "dc1", json!({}));
    bed.kept().put("providers", "", "dc2;reboot", json!({}));
    bed.kept().put("namespaces", "", "team-blue", json!({}));
    assert_eq!(bed.completes("kaas cluster get -n team-blue "), ["shop"]);
    assert_eq!(bed.completes("kaas cluster get --namespace "), ["team-blue"]);
    assert_eq!(bed.completes("kaas explain disk.fo"), ["disk.foreign"]);
    assert_eq!(bed.completes("kaas cluster delete --namespace=team-red "), ["bakery"]);
    assert_eq!(bed.completes("kaas cluster get -n team-blue s"), ["shop"]);
    assert_eq!(bed.completes("kaas pool scale --namespace team-blue "), ["shop-workers"]);
    assert_eq!(bed.completes("kaas provider get "), ["dc1"]);
    assert_eq!(bed.completes("kaas cluster get --context "), ["admin"]);
    let kubeconfig = std::fs::read_to_string(bed.path("control.kubeconfig")).unwrap();
    let odd = bed.file("odd", &kubeconfig.replace("\"admin\"", "\"$(reboot)\""));
    assert_eq!(bed.completes(&format!("kaas cluster get --kubeconfig {odd} --context ")), [""; 0]);
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

#[test]
fn dry_runs_ask_the_server_and_change_nothing() {
    let bed = with_shop();
    let pool = json!({"name": "shop-workers"});
    let machine = json!({"spec": {"clusterRef": {"name": "shop"}, "poolRef": pool}});
    bed.kept().put("machines", "team-blue", "shop-workers-w1", machine);
    let operation = json!({
        "spec": {"clusterRef": {"name": "shop"}, "type": "ImageSwap", "clusterGeneration": 2, "fromImage": "kaas-tenant-0.2.0",
                 "toImage": "kaas-tenant-0.3.0", "steps": [{"action": "verify"}]},
    });
    bed.kept().put("operations", "team-blue", "shop-swap-2", operation);
    bed.kept().object("tenantclusters", "shop")["status"]["operation"] = "shop-swap-2".into();
    let before = bed.kept().objects.clone();
    let says = |command: &str| bed.says(0, &format!("{command} -n team-blue --dry-run")).0;
    let scaled = "would change NodePool/shop-workers: .spec.replicas from 2 to 5\n";
    assert_eq!(says("pool scale shop-workers 5"), scaled);
    assert_eq!(says("pool scale shop-workers 2"), "nothing would change\n");
    let pool = "would delete NodePool/shop-workers\nwould delete Machine/shop-workers-w1\n";
    assert_eq!(says("pool delete shop-workers"), pool);
    assert_eq!(says("cluster delete shop"), format!("would delete TenantCluster/shop\n{pool}"));
    let upgraded = "would change TenantCluster/shop: .spec.version from 1.36 to 1.37\n";
    assert_eq!(says("cluster upgrade shop --kubernetes 1.37"), upgraded);
    let asked = format!("would change Operation/shop-swap-2: .metadata.annotations[{DO:?}] from null to rollback\n");
    assert_eq!(says("cluster upgrade shop --do rollback"), asked);
    let shown = bed.json(0, "pool scale shop-workers 5 -n team-blue --dry-run");
    assert_eq!((&shown["dryRun"], &shown["actions"][0]["change"]["to"]), (&json!(true), &json!(5)));
    let kept = bed.kept();
    assert_eq!(kept.objects, before);
    let written = kept.asked.iter().filter(|asked| !asked.line.starts_with("GET "));
    assert!(written.clone().count() == 7 && written.clone().all(|asked| asked.line.contains("dryRun=All")));
    drop(kept);
    let file = bed.file(
        "pool.yaml",
        "apiVersion: kaas.local/v1alpha1\nkind: NodePool\nmetadata: {name: shop-two}\n\
         spec: {clusterRef: {name: shop}, replicas: 3, vmClass: large}\n",
    );
    let accepted = "the API server accepts the pool shop-two of 3 workers\n";
    assert_eq!(says(&format!("pool create --file {file}")), accepted);
    bed.kept().refuses = Some(("/scale", "the account may not scale"));
    let (_, err) = bed.says(1, "pool scale shop-workers 5 -n team-blue --dry-run");
    assert!(err.contains("/scale is forbidden"), "{err}");
}

#[test]
fn namespace_is_that_of_the_selected_context() {
    let bed = with_shop();
    let kubeconfig = std::fs::read_to_string(bed.path("control.kubeconfig")).unwrap();
    let mut blue: serde_json::Value = serde_json::from_str(&kubeconfig).unwrap();
    blue["contexts"][0]["context"]["namespace"] = "team-blue".into();
    let blue = bed.file("blue", &blue.to_string());
    let (out, _) = bed.says(0, &format!("cluster get shop --kubeconfig {blue}"));
    assert!(out.contains("team-blue  shop"), "{out}");
    assert_eq!(bed.completes(&format!("kaas cluster get --kubeconfig {blue} ")), ["shop"]);
    let (_, err) = bed.says(1, &format!("cluster get shop --kubeconfig {blue} -n team-red"));
    assert!(err.contains("no cluster shop in the namespace team-red"), "{err}");
    let (_, err) = bed.says(1, "cluster get shop");
    assert!(err.contains("no cluster shop in the namespace default"), "{err}");
    let odd = bed.file("odd", &std::fs::read_to_string(&blue).unwrap().replace("team-blue", "a/../b"));
    let (_, err) = bed.says(1, &format!("cluster get shop --kubeconfig {odd}"));
    assert!(err.contains("the namespace \"a/../b\" of the context"), "{err}");
}

#[test]
fn colours_are_for_people_and_respect_the_variables() {
    let bed = with_shop();
    let (forced, list) = (("CLICOLOR_FORCE", "1"), "cluster get -n team-blue");
    assert!(bed.kaas_with(&[forced], list).contains("\u{1b}[32mTrue\u{1b}[0m"));
    for (variables, arguments) in [
        (vec![], list.to_owned()),
        (vec![forced, ("NO_COLOR", "1")], list.to_owned()),
        (vec![forced], format!("{list} -o json")),
        (vec![forced], format!("{list} -o yaml")),
    ] {
        assert!(!bed.kaas_with(&variables, &arguments).contains('\u{1b}'), "{variables:?} {arguments}");
    }
}
