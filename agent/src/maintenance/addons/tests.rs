//! Add-ons in a fake cluster: what is applied, and what is applied again.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::Mutex;
use std::time::Duration;

use contract::pod_security::PodSecurity;
use contract::properties::AddressRange;
use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::cluster::kubernetes::CA_CERTIFICATE;
use crate::cluster::kubernetes::objects::named;
use crate::host::command::{Command, Error};
use crate::upgrade::swap::manager::tests::context;

/// Objects of a cluster, the commands that it got, and the kind of object before which `kubectl apply` is killed once.
#[derive(Default)]
struct Cluster {
    objects: Mutex<BTreeMap<String, Value>>,
    asked: Mutex<Vec<String>>,
    cut: Mutex<Option<&'static str>>,
}

impl Cluster {
    fn find(&self, object: &Value) -> Option<Value> {
        self.objects.lock().unwrap().get(&named(object)).cloned()
    }

    fn delete(&self, name: &str) {
        self.objects.lock().unwrap().remove(name).unwrap_or_else(|| panic!("{name} is not there"));
    }

    fn names(&self) -> Vec<String> {
        self.objects.lock().unwrap().keys().cloned().collect()
    }

    /// Runs the reconciler. `may` says that all nodes run this image and have committed it.
    fn care(&self, context: &SwapContext, may: bool) -> anyhow::Result<Findings> {
        let wanted = addons::wanted(&context.config, &context.image);
        let find = |object: &Value| Ok(self.find(object));
        let may = || Ok(may);
        let now = SystemTime::now();
        AddOnReconciler { context, runner: self, find: &find, may: &may, now }.take(&wanted)?
    }

    fn commands(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

impl Runner for Cluster {
    fn run(&self, command: &Command) -> Result<Vec<u8>, Error> {
        let words: Vec<String> = command.to_string().split(' ').skip(3).map(str::to_owned).collect();
        self.asked.lock().unwrap().push(words.join(" "));
        let list: Value = serde_json::from_slice(command.given()).unwrap_or_default();
        for object in list["items"].as_array().into_iter().flatten() {
            if object["kind"].as_str() == *self.cut.lock().unwrap() {
                *self.cut.lock().unwrap() = None;
                let (command, tail) = (command.to_string(), "killed".to_owned());
                return Err(Error::Failed { command, status: ExitStatus::from_raw(9), tail });
            }
            self.objects.lock().unwrap().insert(named(object), object.clone());
        }
        let secret = words.iter().any(|word| word == "secret").then(|| {
            let name = format!("Secret kube-system/{}", metrics_server::CERTIFICATE);
            self.objects.lock().unwrap().get(&name).map(Value::to_string).unwrap_or_default()
        });
        Ok(secret.unwrap_or_default().into_bytes())
    }
}

/// A tenant with all add-ons but local volumes.
fn tenant() -> (TempDir, SwapContext) {
    let root = tempfile::tempdir().unwrap();
    CertificateAuthorities::make(SystemTime::now()).unwrap().ensure(&files::below(root.path(), PKI)).unwrap();
    assert!(files::below(root.path(), CA_CERTIFICATE).exists());
    let mut context = context(root.path(), None);
    context.config.role = Role::TenantControlPlane;
    let chosen = &mut context.config.cluster.add_ons;
    chosen.metrics = true;
    let first = std::net::Ipv4Addr::new(10, 0, 0, 50);
    chosen.service_addresses = vec![AddressRange { first, last: first }];
    (root, context)
}

#[test]
fn add_ons_of_another_build_are_renewed_once() {
    let root = tempfile::tempdir().unwrap();
    let mut context = context(root.path(), None);
    let now = SystemTime::now();
    let cluster = Cluster::default();
    context.config.cluster.pod_security = PodSecurity::Privileged;
    for (level, build, commands) in [
        (PodSecurity::Privileged, "one", 2),
        (PodSecurity::Privileged, "one", 0),
        (PodSecurity::Baseline, "one", 1),
        (PodSecurity::Baseline, "two", 2),
    ] {
        context.config.cluster.pod_security = level;
        context.image.build = build.to_owned();
        assert!(cluster.care(&context, true).unwrap().is_empty());
        let asked = cluster.commands();
        assert_eq!(asked.len(), commands, "{level:?} {build}: {asked:?}");
        let done = fs::read_to_string(files::below(root.path(), SEEN)).unwrap();
        assert_eq!(done, seen(&context, now).unwrap());
        assert!(done.contains(level.name()), "{done}");
        assert_ne!(done, seen(&context, now + Duration::from_secs(MONTH)).unwrap());
    }
    for server in [2, 3] {
        context.config.node.dns_servers = vec![[10, 0, 0, server].into()];
        cluster.care(&context, true).unwrap();
        assert_eq!(cluster.commands().len(), 2, "cluster DNS and the policies");
    }
    context.image.build = "three".to_owned();
    cluster.care(&context, false).unwrap();
    assert!(cluster.commands().is_empty(), "not all nodes run it for good");
}

/// The store is as it was before this image was committed: with the kinds and the mark of the former image.
#[test]
fn restored_cluster_renews_its_add_ons_once() {
    let root = tempfile::tempdir().unwrap();
    let mut context = context(root.path(), None);
    let cluster = Cluster::default();
    context.image.build = "one".to_owned();
    cluster.care(&context, true).unwrap();
    let before = cluster.objects.lock().unwrap().clone();
    context.image.build = "two".to_owned();
    cluster.care(&context, true).unwrap();
    *cluster.objects.lock().unwrap() = before;
    let (token, at) = ("of-the-restored".to_owned(), "2026-12-01T09:00:00Z".to_owned());
    Records::new(root.path()).begin_entry(&RestoreRecord { token, members: Vec::new(), at }).unwrap();
    cluster.commands();
    cluster.care(&context, true).unwrap();
    assert!(!cluster.commands().is_empty(), "they are of the image before");
    cluster.care(&context, true).unwrap();
    assert!(cluster.commands().is_empty(), "once");
}

#[test]
fn tenant_gets_its_add_ons_and_loses_others() {
    let (_root, context) = tenant();
    let cluster = Cluster::default();
    cluster.care(&context, true).unwrap();
    insta::assert_snapshot!(cluster.commands().join("\n"));
}

#[test]
fn partly_applied_objects_are_applied_again() {
    for cut in ["IPAddressPool", "DaemonSet", "APIService", "Service"] {
        let (_root, mut context) = tenant();
        let (whole, cluster) = (Cluster::default(), Cluster::default());
        whole.care(&context, true).unwrap();
        *cluster.cut.lock().unwrap() = Some(cut);
        cluster.care(&context, true).unwrap_err();
        cluster.care(&context, true).unwrap();
        assert_eq!(cluster.names(), whole.names(), "{cut}");
        // The same with existing objects and another pool.
        let last = std::net::Ipv4Addr::new(10, 0, 0, 59);
        context.config.cluster.add_ons.service_addresses[0].last = last;
        *cluster.cut.lock().unwrap() = Some("IPAddressPool");
        cluster.care(&context, true).unwrap_err();
        cluster.care(&context, true).unwrap();
        let objects = cluster.objects.lock().unwrap();
        assert_eq!(objects["IPAddressPool metallb-system/kaas"]["spec"]["addresses"][0], "10.0.0.50-10.0.0.59");
    }
}

/// The first look is seconds after the node works, when pods that were off with it may still be starting. The next look is a
/// minute later and reports those that still do not run.
#[test]
fn missing_pods_are_reported_after_a_minute() {
    let (_root, context) = tenant();
    let wanted = addons::wanted(&context.config, &context.image);
    let count = |passes: bool, seconds: u64| {
        let look = |workload: &Workload| Ok(Some(WorkloadProblem { seen: format!("{} waits", workload.name), passes }));
        let times = Times { done: Some(40), ..Times::default() };
        let findings = troubles(&look, &wanted, works_for(&times, Some(40 + seconds))).unwrap();
        assert!(findings.iter().all(|finding| finding.code == "add-on.not-ready" && finding.seen.ends_with(" waits")));
        findings.iter().count()
    };
    let all: usize = wanted.iter().map(|add_on| add_on.workloads().len()).sum();
    assert!(all > 0);
    for (passes, seconds, told) in [(true, 5, 0), (true, 59, 0), (true, 60, all), (false, 0, all)] {
        assert_eq!(count(passes, seconds), told, "passes: {passes}, after {seconds} s");
    }
    for (done, up) in [(None, Some(90)), (Some(40), None)] {
        assert_eq!(works_for(&Times { done, ..Times::default() }, up), Duration::MAX, "nothing is kept back for good");
    }
}

#[test]
fn deleted_objects_are_reported_and_applied_again() {
    let (_root, context) = tenant();
    let cluster = Cluster::default();
    cluster.care(&context, true).unwrap();
    let all = cluster.names();
    assert!(cluster.care(&context, true).unwrap().is_empty());
    cluster.commands();
    for gone in &all {
        cluster.delete(gone);
        // Not while an image is swapped.
        let said = cluster.care(&context, false).unwrap();
        assert!(said.iter().any(|finding| finding.code == "add-on.not-ready" && finding.seen.contains(gone)), "{gone}");
        assert!(cluster.commands().is_empty(), "{gone}");
        assert!(!cluster.care(&context, true).unwrap().is_empty(), "{gone}");
        assert_eq!(cluster.names(), all, "{gone}");
        assert!(cluster.care(&context, true).unwrap().is_empty(), "{gone}");
        cluster.commands();
    }
}

#[test]
fn objects_with_another_nodes_settings_stay() {
    let (_root, context) = tenant();
    let cluster = Cluster::default();
    cluster.care(&context, true).unwrap();
    for object in cluster.objects.lock().unwrap().values_mut() {
        object["metadata"]["annotations"][addons::BUILD] = "another".into();
    }
    cluster.commands();
    assert!(cluster.care(&context, true).unwrap().is_empty());
    assert!(cluster.commands().is_empty());
}

/// The control cluster with the controller. The image lists one object of it.
fn with_controller() -> (TempDir, SwapContext) {
    let root = tempfile::tempdir().unwrap();
    let mut context = context(root.path(), None);
    context.image.programs = vec!["controller".to_owned()];
    let listed = files::below(root.path(), contract::image::objects_of("controller"));
    fs::create_dir_all(listed.parent().unwrap()).unwrap();
    let items = r#"{"items": [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kaas-system"}}]}"#;
    fs::write(listed, items).unwrap();
    (root, context)
}

#[test]
fn kinds_of_the_controller_are_applied_first() {
    let (_root, mut context) = with_controller();
    let cluster = Cluster::default();
    cluster.care(&context, false).unwrap();
    assert!(cluster.commands().is_empty(), "a way back has to meet the kinds that it knows");
    cluster.care(&context, true).unwrap();
    let kinds = "--filename=/usr/lib/kaas/add-ons/controller-kinds.json";
    let asked = cluster.commands();
    let at =
        |what: &str| asked.iter().position(|command| command.starts_with(what) && command.contains(kinds)).unwrap();
    assert!(at("apply ") < at("wait "), "{asked:?}");
    assert!(asked[at("wait ") + 1].starts_with("apply ") && !asked[at("wait ") + 1].contains(kinds), "{asked:?}");
    let former = "validatingadmissionpolicy/named-secrets.kaas.local";
    assert!(asked.iter().any(|it| it.starts_with("delete ") && it.ends_with(former)), "{asked:?}");
    for name in ["Namespace kaas-system", "DaemonSet kaas-system/kaas-controller"] {
        assert!(cluster.names().contains(&name.to_owned()), "{name}");
    }
    // Deleted objects of either source are applied again.
    cluster.delete("Namespace kaas-system");
    assert!(!cluster.care(&context, true).unwrap().is_empty());
    assert!(cluster.names().contains(&"Namespace kaas-system".to_owned()));
    cluster.commands();
    // The pods of the next image lead once it is committed.
    context.image.build = "next".to_owned();
    cluster.care(&context, true).unwrap();
    let objects = cluster.objects.lock().unwrap();
    let pods = &objects["DaemonSet kaas-system/kaas-controller"];
    assert_eq!(pods["spec"]["template"]["metadata"]["annotations"][addons::BUILD], "next");
}

#[test]
fn image_without_a_listed_file_applies_nothing() {
    let (root, context) = with_controller();
    fs::remove_file(files::below(root.path(), contract::image::objects_of("controller"))).unwrap();
    let cluster = Cluster::default();
    let error = format!("{:#}", cluster.care(&context, true).unwrap_err());
    assert!(error.starts_with("reading /usr/lib/kaas/add-ons/controller-objects.json"), "{error}");
    assert!(cluster.commands().is_empty());
}
