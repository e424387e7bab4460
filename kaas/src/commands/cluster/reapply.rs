//! `kaas cluster create` that runs again after other commands: it continues, and undoes no later change. The API server cannot
//! distinguish two users of these commands. Without this check, one could undo the other's change unnoticed.

use serde_json::Value;

use crate::control::{Change, Rejected};

/// Refuses changes that remove or replace nodes. It allows other changes and reports them.
///
/// # Errors
/// [`Rejected`], with the remedy.
pub fn check_reapply(name: &str, changes: &[Change<'_>], tell: impl Fn(&str)) -> anyhow::Result<()> {
    let undone: Vec<String> = changes.iter().filter(|change| undoes(change)).map(ToString::to_string).collect();
    if !undone.is_empty() {
        return Err(Rejected::because(format!(
            "it would undo later changes of {name}: {}. Nothing was changed. Give the current values in the file or the command, or \
             change them with `kaas pool scale` or `kaas cluster upgrade`",
            undone.join(", ")
        ))
        .into());
    }
    changes.iter().for_each(|change| tell(&format!("{name}: {change}")));
    Ok(())
}

/// Whether a change removes or replaces nodes. An unknown change counts as one.
fn undoes(change: &Change<'_>) -> bool {
    match change.field.rsplit('.').next() {
        Some("replicas") => {
            let [old, new] = [change.old, change.new].map(Value::as_u64);
            old.zip(new).is_none_or(|(old, new)| new < old)
        }
        Some("image" | "version") => change.old.is_null() || change.old != change.new,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use serde_json::json;

    use super::*;

    #[test]
    fn changes_that_remove_nodes_are_refused() {
        let there = json!({"spec": {"replicas": 10, "image": "b", "version": "1.37", "controlPlane": {"replicas": 3}}});
        let told = RefCell::new(Vec::new());
        let judged = |field: &str, wanted: &Value| {
            let changes = [Change::of(field, &there, wanted)];
            check_reapply("shop", &changes, |words: &str| told.borrow_mut().push(words.to_owned()))
        };
        let fewer = judged(".spec.replicas", &json!({"spec": {"replicas": 3}})).unwrap_err();
        assert!(fewer.is::<Rejected>());
        let fewer = fewer.to_string();
        assert!(fewer.starts_with("it would undo later changes of shop: .spec.replicas from 10 to 3. "), "{fewer}");
        assert!(
            fewer.contains("Give the current values in the file") && fewer.contains("`kaas pool scale`"),
            "{fewer}"
        );
        for (field, wanted) in [
            (".spec.image", json!({"spec": {"image": "a"}})),
            (".spec.version", json!({"spec": {"version": "1.36"}})),
            (".spec.controlPlane.replicas", json!({"spec": {"controlPlane": {"replicas": 1}}})),
            (".spec.pools[name=\"a\"].replicas", json!({"spec": {}})),
        ] {
            assert!(judged(field, &wanted).is_err(), "{field}");
        }
        assert!(told.borrow().is_empty());
        judged(".spec.replicas", &json!({"spec": {"replicas": 11}})).unwrap();
        judged(".spec.paused", &json!({"spec": {"paused": true}})).unwrap();
        let expected = ["shop: .spec.replicas from 10 to 11", "shop: .spec.paused from null to true"];
        assert_eq!(*told.borrow(), expected);
    }
}
