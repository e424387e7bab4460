//! Rights of the controller's account on Secrets at a real API server, by its roles and by a policy. Tenants cannot remove its
//! finalizers, and no pod runs in their namespaces. A part of the scenario of the kinds.

use std::time::Duration;

use lab::obtain;
use scenarios::api_server::ApiServer;
use serde_json::{Value, json};

use crate::object_deletions;

/// The account of the requests.
const ACCOUNT: &str = "--as=system:serviceaccount:kaas-system:kaas-controller";
/// The policy that refuses.
const POLICY: &str = "controller-secrets.kaas.local";
/// How long an API server may take to know a policy.
const MOMENT: Duration = Duration::from_secs(120);

/// A way to Secrets.
struct SecretsClient<'a>(&'a ApiServer);

impl SecretsClient<'_> {
    /// As the account, in a namespace.
    fn ask(&self, namespace: &str, arguments: &[&str], input: &str) -> anyhow::Result<String> {
        self.0.kubectl(&[&[ACCOUNT, "--namespace", namespace][..], arguments].concat(), input)
    }

    fn create(&self, namespace: &str, secret: &Value) -> anyhow::Result<String> {
        self.ask(namespace, &["create", "--validate=false", "--filename=-"], &secret.to_string())
    }

    fn patch(&self, namespace: &str, name: &str, part: &Value) -> anyhow::Result<String> {
        self.ask(namespace, &["patch", "secret", name, "--type=merge", "--patch", &part.to_string()], "")
    }

    fn delete(&self, namespace: &str, name: &str) -> anyhow::Result<String> {
        self.ask(namespace, &["delete", "secret", name, "--wait=false"], "")
    }
}

fn secret(name: &str, type_: &str, metadata: &Value) -> Value {
    let mut secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": type_, "metadata": {"name": name}, "data": {"value": "eA=="},
    });
    for (field, value) in metadata.as_object().into_iter().flatten() {
        secret["metadata"][field] = value.clone();
    }
    secret
}

fn refused(what: &str, answer: anyhow::Result<String>, words: &str) {
    object_deletions::refused(what, answer, POLICY, words);
}

fn taken(what: &str, answer: anyhow::Result<String>) {
    answer.unwrap_or_else(|error| panic!("{what}: {error:#}"));
}

/// A client with the account's token changes no Secret of an application, and lets Kubernetes write no account's token into one.
pub fn controller_account_changes_secrets_of_clusters_only(server: &ApiServer, cluster: &Value) {
    let asked = SecretsClient(server);
    let with_token = json!({"annotations": {"kubernetes.io/service-account.name": "default"}});
    let token = "kubernetes.io/service-account-token";
    for (namespace, made) in [
        ("kube-system", secret("strong", token, &with_token)),
        ("team-blue", secret("app", "Opaque", &json!({}))),
        ("team-blue", secret("bank-kubeconfig", "cluster.x-k8s.io/secret", &json!({}))),
        ("kaas-system", secret("dc9", "Opaque", &json!({}))),
        ("kaas-system", secret("strong", token, &with_token)),
    ] {
        let arguments = ["--namespace", namespace, "create", "--filename=-"];
        taken("a Secret is made by a person", server.kubectl(&arguments, &made.to_string()));
    }
    obtain("the policy to refuse something", MOMENT, || {
        Ok(asked.ask("team-blue", &["delete", "secret", "app", "--dry-run=server"], "").is_err().then_some(()))
    })
    .unwrap_or_else(|error| panic!("{error:#}"));

    let (two, types) = ("only the two Secrets of a cluster", "only Secrets of its two types");
    let metadata = "nothing but metadata of the Secrets in its own namespace";
    let owner = json!({"ownerReferences": [{
        "apiVersion": "kaas.local/v1alpha1", "kind": "TenantCluster", "name": "shop", "uid": cluster["metadata"]["uid"],
    }]});
    let foreign = json!({"ownerReferences": [{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "shop", "uid": cluster["metadata"]["uid"],
    }]});
    for (what, namespace, made, words) in [
        ("any Secret", "team-blue", secret("other", "Opaque", &json!({})), two),
        ("one without an owner", "team-blue", secret("shop-deployer", "Opaque", &json!({})), two),
        ("another one's", "team-blue", secret("shop-deployer", "Opaque", &foreign), two),
        ("one of another name", "team-blue", secret("bank-deployer", "Opaque", &owner), two),
        ("one with a token", "team-blue", secret("other", token, &with_token), two),
        ("one of another type", "team-blue", secret("shop-deployer", "cluster.x-k8s.io/secret", &owner), types),
        ("one at home", "kaas-system", secret("dc8", "Opaque", &json!({})), two),
    ] {
        refused(what, asked.create(namespace, &made), words);
    }
    // With these annotations, Kubernetes fills a Secret with the token of another account.
    let filled = json!({
        "metadata": {"annotations": {"kubernetes.io/service-account.name": "admin", "kubernetes.io/service-account.uid": null}},
        "data": {"token": null},
    });
    let data = json!({"data": {"value": "eQ=="}});
    for (what, namespace, name, part, words) in [
        ("a token", "kube-system", "strong", &filled, two),
        ("an application's", "team-blue", "app", &data, two),
        ("an application's, with an owner", "team-blue", "app", &json!({"metadata": owner}), two),
        ("one that was there", "team-blue", "bank-kubeconfig", &data, two),
        ("a Provider's", "kaas-system", "dc9", &data, metadata),
        ("a Provider's data", "kaas-system", "dc9", &json!({"data": null}), metadata),
        ("a Provider's owner", "kaas-system", "dc9", &json!({"metadata": owner}), metadata),
        ("a Provider's, for ever", "kaas-system", "dc9", &json!({"immutable": true}), metadata),
        ("a token at home", "kaas-system", "strong", &json!({"metadata": filled["metadata"]}), metadata),
    ] {
        refused(what, asked.patch(namespace, name, part), words);
    }
    for (namespace, name, words) in [
        ("kube-system", "strong", two),
        ("team-blue", "app", two),
        ("team-blue", "bank-kubeconfig", two),
        ("kaas-system", "dc9", two),
    ] {
        refused(&format!("removing {namespace}/{name}"), asked.delete(namespace, name), words);
    }

    for (name, type_) in [("shop-deployer", "Opaque"), ("shop-kubeconfig", "cluster.x-k8s.io/secret")] {
        taken("its own is made", asked.create("team-blue", &secret(name, type_, &owner)));
        taken("its own is written anew", asked.patch("team-blue", name, &data));
        taken("its own is removed", asked.delete("team-blue", name));
    }
    let keys = secret("5c0a3f4e-0f0e-4f54-9f8f-0b6c3f4f2a10", "kaas.local/cluster-keys", &json!({}));
    taken("its keys are made", asked.create("kaas-system", &keys));
    taken("its keys are written", asked.patch("kaas-system", "5c0a3f4e-0f0e-4f54-9f8f-0b6c3f4f2a10", &data));
    taken("its keys are removed", asked.delete("kaas-system", "5c0a3f4e-0f0e-4f54-9f8f-0b6c3f4f2a10"));
    refused("keys elsewhere", asked.create("team-blue", &keys), two);
    let kept =
        json!({"metadata": {"finalizers": ["kaas.local/credentials"], "labels": {"kaas.local/credentials": "kept"}}});
    taken("a Provider's is kept", asked.patch("kaas-system", "dc9", &kept));
    taken("a Provider's is let go", asked.patch("kaas-system", "dc9", &json!({"metadata": {"finalizers": null}})));
}

/// A tenant with the role for clusters in a namespace removes no finalizer of the controller. An administrator of the control cluster
/// may.
pub fn a_tenant_takes_no_finalizer_away(server: &ApiServer) {
    let bind =
        ["--namespace", "team-blue", "create", "rolebinding", "anna", "--clusterrole=kaas-tenant-edit", "--user=anna"];
    taken("a tenant's rights", server.kubectl(&bind, ""));
    let patch = |who: &[&str], finalizers: &Value| {
        let part = json!({"metadata": {"finalizers": finalizers}}).to_string();
        let words = ["--namespace", "team-blue", "patch", "tenantcluster", "shop", "--type=merge", "--patch", &part];
        server.kubectl(&[who, &words[..]].concat(), "")
    };
    let (anna, own, both) =
        (["--as=anna"], json!(["kaas.local/cluster"]), json!(["kaas.local/cluster", "example.com/x"]));
    taken("the finalizer", patch(&[], &own));
    obtain("the rights to be known", MOMENT, || Ok(patch(&anna, &both).is_ok().then_some(())))
        .unwrap_or_else(|error| panic!("{error:#}"));
    taken("another one is a tenant's own", patch(&anna, &own));
    let error = patch(&anna, &Value::Null).expect_err("the finalizer is taken away by a tenant");
    assert!(format!("{error:#}").contains("kept-finalizers.kaas.local"), "{error:#}");
    taken("by who runs the control cluster", patch(&[], &Value::Null));
    // Finding 5 of controller.md: only an operator confirms that a host is off.
    let annotate = |who: &[&str], annotation: &str| {
        let words = ["--namespace", "team-blue", "annotate", "--overwrite", "tenantcluster", "shop", annotation];
        server.kubectl(&[who, &words[..]].concat(), "")
    };
    let refused = |host: &str| {
        let error = annotate(&anna, &format!("kaas.local/host-is-off={host}")).expect_err("a tenant confirms a host");
        assert!(format!("{error:#}").contains("is set by an operator"), "{error:#}");
    };
    taken("a tenant's request", annotate(&anna, "kaas.local/replace-node=shop-cp1"));
    refused("esx1");
    taken("an operator's confirmation", annotate(&[], "kaas.local/host-is-off=esx1"));
    refused("esx2");
    taken("other changes", annotate(&anna, "example.com/x=y"));
    for annotation in ["kaas.local/host-is-off-", "kaas.local/replace-node-", "example.com/x-"] {
        taken("a withdrawal", annotate(&anna, annotation));
    }
}

/// A tenant sets the request annotation of an Operation, and changes no other field of it.
pub fn tenants_only_annotate_operations(server: &ApiServer, operation: &Value) {
    let name = operation["metadata"]["name"].as_str().expect("a name");
    let patch = |further: &[&str], metadata: &Value| {
        let part = json!({"metadata": metadata}).to_string();
        let words = ["--namespace", "team-blue", "patch", "operation", name, "--type=merge", "--patch", &part];
        server.kubectl(&[&words[..], further].concat(), "")
    };
    let (anna, told) = (["--as=anna"], json!({"annotations": {"kaas.local/do": "resume"}}));
    // A dry run: an accepted request changes nothing.
    let tries = ["--as=anna", "--dry-run=server"];
    let nowhere = json!({"ownerReferences": [{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "00000000-0000-0000-0000-000000000001",
    }]});
    obtain("the policy to refuse something", MOMENT, || Ok(patch(&tries, &nowhere).is_err().then_some(())))
        .unwrap_or_else(|error| panic!("{error:#}"));
    for (what, metadata) in [
        ("an owner that is nowhere", &nowhere),
        ("another cluster's label", &json!({"labels": {"kaas.local/cluster": "bank"}})),
        ("a finalizer", &json!({"finalizers": ["example.com/x"]})),
        ("another annotation", &json!({"annotations": {"kaas.local/do": "resume", "example.com/x": "y"}})),
    ] {
        let error = patch(&tries, metadata).expect_err(what);
        assert!(format!("{error:#}").contains("fixed-operations.kaas.local"), "{what}: {error:#}");
    }
    taken("a word", patch(&anna, &told));
    taken("no word", patch(&anna, &json!({"annotations": {"kaas.local/do": null}})));
    let kept = json!({"finalizers": ["example.com/x"]});
    taken("by who runs the control cluster", patch(&[], &kept));
    taken("a finalizer goes", patch(&anna, &json!({"finalizers": null})));
}

/// A tenant writes Secrets for clusters and reads none. One of another type is not written, and the controller's own are not deleted.
pub fn a_tenant_writes_inputs_and_reads_no_secret(server: &ApiServer) {
    let anna = |arguments: &[&str], input: &str| {
        server.kubectl(&[&["--as=anna", "--namespace", "team-blue"][..], arguments].concat(), input)
    };
    let create = |type_: &str| {
        // Without it, an API server refuses one of the type of tokens before it asks a policy.
        let of_account = json!({"annotations": {"kubernetes.io/service-account.name": "default"}});
        let made = secret("input", type_, &of_account).to_string();
        anna(&["create", "--validate=false", "--dry-run=server", "--filename=-"], &made)
    };
    obtain("the policy to refuse something", MOMENT, || Ok(create("Opaque").is_err().then_some(())))
        .unwrap_or_else(|error| panic!("{error:#}"));
    let refuses = |what: &str, answer: anyhow::Result<String>| {
        let error = format!("{:#}", answer.expect_err(what));
        assert!(
            error.contains("cluster-input.kaas.local") && error.contains("--type=kaas.local/cluster-input"),
            "{error}"
        );
    };
    for type_ in ["Opaque", "cluster.x-k8s.io/secret", "kubernetes.io/service-account-token"] {
        refuses(type_, create(type_));
    }
    let made = secret("input", "kaas.local/cluster-input", &json!({})).to_string();
    taken("an input", anna(&["create", "--validate=false", "--filename=-"], &made));
    for name in ["app", "bank-kubeconfig"] {
        refuses(name, anna(&["delete", "secret", name, "--wait=false"], ""));
    }
    for verb in ["get", "list"] {
        let answer = anna(&["auth", "can-i", verb, "secrets"], "");
        assert!(answer.is_err(), "a tenant may {verb} Secrets: {answer:?}");
    }
    taken("an input is deleted", anna(&["delete", "secret", "input", "--wait=false"], ""));
    taken(
        "by who runs the control cluster",
        server.kubectl(&["--namespace", "team-blue", "delete", "secret", "app"], ""),
    );
}

// Finding 1 of controller.md: with Kubernetes' role `edit` a tenant ran pods on control-plane nodes of the control cluster.
/// No pod runs in a namespace for clusters, whatever rights its user has.
pub fn no_pod_runs_where_clusters_are(server: &ApiServer) {
    // The role `edit` is empty here: the controller manager adds the rules of this role to it.
    let bind = ["create", "rolebinding", "mallory", "--clusterrole=system:aggregate-to-edit", "--user=mallory"];
    taken("Kubernetes' role", server.kubectl(&[&["--namespace", "team-blue"][..], &bind[..]].concat(), ""));
    // No controller manager runs here, which makes these elsewhere.
    for namespace in ["team-blue", "other", "kube-system"] {
        let account = ["--namespace", namespace, "create", "serviceaccount", "default"];
        taken("the account of pods", server.kubectl(&account, ""));
    }
    let runs = |namespace: &str, who: &[&str]| {
        let words = ["run", "pod", "--image=example.com/a:1", "--dry-run=server", "--restart=Never"];
        server.kubectl(&[who, &["--namespace", namespace][..], &words[..]].concat(), "")
    };
    let says = |words: &str| {
        let said = runs("team-blue", &["--as=mallory"]).err().map(|error| format!("{error:#}"));
        Ok(said.filter(|said| said.contains(words)))
    };
    let said = obtain("a policy to refuse a pod", MOMENT, || says("pods.kaas.local"));
    let said = said.unwrap_or_else(|error| panic!("{error:#}"));
    assert!(said.contains("the namespace team-blue of the control cluster is for tenant clusters"), "{said}");
    let said = runs("team-blue", &[]).map_err(|error| format!("{error:#}")).expect_err("an administrator's pod");
    assert!(said.contains("run it in a tenant cluster"), "{said}");
    for namespace in ["other", "kube-system"] {
        taken(namespace, runs(namespace, &[]));
    }
    let label = |value: &str| server.kubectl(&["label", "namespace", "team-blue", "--overwrite", value], "");
    taken("the operator's label", label("kaas.local/pods=allowed"));
    let is_let = || Ok(runs("team-blue", &[]).is_ok().then_some(()));
    obtain("the label to be known", MOMENT, is_let).unwrap_or_else(|error| panic!("{error:#}"));
    taken("no label", label("kaas.local/pods-"));
}

/// The controller binds the roles of tenants, and no other role.
pub fn the_controller_binds_only_the_roles_of_tenants(server: &ApiServer) {
    let bind = |role: &str| {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "bound"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"}],
        });
        let words = [ACCOUNT, "--namespace", "team-blue", "create", "--dry-run=server", "--filename=-"];
        server.kubectl(&words, &binding.to_string())
    };
    for role in ["kaas-tenant-edit", "kaas-tenant-view"] {
        taken(role, bind(role));
    }
    // The roles `edit` and `view` are empty here. These have their rules.
    for role in ["system:aggregate-to-edit", "system:aggregate-to-view", "cluster-admin"] {
        assert!(bind(role).is_err(), "{role} is bound");
    }
}
