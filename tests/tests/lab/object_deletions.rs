//! Deletions at a real API server that would destroy keys, journals or VMs: which ones it refuses, and in which words.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use controller::objects::TenantCluster;
use controller::reach::{Api, add_used_namespace, correct_used_namespaces, remove_used_namespace};
use lab::obtain;
use scenarios::api_server::ApiServer;
use serde_json::{Value, json};
use tokio::runtime::Builder;

const CLUSTER: &str = "/apis/kaas.local/v1alpha1/namespaces/team-blue/tenantclusters/shop";
/// How long an API server may take to know a parameter of a policy, or a right.
const MOMENT: Duration = Duration::from_secs(120);

/// The operator of the control cluster, who may do everything.
const OPERATOR: &[&str] = &[];
const CONTROLLER: &[&str] = &["--as=system:serviceaccount:kaas-system:kaas-controller"];
const COLLECTOR: &[&str] = &["--as=system:serviceaccount:kube-system:generic-garbage-collector"];
/// Deletes all objects of a namespace that is being deleted.
const NAMESPACE_CONTROLLER: &[&str] = &["--as=system:serviceaccount:kube-system:namespace-controller"];
/// A tenant with `kaas-tenant-edit`.
const TENANT: &[&str] = &["--as=anna"];
/// A tenant with the rights of Kubernetes' role `edit`. `no_pod_runs_where_clusters_are` binds it.
const EDITOR: &[&str] = &["--as=mallory"];

struct Requests<'a>(&'a ApiServer);

impl Requests<'_> {
    fn ask(&self, who: &[&str], arguments: &[&str]) -> anyhow::Result<String> {
        self.0.kubectl(&[who, &["--namespace=team-blue"][..], arguments].concat(), "")
    }

    /// Asks for a deletion. Nothing is deleted.
    fn delete(&self, who: &[&str], what: &[&str]) -> anyhow::Result<String> {
        self.ask(who, &[&["delete", "--dry-run=server"][..], what].concat())
    }

    fn permits(&self, who: &[&str], what: &[&str]) {
        self.delete(who, what).unwrap_or_else(|error| panic!("{who:?} {what:?}: {error:#}"));
    }

    fn refuses(&self, who: &[&str], what: &[&str], policy: &str, words: &str) {
        refused(&format!("{who:?} {what:?}"), self.delete(who, what), policy, words);
    }

    /// Waits until the API server permits a deletion, or refuses it.
    fn waits(&self, who: &[&str], what: &[&str], is_permitted: bool) {
        let judged = || Ok((self.delete(who, what).is_ok() == is_permitted).then_some(()));
        obtain(&format!("{what:?} to be permitted: {is_permitted}"), MOMENT, judged)
            .unwrap_or_else(|error| panic!("{error:#}"));
    }

    fn create(&self, who: &[&str], object: &Value) {
        let arguments =
            [&["--namespace=team-blue"][..], who, &["create", "--validate=false", "--filename=-"][..]].concat();
        self.0.kubectl(&arguments, &object.to_string()).unwrap_or_else(|error| panic!("{error:#}"));
    }
}

pub fn refused(what: &str, answer: anyhow::Result<String>, policy: &str, words: &str) {
    match answer {
        Ok(answer) => panic!("{what}: it was done: {answer}"),
        Err(error) => {
            let said = format!("{error:#}");
            assert!(said.contains(policy) && said.contains(words), "{what}: {policy} or {words:?} is not in {said:?}");
        }
    }
}

/// Findings 2 and 24 of controller.md. `kinds` has an object of each kind, and its path.
pub fn deletions_keep_keys_journals_and_vms(server: &ApiServer, kinds: &BTreeMap<String, (String, Value)>) {
    let asked = Requests(server);
    let cluster = server.read(CLUSTER).unwrap_or_else(|error| panic!("{error:#}"));
    namespaces_in_use_stay(&asked, &cluster);
    records_stay(&asked, kinds);
    secrets_stay(&asked, &cluster);
}

enum Write {
    Correct,
    Add,
    Remove,
}

/// Changes the list of namespaces in use as the controller does.
fn write(server: &ApiServer, cluster: &TenantCluster, write: Write) {
    let inside = |kubeconfig: &Path| {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let api = Api::connect(Some(kubeconfig)).await.expect("a client");
            match write {
                Write::Correct => correct_used_namespaces(&api).await,
                Write::Add => add_used_namespace(&api, cluster).await,
                Write::Remove => remove_used_namespace(&api, cluster).await,
            }
        })
    };
    let written = server.inside(inside).unwrap_or_else(|error| panic!("{error:#}"));
    written.unwrap_or_else(|error| panic!("{error:#}"));
}

/// Finding 2: `kubectl delete namespace` destroyed keys and journals, and could not be withdrawn.
fn namespaces_in_use_stay(asked: &Requests<'_>, cluster: &Value) {
    const POLICY: &str = "namespace-in-use.kaas.local";
    let (own, other, home) = (["namespace", "team-blue"], ["namespace", "other"], ["namespace", "kaas-system"]);
    let mut cluster = cluster.clone();
    cluster["status"].take();
    let cluster: TenantCluster = serde_json::from_value(cluster).expect("a cluster");
    asked.waits(OPERATOR, &other, false);
    asked.refuses(OPERATOR, &other, POLICY, "parameterNotFoundAction");
    write(asked.0, &cluster, Write::Correct);
    asked.waits(OPERATOR, &other, true);
    asked.refuses(OPERATOR, &own, POLICY, "first delete team-blue/shop with `kaas cluster delete`");
    asked.refuses(OPERATOR, &home, POLICY, "first delete team-blue/shop with `kaas cluster delete`");
    write(asked.0, &cluster, Write::Remove);
    asked.waits(OPERATOR, &own, true);
    asked.permits(OPERATOR, &home);
    write(asked.0, &cluster, Write::Add);
    asked.waits(OPERATOR, &own, false);

    let change = |name: &str| {
        let part = r#"--patch={"data":{"x":null}}"#;
        asked.ask(CONTROLLER, &["--namespace=kaas-system", "patch", "configmap", name, "--type=merge", part])
    };
    change("kaas-namespaces-in-use").unwrap_or_else(|error| panic!("{error:#}"));
    refused("another list", change("other"), "forbidden", "configmaps");
    let list = ["--namespace=kaas-system", "configmap", "kaas-namespaces-in-use"];
    refused("its deletion", asked.delete(CONTROLLER, &list), "forbidden", "configmaps");
}

/// Finding 2: the journal of a swap was deleted with its Operation. Finding 24: a control-plane Machine stayed `Terminating`.
fn records_stay(asked: &Requests<'_>, kinds: &BTreeMap<String, (String, Value)>) {
    const POLICY: &str = "kept-records.kaas.local";
    let named = |kind: &str| kinds[kind].1["metadata"]["name"].as_str().expect("a name").to_owned();
    let [worker, operation, address] = ["Machine", "Operation", "PoolAddress"].map(named);
    let mut spec = kinds["Machine"].1["spec"].clone();
    spec["role"] = json!("ControlPlane");
    spec.as_object_mut().expect("a spec").remove("poolRef");
    let machine = |name: &str, finalizers: Value| {
        json!({
            "apiVersion": "kaas.local/v1alpha1", "kind": "Machine",
            "metadata": {"name": name, "finalizers": finalizers}, "spec": spec,
        })
    };
    asked.create(OPERATOR, &machine("shop-cp1", json!(["kaas.local/machine"])));
    asked.create(OPERATOR, &machine("shop-cp2", json!([])));
    let (worker, control) = (["machine", worker.as_str()], ["machine", "shop-cp1"]);
    let (operation, address) = (["operation", operation.as_str()], ["pooladdress", address.as_str()]);
    let of_control = "the Machine of a control-plane node is deleted with its cluster";
    for (who, what, words) in [
        (OPERATOR, &operation, "annotate it with kaas.local/do=abandon"),
        (OPERATOR, &["operation", "--all"], "annotate it with kaas.local/do=abandon"),
        (OPERATOR, &address, "delete the cluster or the worker that has it"),
        (OPERATOR, &["pooladdress", "--all"], "delete the cluster or the worker that has it"),
        (OPERATOR, &control, of_control),
        (OPERATOR, &["machine", "--all"], of_control),
        (TENANT, &control, of_control),
    ] {
        asked.refuses(who, what, POLICY, words);
    }
    // They are deleted by the controller, and after their owner.
    for who in [CONTROLLER, COLLECTOR] {
        for what in [&operation, &address, &control] {
            asked.permits(who, what);
        }
    }
    // Another worker replaces it. A Machine without the finalizer was not created by the controller.
    asked.permits(TENANT, &worker);
    asked.permits(OPERATOR, &["machine", "shop-cp2"]);
    // A namespace whose deletion was permitted keeps what could not be created there again.
    let (cluster, pool) = (named("TenantCluster"), named("NodePool"));
    let (cluster, pool) = (["tenantcluster", cluster.as_str()], ["nodepool", pool.as_str()]);
    for what in [&cluster, &pool, &worker, &control, &operation] {
        asked.refuses(NAMESPACE_CONTROLLER, what, POLICY, "first delete its clusters with `kaas cluster delete`");
    }
}

/// Finding 2: `kubectl delete secret --all` deleted the only copy of the deployer's key.
fn secrets_stay(asked: &Requests<'_>, cluster: &Value) {
    const POLICY: &str = "kept-secrets.kaas.local";
    let words = "the cluster is lost without this Secret";
    let owners = json!([{
        "apiVersion": "kaas.local/v1alpha1", "kind": "TenantCluster", "name": "shop", "uid": cluster["metadata"]["uid"],
    }]);
    // An earlier version kept the keys in `shop-deployer`.
    for (name, type_) in [("shop-deployer", "Opaque"), ("shop-kubeconfig", "cluster.x-k8s.io/secret")] {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": type_,
            "metadata": {"name": name, "ownerReferences": owners}, "data": {"value": "eA=="},
        });
        asked.create(CONTROLLER, &secret);
    }
    let name = cluster["metadata"]["uid"].as_str().expect("a UID");
    let keys = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kaas.local/cluster-keys", "metadata": {"name": name},
    });
    asked.create(&[CONTROLLER, &["--namespace=kaas-system"]].concat(), &keys);
    let home = ["--namespace=kaas-system", "secret", name];
    for who in [OPERATOR, NAMESPACE_CONTROLLER] {
        asked.refuses(who, &home, POLICY, words);
    }
    for who in [CONTROLLER, COLLECTOR] {
        asked.permits(who, &home);
    }
    asked.waits(EDITOR, &["secret", "bank-kubeconfig"], true);
    asked.refuses(OPERATOR, &["secret", "--all"], POLICY, words);
    asked.refuses(EDITOR, &["secret", "--all"], POLICY, words);
    for who in [OPERATOR, EDITOR, NAMESPACE_CONTROLLER] {
        asked.refuses(who, &["secret", "shop-deployer"], POLICY, words);
    }
    for who in [CONTROLLER, COLLECTOR] {
        asked.permits(who, &["secret", "shop-deployer"]);
    }
    // To revoke a kubeconfig, its Secret is deleted. The controller writes another.
    for who in [OPERATOR, EDITOR, CONTROLLER] {
        asked.permits(who, &["secret", "shop-kubeconfig"]);
    }
    let patch = |part: &str| {
        asked.ask(EDITOR, &["patch", "secret", "shop-deployer", "--dry-run=server", "--type=merge", "--patch", part])
    };
    // The garbage collector deletes an object whose owners do not exist.
    refused("another owner", patch(r#"{"metadata":{"ownerReferences":null}}"#), POLICY, words);
    patch(r#"{"metadata":{"labels":{"x":"y"}}}"#).unwrap_or_else(|error| panic!("{error:#}"));
}
