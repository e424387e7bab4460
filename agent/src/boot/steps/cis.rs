//! Compares the table of the CIS benchmark in the documentation with the configuration that a node writes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;
use uuid::Uuid;

use super::cuts::{Machine, in_a_namespace};
use crate::cluster::etcd::member::{self, InitialCluster};
use crate::cluster::kubernetes::kubeadm::configuration::documents;
use crate::cluster::kubernetes::{kubelet, proxy};
use crate::host::files;
use crate::host::platform::Platform;
use crate::intake::config::Config;
use crate::intake::config::fixture::{joined, one_node};

const PAGE: &str = include_str!("../../../../docs/reference/cis-benchmark.md");

/// A row: item, component, setting, value and result. The value of a setting that does not exist is `unset`.
type Row = [&'static str; 5];

fn rows() -> Vec<Row> {
    let (_, table) = PAGE.split_once("\n## CIS Kubernetes Benchmark\n").expect("the chapter");
    let lines = table.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    lines
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            cells.try_into().unwrap_or_else(|_| panic!("not five cells: {line}"))
        })
        .collect()
}

/// The arguments of a static pod.
fn arguments(whole: &Value, component: &str) -> Value {
    let all = whole[component]["extraArgs"].as_array().expect("arguments").iter();
    Value::Object(all.map(|one| (one["name"].as_str().unwrap().to_owned(), one["value"].clone())).collect())
}

/// The configuration that a node writes for a component.
fn configuration(component: &str) -> Option<Value> {
    let (node, worker) = (one_node(), joined());
    let machine = Platform::detect(Path::new("/nonexistent")).unwrap();
    let kubelet = || kubelet::configuration(&node.node, node.cluster.dns_address(), 1, &machine);
    let pod = |component| {
        let text = documents(&node, &machine, "1.36.3", &[]);
        let whole = text.split("\n---\n").nth(1).expect("the configuration of the cluster");
        arguments(&serde_json::from_str(whole).unwrap(), component)
    };
    Some(match component {
        "API server" => pod("apiServer"),
        "controller manager" => pod("controllerManager"),
        "scheduler" => pod("scheduler"),
        "kubelet" => kubelet(),
        "worker's kubelet" => {
            let mut settings = kubelet();
            kubelet::of_worker(&mut settings, &worker.registration, None);
            settings
        }
        "kube-proxy" => proxy::configuration(&Config::ControlPlane(node.clone()), node.cluster.pod_cidr, &machine),
        "etcd" => member::configuration(&node, &InitialCluster::of_forming(&node, Uuid::nil()), 1 << 30).unwrap(),
        "kubeadm" | "image" | "pod network" | "–" => return None,
        other => panic!("{other} is no component"),
    })
}

/// The text of a setting's value in the table.
fn said(value: &Value) -> String {
    let text = match value {
        Value::Null => return "unset".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    };
    format!("`{text}`")
}

/// The items of the benchmark in a row, such as `1.1.15, 1.1.17` or `1.2.6–1.2.8`.
fn items(cell: &str) -> Vec<String> {
    let one = |item: &str| -> Option<(String, u32)> {
        let (section, number) = item.split_whitespace().next()?.rsplit_once('.')?;
        Some((section.to_owned(), number.parse().ok()?))
    };
    let ranges = cell.split(", ").filter_map(|part| {
        let (first, last) = part.split_once('–').unwrap_or((part, part));
        let ((section, first), (_, last)) = (one(first)?, one(last)?);
        Some((first..=last).map(move |number| format!("{section}.{number}")))
    });
    ranges.flatten().collect()
}

/// A missing row would hide a difference.
#[test]
fn table_has_each_item_of_the_benchmark() {
    let named: Vec<String> = rows().iter().flat_map(|[item, ..]| items(item)).collect();
    let sections = [
        ("1.1", 21),
        ("1.2", 30),
        ("1.3", 7),
        ("1.4", 2),
        ("2", 7),
        ("3.1", 3),
        ("3.2", 2),
        ("4.1", 10),
        ("4.2", 15),
        ("4.3", 1),
    ];
    let all = sections.iter().flat_map(|(section, last)| (1..=*last).map(move |number| format!("{section}.{number}")));
    let missing: Vec<String> = all.filter(|item| !named.contains(item)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn table_matches_the_nodes_configuration() {
    let (mut checked, mut modes) = (0, Vec::new());
    for [item, component, setting, value, result] in rows() {
        assert!(!result.is_empty(), "{item} has no result");
        assert!(component != "–" || !setting.starts_with('`'), "{item}: the table names no component of {setting}");
        let setting = setting.trim_matches('`');
        if component == "mode" {
            modes.push((setting.to_owned(), value.to_owned()));
        } else if let Some(settings) = configuration(component) {
            let whole = settings.get(setting);
            let found = whole.unwrap_or_else(|| {
                settings.pointer(&format!("/{}", setting.replace('.', "/"))).unwrap_or(&Value::Null)
            });
            assert_eq!(value, said(found), "{item}: {component} has {setting} {found}");
            checked += 1;
        }
    }
    assert!(checked > 35, "only {checked} rows are checked");
    in_a_namespace("cis", move || {
        let machine = Machine::new(one_node());
        machine.boot().unwrap();
        assert!(modes.len() > 7);
        for (file, said) in modes {
            let mode =
                fs::metadata(files::below(machine.root(), &file)).unwrap_or_else(|error| panic!("{file}: {error}"));
            assert_eq!(format!("`{:04o}`", mode.permissions().mode() & 0o7777), said, "{file}");
        }
    });
}
