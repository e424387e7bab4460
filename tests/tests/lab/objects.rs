//! The kinds of a control cluster, put to the image's own API server: what it takes, what it refuses and in which words.

pub mod short {
    use super::*;

    /// Each rule of each kind has refused something, and the examples of the documentation are taken.
    pub fn api_server_judges_objects_by_their_rules() {
        let bed = Bed::start("objects");
        bed.reached("the API server has the kinds, the policies, and one object of each");
        let mut shown = Shown::default();
        for (kind, change, words) in object_cases::made() {
            bed.refuses(&mut shown, kind, Bed::make, &change, words);
        }
        for (kind, change) in object_cases::made_and_taken() {
            let answer = bed.make(kind, &change);
            assert_eq!(answer.status, 201, "{kind} {change}: {}", said(&answer));
        }
        for (kind, change, words) in object_cases::edited() {
            bed.refuses(&mut shown, kind, Bed::edit, &change, words);
        }
        for (kind, change) in object_cases::edited_and_taken() {
            bed.takes(kind, Bed::edit, &change);
        }
        for (kind, change, words) in object_cases::noted() {
            bed.refuses(&mut shown, kind, Bed::note, &change, words);
        }
        bed.reached("objects are taken and refused one by one");
        a_minor_goes_back_until_it_is_reached(&bed, &mut shown);
        what_was_begun_for_control_nodes_stays(&bed, &mut shown);
        a_journal_grows_and_changes_nowhere_but_at_its_end(&bed, &mut shown);
        object_store::holds_and_journals_are_kept_as_objects(&bed.server);
        bed.reached("holds and journals are kept as objects");
        let (_, cluster) = &bed.kinds["TenantCluster"];
        object_secrets::controller_account_changes_secrets_of_clusters_only(&bed.server, cluster);
        object_secrets::a_tenant_takes_no_finalizer_away(&bed.server);
        object_secrets::tenants_only_annotate_operations(&bed.server, &bed.kinds["Operation"].1);
        object_secrets::a_tenant_writes_inputs_and_reads_no_secret(&bed.server);
        object_secrets::no_pod_runs_where_clusters_are(&bed.server);
        object_secrets::the_controller_binds_only_the_roles_of_tenants(&bed.server);
        bed.reached("the controller's account changes no Secret but a cluster's own");
        labels_are_judged_as_the_form_of_a_node_judges_them(&bed);
        a_cluster_is_deleted_once_that_is_confirmed(&bed);
        object_deletions::deletions_keep_keys_journals_and_vms(&bed.server, &bed.kinds);
        bed.reached("deletions keep keys, journals and VMs");
        assert!(bed.rules.len() > 60, "only {} rules were looked at", bed.rules.len());
        let never: Vec<_> = bed.rules.difference(&shown.0).collect();
        assert!(never.is_empty(), "no case shows what these refuse: {never:#?}");
        bed.reached("each rule has refused something");
    }
}

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use fleet::nodes::{Answer, Method};
use lab::obtain;
use scenarios::api_server::ApiServer;
use scenarios::scenario::image_under_test;
use serde_json::{Value, json};

use crate::{object_cases, object_deletions, object_secrets, object_store};

/// How long an API server may take to know a kind or a policy.
const MOMENT: Duration = Duration::from_secs(120);

/// The rules that have refused something: kind and message.
#[derive(Default)]
struct Shown(BTreeSet<(String, String)>);

/// An API server with the kinds and one object of each.
struct Bed {
    name: &'static str,
    started: Instant,
    server: ApiServer,
    /// By kind: where its objects are, and one of them.
    kinds: BTreeMap<String, (String, Value)>,
    /// The rules of all kinds: kind and message, as the API server has them.
    rules: BTreeSet<(String, String)>,
}

/// This project's directory.
fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The status and message of an API server's answer.
fn said(answer: &Answer) -> String {
    let status: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    format!("{} {}", answer.status, status["message"].as_str().unwrap_or_default())
}

/// An object with a part laid over it (RFC 7386).
fn merge(object: &mut Value, part: &Value) {
    let Value::Object(members) = part else {
        object.clone_from(part);
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (name, part) in members {
        let below = &mut object[name.as_str()];
        if part.is_null() {
            *below = Value::Null;
        } else {
            merge(below, part);
        }
    }
    if let Value::Object(members) = object {
        members.retain(|_, below| !below.is_null());
    }
}

impl Bed {
    fn start(name: &'static str) -> Self {
        let started = Instant::now();
        let tree = image_under_test().unwrap_or_else(|error| panic!("{error:#}")).tree();
        let server = ApiServer::start(&tree, name).unwrap_or_else(|error| panic!("{error:#}"));
        let mut bed = Self { name, started, server, kinds: BTreeMap::new(), rules: BTreeSet::new() };
        bed.reached("an API server is ready");
        // As the agent does with what the image has.
        let [kinds, others] = [contract::image::kinds_of("controller"), contract::image::objects_of("controller")]
            .map(|file| format!("--filename={}", tree.join(file.trim_start_matches('/')).display()));
        bed.kubectl(&["apply", "--server-side", &kinds], "");
        bed.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", &kinds], "");
        bed.kubectl(&["apply", "--server-side", &others], "");
        let served = || {
            let answer = bed.server.read("/apis/kaas.local/v1alpha1")?;
            let kinds = answer["resources"].as_array().cloned().unwrap_or_default();
            Ok(Some(kinds).filter(|kinds| kinds.iter().filter(|kind| !is_part(kind)).count() == 11))
        };
        let kinds = obtain("the kinds to be served", MOMENT, served).unwrap_or_else(|error| panic!("{error:#}"));
        // That of the controller comes with its rights.
        for namespace in ["team-blue", "other"] {
            bed.kubectl(&["create", "namespace", namespace], "");
        }
        let document = fs::read_to_string(workspace().join("docs/reference/objects.md")).expect("the documentation");
        let examples = document.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
        let examples = examples.collect::<Vec<_>>().join("---\n");
        // A kind that is served may have no store yet.
        let applied = || bed.server.kubectl(&["apply", "--server-side", "-f", "-"], &examples).map(Some);
        obtain("the examples to be taken", MOMENT, applied).unwrap_or_else(|error| panic!("{error:#}"));
        for kind in kinds.iter().filter(|kind| !is_part(kind)) {
            let plural = kind["name"].as_str().expect("a name");
            let within = if kind["namespaced"] == true { "/namespaces/team-blue" } else { "" };
            let path = format!("/apis/kaas.local/v1alpha1{within}/{plural}");
            let list = bed.server.read(&path).unwrap_or_else(|error| panic!("{error:#}"));
            let object = list["items"][0].clone();
            let name = kind["kind"].as_str().expect("a kind").to_owned();
            assert!(object["spec"].is_object(), "there is no {name}");
            bed.kinds.insert(name, (path, object));
        }
        bed.rules = bed.read_rules();
        bed.waits_for_policies();
        bed
    }

    fn reached(&self, what: &str) {
        println!("{} {:>4} s  {what}", self.name, self.started.elapsed().as_secs());
    }

    fn kubectl(&self, arguments: &[&str], input: &str) -> String {
        self.server.kubectl(arguments, input).unwrap_or_else(|error| panic!("{error:#}"))
    }

    fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        self.server.ask(method, path, body).unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// A policy is asked some time after it was made.
    fn waits_for_policies(&self) {
        let labelled = json!({"spec": {"labels": {"a b": "x"}}});
        obtain("a policy to refuse a label", MOMENT, || {
            Ok((self.make("NodePool", &labelled).status == 422).then_some(()))
        })
        .unwrap_or_else(|error| panic!("{error:#}"));
        obtain("a policy to refuse a deletion", MOMENT, || Ok((self.delete().status == 422).then_some(())))
            .unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// Requests the creation of an object that is like the existing one except for this change. Nothing is stored.
    fn make(&self, kind: &str, change: &Value) -> Answer {
        let (path, object) = &self.kinds[kind];
        let (mut made, path) = (object.clone(), path.replace("/namespaces/team-blue", "/namespaces/other"));
        let name = object["metadata"]["name"].as_str().expect("a name");
        let name = if path.contains("/namespaces/") { name.to_owned() } else { format!("{name}-x") };
        made["metadata"] = json!({"name": name});
        made["status"].take();
        if kind == "PoolAddress" {
            merge(&mut made, &json!({"metadata": {"name": "192-168-10-22"}, "spec": {"address": "192.168.10.22"}}));
        }
        merge(&mut made, change);
        self.ask(Method::POST, &format!("{path}?dryRun=All"), Some(&made))
    }

    fn place(&self, kind: &str) -> String {
        let (path, object) = &self.kinds[kind];
        format!("{path}/{}", object["metadata"]["name"].as_str().expect("a name"))
    }

    /// Requests a change of the existing object. Nothing is stored.
    fn edit(&self, kind: &str, change: &Value) -> Answer {
        self.ask(Method::PATCH, &format!("{}?dryRun=All", self.place(kind)), Some(change))
    }

    /// The same of its status.
    fn note(&self, kind: &str, change: &Value) -> Answer {
        self.ask(Method::PATCH, &format!("{}/status?dryRun=All", self.place(kind)), Some(change))
    }

    /// Changes the object, or its status, and keeps that.
    fn keeps(&self, kind: &str, part: &str, change: &Value) {
        let answer = self.ask(Method::PATCH, &format!("{}{part}", self.place(kind)), Some(change));
        assert_eq!(answer.status, 200, "{kind} {change}: {}", said(&answer));
    }

    /// Has the cluster deleted. Nothing is done.
    fn delete(&self) -> Answer {
        self.ask(Method::DELETE, &format!("{}?dryRun=All", self.place("TenantCluster")), None)
    }

    fn takes(&self, kind: &str, how: fn(&Self, &str, &Value) -> Answer, change: &Value) {
        let answer = how(self, kind, change);
        assert_eq!(answer.status, 200, "{kind} {change}: {}", said(&answer));
    }

    fn refuses(
        &self,
        shown: &mut Shown,
        kind: &str,
        how: fn(&Self, &str, &Value) -> Answer,
        change: &Value,
        words: &str,
    ) {
        let answer = how(self, kind, change);
        let said = said(&answer);
        assert!(answer.status == 422 && said.contains(words), "{kind} {change}: {words:?} is not in {said:?}");
        shown.0.extend(self.rules.iter().filter(|(of, message)| of == kind && said.contains(message)).cloned());
    }

    fn read_rules(&self) -> BTreeSet<(String, String)> {
        fn gather(kind: &str, schema: &Value, found: &mut BTreeSet<(String, String)>) {
            let parts = ["items", "additionalProperties"].into_iter().map(|part| &schema[part]);
            let below = schema["properties"].as_object().into_iter().flat_map(|properties| properties.values());
            parts.chain(below).filter(|below| below.is_object()).for_each(|below| gather(kind, below, found));
            let rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
            found.extend(rules.map(|rule| (kind.to_owned(), rule["message"].as_str().expect("a message").to_owned())));
        }
        let list = self.server.read("/apis/apiextensions.k8s.io/v1/customresourcedefinitions");
        let list = list.unwrap_or_else(|error| panic!("{error:#}"));
        let mut found = BTreeSet::new();
        for definition in list["items"].as_array().into_iter().flatten() {
            let kind = definition["spec"]["names"]["kind"].as_str().expect("a kind");
            gather(kind, &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"], &mut found);
        }
        found
    }
}

/// Whether what discovery lists is a part of an object.
fn is_part(resource: &Value) -> bool {
    resource["name"].as_str().is_some_and(|name| name.contains('/'))
}

fn a_minor_goes_back_until_it_is_reached(bed: &Bed, shown: &mut Shown) {
    const KIND: &str = "TenantCluster";
    let version = |minor: &str| json!({"spec": {"version": minor}});
    let reached = |minor: &str| json!({"status": {"kubernetes": minor}});
    let words = "Kubernetes goes up by one minor";
    let judged = |shown: &mut Shown, taken: &[&str], refused: &[&str]| {
        taken.iter().for_each(|minor| bed.takes(KIND, Bed::edit, &version(minor)));
        refused.iter().for_each(|minor| bed.refuses(shown, KIND, Bed::edit, &version(minor), words));
    };
    // Nothing runs yet: a typing mistake can be corrected.
    judged(shown, &["1.35", "1.36", "1.37"], &["1.34", "1.38"]);
    bed.keeps(KIND, "/status", &reached("1.36"));
    judged(shown, &["1.36", "1.37"], &["1.35", "1.38"]);
    bed.keeps(KIND, "", &version("1.37"));
    // Some control-plane nodes run 1.37, and one does not start: a rollback is allowed, and no further step.
    judged(shown, &["1.36", "1.37"], &["1.35", "1.38"]);
    // The image before does not carry it, and both go back in one edit.
    bed.takes(KIND, Bed::edit, &json!({"spec": {"version": "1.36", "image": "kaas-tenant-0.1.0"}}));
    bed.keeps(KIND, "/status", &reached("1.37"));
    judged(shown, &["1.37", "1.38"], &["1.36", "1.39"]);
    // The observed version is stored, whatever the spec says.
    bed.takes(KIND, Bed::note, &reached("1.30"));
    bed.takes(KIND, Bed::note, &json!({"status": {"kubernetes": null}}));
}

fn what_was_begun_for_control_nodes_stays(bed: &Bed, shown: &mut Shown) {
    const KIND: &str = "TenantCluster";
    let deployment = |goal: &str, address: &str| {
        let node = json!({"name": "shop-cp1", "address": address, "settingsHash": "0c"});
        json!({"status": {"deployment": {
            "cluster": "shop", "lifecycle": goal, "image": {"name": "kaas-tenant 0.2.0"}, "nodes": [node],
        }}})
    };
    let placed = |vm: &str| {
        let mut placed = deployment("Active", "192.168.10.21");
        placed["status"]["deployment"]["places"] = json!({vm: {"node": "shop-cp1", "settings": "[one] shop-cp1.vmx"}});
        placed
    };
    bed.refuses(shown, KIND, Bed::note, &deployment("Active", "192.168.10"), "should match");
    bed.refuses(shown, KIND, Bed::note, &placed("shop-cp1"), "has a key that is not the BIOS UUID of a VM");
    bed.keeps(KIND, "/status", &placed("0f5e2a30-7c1b-4d7e-9a55-0d6a1c5b7e21"));
    for change in [json!({"status": {"deployment": null}}), json!({"status": null})] {
        bed.refuses(shown, KIND, Bed::note, &change, "status.deployment stays");
    }
    bed.takes(KIND, Bed::note, &deployment("Deleted", "192.168.10.21"));
}

fn a_journal_grows_and_changes_nowhere_but_at_its_end(bed: &Bed, shown: &mut Shown) {
    const KIND: &str = "Operation";
    let entry = |at: u32, event: &str| json!({"at": at, "lease": 4, "event": event, "action": "prepare", "node": 0});
    let of = |entries: Vec<Value>| json!({"status": {"entries": entries}});
    let begun = || vec![entry(1, "planned"), entry(2, "begun"), entry(3, "done"), entry(4, "paused")];
    bed.keeps(KIND, "/status", &of(begun()));
    let with = |change: &dyn Fn(&mut Vec<Value>)| {
        let mut entries = begun();
        change(&mut entries);
        of(entries)
    };
    let (stay, as_they_are) = ("entries of a journal stay", "entries of a journal stay as they are");
    let status = bed.server.read(&bed.place(KIND)).unwrap_or_else(|error| panic!("{error:#}"))["status"].clone();
    assert_eq!(status["entries"][1]["node"], 0, "what the schema does not know of an entry is kept");
    for (change, words) in [
        (json!({"status": {"entries": null}}), stay),
        (json!({"status": null}), stay),
        (with(&|entries| drop(entries.pop())), stay),
        (with(&|entries| entries[0]["at"] = json!(9)), as_they_are),
        (with(&|entries| entries[2]["more"] = json!("other")), as_they_are),
        (with(&|entries| entries[2] = entry(3, "begun")), as_they_are),
        (with(&|entries| entries[3] = entry(9, "done")), as_they_are),
        (with(&|entries| entries.insert(1, entry(9, "begun"))), as_they_are),
        (with(&|entries| entries.extend(vec![entry(9, "done"); 2045])), "must have at most 2048 items"),
    ] {
        bed.refuses(shown, KIND, Bed::note, &change, words);
    }
    for change in [
        with(&|_| ()),
        with(&|entries| entries[3]["at"] = json!(9)),
        with(&|entries| entries.push(entry(9, "done"))),
        with(&|entries| entries.extend(vec![entry(9, "done"); 2044])),
        json!({"status": {"step": "prepare shop-cp1"}}),
    ] {
        bed.takes(KIND, Bed::note, &change);
    }
    bed.keeps(KIND, "/status", &with(&|entries| entries.push(entry(5, "done"))));
    bed.refuses(shown, KIND, Bed::note, &with(&|entries| entries.push(entry(6, "done"))), as_they_are);
}

/// One table for both: what would be refused on the form of a node is refused before its VM is made.
fn labels_are_judged_as_the_form_of_a_node_judges_them(bed: &Bed) {
    let table = fs::read_to_string(workspace().join("contract/testdata/node-label-keys.txt")).expect("the table");
    let mut counts = BTreeMap::new();
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let (judged, key) = line.split_once(' ').expect("a line of the table");
        let answer = bed.make("NodePool", &json!({"spec": {"labels": {key: "x"}}}));
        let said = said(&answer);
        let found = match answer.status {
            201 => "own",
            422 if said.contains("not a node's own to set") => "reserved",
            _ => "malformed",
        };
        assert_eq!(found, judged, "{key:?}: {said}");
        *counts.entry(judged).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 3, "{counts:?}");
}

fn a_cluster_is_deleted_once_that_is_confirmed(bed: &Bed) {
    let confirm = |name: &str| json!({"metadata": {"annotations": {"kaas.local/confirm-delete": name}}});
    assert!(said(&bed.delete()).contains("kubectl annotate --namespace team-blue tenantcluster shop"));
    bed.keeps("TenantCluster", "", &confirm("bank"));
    assert_eq!(bed.delete().status, 422);
    bed.keeps("TenantCluster", "", &confirm("shop"));
    assert_eq!(bed.delete().status, 200);
    let scaled =
        bed.ask(Method::PATCH, &format!("{}/scale", bed.place("NodePool")), Some(&json!({"spec": {"replicas": 5}})));
    assert_eq!(scaled.status, 200, "{}", said(&scaled));
    let pool = bed.server.read(&bed.place("NodePool")).unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!(pool["spec"]["replicas"], 5);
}
