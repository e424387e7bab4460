//! An API server in memory for tests. It has resource versions, unique names, separate statuses, and deletion that waits for
//! finalizers. It rejects calls that a controller has no rights for, and changes of Secrets that its policy forbids. Calls can
//! fail by a [`Fault`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

use async_trait::async_trait;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionSpec;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use uuid::Uuid;

use super::failure::Failure;
use super::kinds::Kind;
use super::objects::{Collection, Objects};
use crate::documents::RIGHTS;
use crate::objects::{SYSTEM, all};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is not done, and the answer is lost.
    NotDone,
    /// It is done, and the answer is lost.
    Done,
    /// Another client writes the object just before.
    Changed,
}

/// A change of an object, as from a watch.
pub(crate) struct Heard {
    pub(crate) plural: String,
    /// The current object, or the last version of a deleted one.
    pub(crate) object: Value,
    pub(crate) is_there: bool,
}

type Key = (String, String, String);

#[derive(Default)]
struct Kept {
    objects: BTreeMap<Key, Value>,
    /// Receives each change.
    watch: Option<UnboundedSender<Heard>>,
    version: u64,
    calls: usize,
    fault: Option<(usize, Fault)>,
    is_away: bool,
    /// The plurals of kinds whose objects were listed.
    listed: BTreeSet<String>,
    /// The number of UIDs from a fixed sequence. `None` if UIDs are random.
    repeated: Option<u128>,
}

/// Clones share one server.
#[derive(Clone, Default)]
pub(crate) struct InMemory(Arc<Mutex<Kept>>);

fn key(of: &Collection, name: &str) -> Key {
    (of.plural.clone().into_owned(), of.namespace.clone().unwrap_or_default(), name.to_owned())
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

/// Rejects calls that the controller's RBAC rules do not permit. `part` is a subresource.
fn permitted(verb: &str, of: &Collection, part: &str) -> Result<(), Failure> {
    let (group, _) = of.version.split_once('/').unwrap_or_default();
    let (resource, namespace) = (format!("{}{part}", of.plural), of.namespace.as_deref());
    match RIGHTS.iter().any(|right| right.permits(verb, group, &resource, namespace)) {
        true => Ok(()),
        false => Err(Failure::Refused(format!("403 {verb} {resource} in {namespace:?} is forbidden"))),
    }
}

/// Rejects a field selector that the kind's definition does not list.
fn selectable(of: &Collection, by: Option<&str>) -> Result<(), Failure> {
    /// Plurals with the paths of their fields.
    static FIELDS: LazyLock<BTreeSet<(String, String)>> = LazyLock::new(|| {
        let mut fields = BTreeSet::new();
        for CustomResourceDefinitionSpec { names, versions, .. } in all().into_iter().map(|kind| kind.definition.spec) {
            let of_kind = versions.into_iter().flat_map(|version| version.selectable_fields.unwrap_or_default());
            fields.extend(of_kind.map(|field| (names.plural.clone(), field.json_path)));
        }
        fields
    });
    let Some(field) = by.filter(|name| name.starts_with('.')) else { return Ok(()) };
    match FIELDS.contains(&(of.plural.clone().into_owned(), field.to_owned())) {
        true => Ok(()),
        false => Err(Failure::Refused(format!("400 field label not supported: {field} of {}", of.plural))),
    }
}

/// Rejects changes of Secrets that the policy `controller-secrets` forbids on a real API server. `before` is `None` for a new
/// object, `after` for a deleted one.
fn judged(of: &Collection, before: Option<&Value>, after: Option<&Value>) -> Result<(), Failure> {
    let Some(secret) = before.or(after).filter(|_| of.plural == "secrets") else { return Ok(()) };
    if of.namespace.as_deref() == Some(SYSTEM) && secret["type"] == "kaas.local/cluster-keys" {
        return Ok(());
    }
    let owners = secret["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let clusters = owners.filter(|owner| owner["kind"] == "TenantCluster");
    let name = secret["metadata"]["name"].as_str().unwrap_or_default();
    let of_clusters = clusters.filter_map(|owner| name.strip_prefix(owner["name"].as_str()?));
    let type_ = of_clusters.into_iter().find_map(|end| match end {
        "-deployer" => Some("Opaque"),
        "-kubeconfig" => Some("cluster.x-k8s.io/secret"),
        _ => None,
    });
    let may = match (type_, before.zip(after)) {
        (Some(type_), _) => after.is_none() || secret["type"] == type_,
        (None, Some((before, after))) if of.namespace.as_deref() == Some(SYSTEM) => {
            ["data", "immutable", "type"].iter().all(|field| before[field] == after[field])
                && before["metadata"]["ownerReferences"] == after["metadata"]["ownerReferences"]
                && before["type"] != "kubernetes.io/service-account-token"
        }
        (None, _) => false,
    };
    if may { Ok(()) } else { Err(Failure::Refused(format!("422 the policy has a controller leave the Secret {name}"))) }
}

/// Applies a merge patch (RFC 7386).
fn merge(object: &mut Value, part: &Value) {
    let Value::Object(members) = part else {
        object.clone_from(part);
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (name, part) in members {
        if part.is_null() {
            object.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut object[name.as_str()], part);
        }
    }
}

/// Restores the status, or removes a new one: only calls for the status change it.
fn keep_status(object: &mut Value, status: Option<Value>) {
    match status {
        Some(status) => object["status"] = status,
        None => drop(object.as_object_mut().unwrap().remove("status")),
    }
}

impl Kept {
    fn next(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    fn uid(&mut self) -> String {
        // Each part differs from those of other UIDs, as in a random one.
        const STEP: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
        let uid = match &mut self.repeated {
            None => Uuid::new_v4(),
            Some(drawn) => {
                *drawn += 1;
                uuid::Builder::from_random_bytes(drawn.wrapping_mul(STEP).to_be_bytes()).into_uuid()
            }
        };
        uid.to_string()
    }

    /// Stores an object. An object that is being deleted is removed with its last finalizer.
    fn keep(&mut self, key: Key, mut object: Value, before: Option<&Value>) -> Value {
        if before.is_some_and(|before| *before == object) {
            return object;
        }
        if before.is_some_and(|before| before["spec"] != object["spec"]) {
            object["metadata"]["generation"] =
                (object["metadata"]["generation"].as_i64().unwrap_or_default() + 1).into();
        }
        object["metadata"]["resourceVersion"] = self.next().into();
        let is_going = object["metadata"]["deletionTimestamp"].is_string();
        let is_there = !is_going || object["metadata"]["finalizers"].as_array().is_some_and(|kept| !kept.is_empty());
        if let Some(watch) = &self.watch {
            // A receiver that was dropped gets nothing.
            let _ = watch.send(Heard { plural: key.0.clone(), object: object.clone(), is_there });
        }
        if is_there {
            self.objects.insert(key, object.clone());
        } else {
            self.objects.remove(&key);
        }
        object
    }
}

impl InMemory {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap()
    }

    /// A server whose UIDs are the same in each run, if objects are created in the same order.
    pub(crate) fn repeatable() -> Self {
        let kept = Kept { repeated: Some(0), ..Kept::default() };
        Self(Arc::new(Mutex::new(kept)))
    }

    pub(crate) fn snapshot(&self) -> BTreeMap<Key, Value> {
        self.kept().objects.clone()
    }

    /// Restores all objects, as when the database of an API server is restored.
    pub(crate) fn restore(&self, objects: BTreeMap<Key, Value>) {
        self.kept().objects = objects;
    }

    /// Fails at this call, counted from 0 and from now.
    pub(crate) fn fails_at(&self, call: usize, fault: Fault) {
        let mut kept = self.kept();
        (kept.calls, kept.fault) = (0, Some((call, fault)));
    }

    /// Answers no calls, or answers them again.
    pub(crate) fn is_away(&self, is_away: bool) {
        self.kept().is_away = is_away;
    }

    /// All changes from now on, except the concurrent writes of a [`Fault`].
    pub(crate) fn watched(&self) -> UnboundedReceiver<Heard> {
        let (watch, heard) = unbounded_channel();
        self.kept().watch = Some(watch);
        heard
    }

    /// The number of objects, and their size as JSON in bytes: etcd stores custom resources as JSON.
    pub(crate) fn size(&self) -> (usize, usize) {
        let kept = self.kept();
        (kept.objects.len(), kept.objects.values().map(|object| object.to_string().len()).sum())
    }

    pub(crate) fn calls(&self) -> usize {
        self.kept().calls
    }

    /// The plurals of kinds whose objects were listed, in a namespace or in all, since the last call.
    pub(crate) fn listed(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.kept().listed)
    }

    /// An object by its kind's plural and its name, without faults.
    pub(crate) fn named(&self, plural: &str, name: &str) -> Option<Value> {
        let kept = self.kept();
        kept.objects.iter().find(|((of, _, at), _)| of == plural && at == name).map(|(_, object)| object.clone())
    }

    /// An object as the operator sees it, without RBAC and faults.
    pub(crate) fn read<K: Kind>(&self, namespace: Option<&str>, name: &str) -> Option<K> {
        let found = self.kept().objects.get(&key(&Collection::of::<K>(namespace), name)).cloned();
        found.map(|found| serde_json::from_value(found).unwrap())
    }

    pub(crate) fn names(&self, plural: &str) -> Vec<String> {
        self.kept().objects.keys().filter(|(of, ..)| of == plural).map(|(.., name)| name.clone()).collect()
    }

    pub(crate) fn object(&self, plural: &str) -> Value {
        let kept = self.kept();
        kept.objects.iter().find(|((of, ..), _)| of == plural).unwrap_or_else(|| panic!("no {plural}")).1.clone()
    }

    /// Creates or replaces an object with its status, as an operator would.
    pub(crate) fn put<K: kube::Resource<DynamicType = ()> + Serialize>(&self, object: &K) -> Value {
        let of = Collection::of::<K>(object.meta().namespace.as_deref());
        self.put_value(&of, serde_json::to_value(object).unwrap())
    }

    /// As `put`, for an object that may be of a later version.
    pub(crate) fn put_value(&self, of: &Collection, mut value: Value) -> Value {
        let key = key(of, &name(&value));
        let mut kept = self.kept();
        let before = kept.objects.get(&key).cloned();
        let metadata = before.as_ref().map(|before| before["metadata"].clone());
        for (field, made) in [("uid", json!(kept.uid())), ("generation", json!(1))] {
            let there = metadata.as_ref().map(|metadata| metadata[field].clone()).filter(|there| !there.is_null());
            if value["metadata"][field].is_null() {
                value["metadata"][field] = there.unwrap_or(made);
            }
        }
        kept.keep(key, value, before.as_ref())
    }

    /// Requests the deletion of an object, as an operator would.
    pub(crate) fn remove<K: kube::Resource<DynamicType = ()>>(&self, namespace: Option<&str>, name: &str) {
        let key = key(&Collection::of::<K>(namespace), name);
        let mut kept = self.kept();
        let Some(before) = kept.objects.get(&key).cloned() else { return };
        let mut object = before.clone();
        object["metadata"]["deletionTimestamp"] = "2027-01-01T00:00:00Z".into();
        kept.keep(key, object, Some(&before));
    }

    /// Does a call, or fails as planned.
    fn call<T>(
        &self,
        written: Option<(&Collection, &str)>,
        act: impl FnOnce(&mut Kept) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut kept = self.kept();
        let fault = kept.fault.filter(|(at, _)| *at == kept.calls).map(|(_, fault)| fault);
        kept.calls += 1;
        let unknown = || Err(Failure::Unknown(anyhow::anyhow!("the connection is gone")));
        if kept.is_away {
            return unknown();
        }
        match fault {
            None => act(&mut kept),
            Some(Fault::NotDone) => unknown(),
            Some(Fault::Done) => act(&mut kept).and_then(|_| unknown()),
            Some(Fault::Changed) => {
                let version = kept.next();
                if let Some(object) = written.and_then(|(of, name)| kept.objects.get_mut(&key(of, name))) {
                    object["metadata"]["resourceVersion"] = version.into();
                    object["status"]["other"] = "written by another client".into();
                }
                act(&mut kept)
            }
        }
    }

    fn write(
        &self,
        of: &Collection,
        name: &str,
        version: &Value,
        part: impl FnOnce(&mut Value),
    ) -> Result<Value, Failure> {
        self.call(Some((of, name)), |kept| {
            let key = key(of, name);
            let before = kept.objects.get(&key).cloned().ok_or(Failure::Missing)?;
            if !version.is_null() && before["metadata"]["resourceVersion"] != *version {
                return Err(Failure::Changed);
            }
            let mut object = before.clone();
            part(&mut object);
            // Clients cannot write these fields.
            for field in ["uid", "generation", "deletionTimestamp", "resourceVersion"] {
                match before["metadata"].get(field) {
                    Some(there) => object["metadata"][field] = there.clone(),
                    None => drop(object["metadata"].as_object_mut().unwrap().remove(field)),
                }
            }
            judged(of, Some(&before), Some(&object))?;
            Ok(kept.keep(key, object, Some(&before)))
        })
    }
}

#[async_trait]
impl Objects for InMemory {
    async fn list(&self, of: &Collection, label: Option<(&str, &str)>) -> Result<Vec<Value>, Failure> {
        permitted("list", of, "")?;
        selectable(of, label.map(|(name, _)| name))?;
        self.call(None, |kept| {
            if label.is_none() {
                kept.listed.insert(of.plural.clone().into_owned());
            }
            let is_of = |(plural, namespace, _): &Key| {
                *plural == of.plural && of.namespace.as_ref().is_none_or(|of| of == namespace)
            };
            // In the order of keys, so that other collections are not visited.
            let all = kept.objects.range(key(of, "")..).take_while(|(key, _)| is_of(key)).map(|(_, object)| object);
            let has = |object: &&Value| {
                label.is_none_or(|(name, value)| match name.strip_prefix('.') {
                    Some(field) => object.pointer(&format!("/{}", field.replace('.', "/"))) == Some(&json!(value)),
                    None => object["metadata"]["labels"][name] == value,
                })
            };
            Ok(all.filter(has).cloned().collect())
        })
    }

    async fn get(&self, of: &Collection, name: &str) -> Result<Value, Failure> {
        permitted("get", of, "")?;
        self.call(None, |kept| kept.objects.get(&key(of, name)).cloned().ok_or(Failure::Missing))
    }

    async fn create(&self, of: &Collection, object: &Value) -> Result<Value, Failure> {
        permitted("create", of, "")?;
        self.call(None, |kept| {
            let key = key(of, &name(object));
            judged(of, None, Some(object))?;
            if kept.objects.contains_key(&key) {
                return Err(Failure::Exists);
            }
            let mut object = object.clone();
            if let Some(namespace) = &of.namespace {
                object["metadata"]["namespace"] = namespace.as_str().into();
            }
            object["metadata"]["uid"] = kept.uid().into();
            object["metadata"]["generation"] = 1.into();
            // Timestamps are unique, in whole seconds.
            let second = i64::try_from(kept.version).unwrap_or_default();
            let made = k8s_openapi::jiff::Timestamp::UNIX_EPOCH + k8s_openapi::jiff::SignedDuration::from_secs(second);
            object["metadata"]["creationTimestamp"] = made.to_string().into();
            if let Some(members) = object.as_object_mut() {
                members.remove("status");
            }
            Ok(kept.keep(key, object, None))
        })
    }

    async fn replace(&self, of: &Collection, object: &Value) -> Result<Value, Failure> {
        permitted("update", of, "")?;
        self.write(of, &name(object), &object["metadata"]["resourceVersion"], |there| {
            let status = there.get("status").cloned();
            there.clone_from(object);
            keep_status(there, status);
        })
    }

    async fn replace_status(&self, of: &Collection, object: &Value) -> Result<Value, Failure> {
        permitted("update", of, "/status")?;
        self.write(of, &name(object), &object["metadata"]["resourceVersion"], |there| {
            there["status"] = object["status"].clone();
        })
    }

    async fn patch(&self, of: &Collection, name: &str, part: &Value) -> Result<Value, Failure> {
        permitted("patch", of, "")?;
        self.write(of, name, &part["metadata"]["resourceVersion"], |there| {
            let status = there.get("status").cloned();
            merge(there, part);
            keep_status(there, status);
        })
    }

    async fn patch_status(&self, of: &Collection, name: &str, part: &Value) -> Result<Value, Failure> {
        permitted("patch", of, "/status")?;
        self.write(of, name, &part["metadata"]["resourceVersion"], |there| merge(&mut there["status"], &part["status"]))
    }

    async fn delete(&self, of: &Collection, name: &str) -> Result<(), Failure> {
        permitted("delete", of, "")?;
        self.call(None, |kept| {
            let key = key(of, name);
            let before = kept.objects.get(&key).cloned().ok_or(Failure::Missing)?;
            judged(of, Some(&before), None)?;
            let mut object = before.clone();
            object["metadata"]["deletionTimestamp"] = "2027-01-01T00:00:00Z".into();
            kept.keep(key, object, Some(&before));
            Ok(())
        })
    }

    async fn delete_as_read(&self, of: &Collection, object: &Value) -> Result<(), Failure> {
        {
            let kept = self.kept();
            if let Some(there) = kept.objects.get(&key(of, &name(object))) {
                let fields = BTreeSet::from(["uid", "resourceVersion"]);
                if fields.iter().any(|field| there["metadata"][field] != object["metadata"][field]) {
                    return Err(Failure::Changed);
                }
            }
        }
        self.delete(of, &name(object)).await
    }
}
