//! The objects of a file: one document of YAML or JSON for each, or a list of them.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use controller::objects::{GROUP, VERSION};
use serde_json::Value;

/// The objects of a file, in its order.
///
/// # Errors
/// The file cannot be read or parsed, or has an object of another kind than `kinds`. `instead` is the advice for such objects.
pub fn read(path: &Path, kinds: &[&str], instead: &str) -> anyhow::Result<Vec<Value>> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    of(&text, kinds, instead).with_context(|| format!("understanding {}", path.display()))
}

fn of(text: &str, kinds: &[&str], instead: &str) -> anyhow::Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    let objects: Vec<Value> = documents.into_iter().filter(|document| !document.is_null()).flat_map(members).collect();
    ensure!(!objects.is_empty(), "it has no object");
    let version = format!("{GROUP}/{VERSION}");
    for object in &objects {
        let (of, kind) = (super::text(object, "/apiVersion"), super::text(object, "/kind"));
        if of != version || !kinds.contains(&kind) {
            bail!(
                "it has an object of the kind {kind:?} of {of:?}, not of {} of {version}: {instead}",
                kinds.join(", ")
            );
        }
        let name = super::text(object, "/metadata/name");
        super::name(name).map_err(|wrong| anyhow::anyhow!("the name {name:?} of a {kind}: {wrong}"))?;
        // Fields that only the API server sets.
        ensure!(
            object["metadata"]["managedFields"].is_null() && object["metadata"]["resourceVersion"].is_null(),
            "{name} was read from an API server: leave out metadata.managedFields, metadata.resourceVersion and status"
        );
    }
    Ok(objects)
}

/// The objects of a list, or the one object of another document.
fn members(mut document: Value) -> Vec<Value> {
    if super::text(&document, "/kind") != "List" {
        return vec![document];
    }
    match document["items"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: &str = "apiVersion: kaas.local/v1alpha1\nkind: IPPool\nmetadata: {name: blue}\n";

    #[test]
    fn documents_are_read_in_order_without_empty_ones() {
        let class = POOL.replace("IPPool", "VMClass");
        let read = of(&format!("---\n{POOL}---\n---\n{class}"), &["IPPool", "VMClass"], "no").unwrap();
        let kinds: Vec<&str> = read.iter().map(|object| super::super::text(object, "/kind")).collect();
        assert_eq!(kinds, ["IPPool", "VMClass"]);
        let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": read}).to_string();
        assert_eq!(of(&list, &["IPPool", "VMClass"], "no").unwrap(), read);
    }

    #[test]
    fn other_objects_are_refused() {
        let refused = |text: &str| format!("{:#}", of(text, &["IPPool"], "kubectl applies others").unwrap_err());
        assert!(refused("").contains("no object"));
        refused("a: [");
        let other = refused(&POOL.replace("IPPool", "Secret"));
        assert!(other.contains("\"Secret\"") && other.contains("kubectl applies others"), "{other}");
        assert!(refused(&POOL.replace("v1alpha1", "v2")).contains("kaas.local/v2"));
        assert!(refused(&POOL.replace("blue", "../blue")).contains("../blue"));
        assert!(refused(&POOL.replace("blue}", "blue, resourceVersion: '7'}")).contains("was read from an API server"));
    }
}
