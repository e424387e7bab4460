//! Typed calls on objects: find, list, create, delete, and write status, finalizers or an annotation of an object that was read.
//! A write is one request, which fails if the object was changed since. Fields that this version does not know stay as they are.

use kube::ResourceExt;
use serde::Serialize;
use serde_json::{Value, json};

pub use super::kind::{Kind, Tolerant, full_name};

use super::failure::Failure;
use super::kind::{read, read_tolerant};
use super::objects::{Collection, Objects};

/// The object of this name. `None` if it does not exist.
pub async fn find<K: Kind>(objects: &dyn Objects, namespace: Option<&str>, name: &str) -> Result<Option<K>, Failure> {
    match objects.get(&Collection::of::<K>(namespace), name).await {
        Ok(object) => read(&object).map(Some),
        Err(Failure::Missing) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// All objects of a namespace, or of all namespaces. `label` is a label or the path of a field, with its value
/// ([`Objects::list`]).
///
/// # Errors
/// The API server does not answer, or one of the objects cannot be read. A caller that acts on all of them would take
/// that object for missing.
pub async fn list<K: Kind>(
    objects: &dyn Objects,
    namespace: Option<&str>,
    label: Option<(&str, &str)>,
) -> Result<Vec<K>, Failure> {
    objects.list(&Collection::of::<K>(namespace), label).await?.iter().map(read).collect()
}

/// As [`list`], for objects that the caller does not own. It fails only if a spec cannot be read.
pub async fn list_tolerant<K: Kind>(
    objects: &dyn Objects,
    namespace: Option<&str>,
    label: Option<(&str, &str)>,
) -> Result<Tolerant<K>, Failure> {
    read_tolerant(objects.list(&Collection::of::<K>(namespace), label).await?)
}

/// Creates an object in the namespace of its metadata. [`Failure::Exists`] if there is an object of this name.
pub async fn create<K: Kind>(objects: &dyn Objects, object: &K) -> Result<K, Failure> {
    let of = Collection::of::<K>(object.namespace().as_deref());
    let made = serde_json::to_value(object).map_err(|error| Failure::Unknown(error.into()))?;
    read(&objects.create(&of, &made).await?)
}

/// Deletes an object that was read. An object that does not exist is no error.
pub async fn delete<K: Kind>(objects: &dyn Objects, seen: &K) -> Result<(), Failure> {
    let object = serde_json::to_value(seen).map_err(|error| Failure::Unknown(error.into()))?;
    match objects.delete_as_read(&Collection::of::<K>(seen.namespace().as_deref()), &object).await {
        Err(Failure::Missing) => Ok(()),
        deleted => deleted,
    }
}

/// Writes the status of an object that was read. Only fields that differ from `before` are sent. True if a request was sent.
pub async fn note<K: Kind, S: Serialize>(
    objects: &dyn Objects,
    seen: &K,
    before: Option<&S>,
    now: &S,
) -> Result<bool, Failure> {
    let value = |status: &S| serde_json::to_value(status).map_err(|error| Failure::Unknown(error.into()));
    let before = before.map(value).transpose()?.unwrap_or_else(|| json!({}));
    let Some(part) = difference(&before, &value(now)?) else { return Ok(false) };
    let part = json!({"metadata": {"resourceVersion": seen.meta().resource_version}, "status": part});
    let of = Collection::of::<K>(seen.namespace().as_deref());
    objects.patch_status(&of, &seen.name_any(), &part).await.map(|_| true)
}

/// Adds a finalizer to an object that was read. True if it was missing.
pub async fn add_finalizer<K: Kind>(objects: &dyn Objects, seen: &K, finalizer: &str) -> Result<bool, Failure> {
    let mut finalizers = seen.finalizers().to_vec();
    if finalizers.iter().any(|there| there == finalizer) {
        return Ok(false);
    }
    finalizers.push(finalizer.to_owned());
    finalized(objects, seen, &finalizers).await.map(|()| true)
}

/// Removes a finalizer from an object that was read. True if it was present.
pub async fn remove_finalizer<K: Kind>(objects: &dyn Objects, seen: &K, finalizer: &str) -> Result<bool, Failure> {
    let left: Vec<String> = seen.finalizers().iter().filter(|there| *there != finalizer).cloned().collect();
    if left.len() == seen.finalizers().len() {
        return Ok(false);
    }
    match finalized(objects, seen, &left).await {
        Err(Failure::Missing) => Ok(true),
        written => written.map(|()| true),
    }
}

/// Removes an annotation from an object that was read, once the operator's request in it was answered.
pub async fn remove_annotation<K: Kind>(objects: &dyn Objects, seen: &K, annotation: &str) -> Result<(), Failure> {
    let part = json!({
        "metadata": {"resourceVersion": seen.meta().resource_version, "annotations": {annotation: null}},
    });
    let of = Collection::of::<K>(seen.namespace().as_deref());
    match objects.patch(&of, &seen.name_any(), &part).await {
        Err(Failure::Missing) => Ok(()),
        written => written.map(drop),
    }
}

async fn finalized<K: Kind>(objects: &dyn Objects, seen: &K, finalizers: &[String]) -> Result<(), Failure> {
    let part = json!({"metadata": {"resourceVersion": seen.meta().resource_version, "finalizers": finalizers}});
    let of = Collection::of::<K>(seen.namespace().as_deref());
    objects.patch(&of, &seen.name_any(), &part).await.map(drop)
}

/// The merge patch (RFC 7386) from one value to another. `None` if they are equal.
fn difference(before: &Value, now: &Value) -> Option<Value> {
    if before == now {
        return None;
    }
    let (Value::Object(was), Value::Object(is)) = (before, now) else { return Some(now.clone()) };
    let mut part = serde_json::Map::new();
    for name in was.keys().filter(|name| !is.contains_key(*name)) {
        part.insert(name.clone(), Value::Null);
    }
    for (name, value) in is {
        let changed = was.get(name).map_or_else(|| Some(value.clone()), |was| difference(was, value));
        if let Some(changed) = changed {
            part.insert(name.clone(), changed);
        }
    }
    Some(Value::Object(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Machine;
    use crate::reach::in_memory::InMemory;

    /// Puts a Machine with a change that the types do not know.
    fn put(api: &InMemory, name: &str, change: impl FnOnce(&mut Value)) {
        let mut machine = serde_json::to_value(Machine::new(name, crate::objects::fixture::worker())).unwrap();
        machine["metadata"]["namespace"] = json!("team-blue");
        change(&mut machine);
        api.put_value(&Collection::of::<Machine>(Some("team-blue")), machine);
    }

    fn names(machines: &[Machine]) -> Vec<String> {
        machines.iter().map(ResourceExt::name_any).collect()
    }

    #[tokio::test]
    async fn an_unreadable_object_is_named_and_not_missing() {
        let api = InMemory::default();
        put(&api, "shop-w1", |_| ());
        put(&api, "shop-w2", |it| it["status"] = json!({"phase": "Dreaming"}));
        let is_named = |failure: Failure| {
            let Failure::Unreadable { namespace, words } = failure else { panic!("{failure:?}") };
            assert_eq!(namespace.as_deref(), Some("team-blue"));
            let begin = "the Machine team-blue/shop-w2 cannot be read: unknown variant `Dreaming`";
            assert!(words.starts_with(begin), "{words}");
        };
        is_named(find::<Machine>(&api, Some("team-blue"), "shop-w2").await.unwrap_err());
        is_named(list::<Machine>(&api, None, None).await.unwrap_err());
        let Tolerant { whole, mut unread } = list_tolerant::<Machine>(&api, None, None).await.unwrap();
        assert_eq!(names(&whole), ["shop-w1"]);
        let (machine, failure) = unread.pop().unwrap();
        assert_eq!((machine.name_any().as_str(), machine.status, unread.len()), ("shop-w2", None, 0));
        is_named(failure);
        assert_eq!(names(&list_tolerant::<Machine>(&api, None, None).await.unwrap().all()), ["shop-w1", "shop-w2"]);
        assert!(find::<Machine>(&api, Some("team-blue"), "shop-w1").await.unwrap().is_some());
    }

    #[tokio::test]
    async fn an_unreadable_spec_fails_every_list() {
        let api = InMemory::default();
        put(&api, "shop-w1", |_| ());
        put(&api, "shop-w2", |it| it["spec"]["role"] = json!("Dreamer"));
        let failure = list_tolerant::<Machine>(&api, None, None).await.unwrap_err();
        assert!(failure.to_string().starts_with("the Machine team-blue/shop-w2 cannot be read: "), "{failure}");
    }

    #[test]
    fn a_difference_has_added_changed_and_removed_fields() {
        let before = json!({"same": 1, "list": [1, 2], "deep": {"a": 1, "b": 2}, "gone": true, "kind": {"x": 1}});
        let now = json!({"same": 1, "list": [1], "deep": {"a": 1, "b": 3}, "new": {"y": 1}, "kind": "text"});
        let part = json!({"list": [1], "deep": {"b": 3}, "gone": null, "new": {"y": 1}, "kind": "text"});
        assert_eq!(difference(&before, &now), Some(part));
        assert_eq!(difference(&now, &now), None);
    }
}
