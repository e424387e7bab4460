//! The result of `--dry-run`: the changes and deletions that a command would request.

use std::process::ExitCode;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::change::Change;
use super::object::text;
use crate::output::Output;

/// The output of a command that would change or delete objects.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DryRunReport {
    /// Always true.
    dry_run: bool,
    /// In the order of the requests.
    actions: Vec<Action>,
}

/// A request that the command would send.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum Action {
    /// A field of an object would change.
    Change { kind: String, name: String, field: String, from: Value, to: Value },
    /// An object would be deleted.
    Delete { kind: String, name: String },
}

impl Default for DryRunReport {
    fn default() -> Self {
        Self { dry_run: true, actions: Vec::new() }
    }
}

impl DryRunReport {
    /// Adds changes of an object's fields. A field that has the wanted value already is left out.
    #[must_use]
    pub fn changes(mut self, kind: &str, object: &Value, changes: &[Change<'_>]) -> Self {
        self.actions.extend(changes.iter().filter(|change| change.old != change.new).map(|change| Action::Change {
            kind: kind.to_owned(),
            name: text(object, "/metadata/name").to_owned(),
            field: change.field.to_owned(),
            from: change.old.clone(),
            to: change.new.clone(),
        }));
        self
    }

    /// Adds the deletion of objects.
    #[must_use]
    pub fn deletes<'v>(mut self, kind: &str, objects: impl IntoIterator<Item = &'v Value>) -> Self {
        let name = |object| text(object, "/metadata/name").to_owned();
        let deletion = |object| Action::Delete { kind: kind.to_owned(), name: name(object) };
        self.actions.extend(objects.into_iter().map(deletion));
        self
    }

    /// Writes them as the command's result.
    pub fn report(&self, output: Output) -> anyhow::Result<ExitCode> {
        output.result(self, || self.text())
    }

    fn text(&self) -> String {
        let line = |action: &Action| match action {
            Action::Change { kind, name, field, from, to } => {
                format!("would change {kind}/{name}: {}", Change { field, old: from, new: to })
            }
            Action::Delete { kind, name } => format!("would delete {kind}/{name}"),
        };
        match self.actions.as_slice() {
            [] => "nothing would change".to_owned(),
            actions => actions.iter().map(line).collect::<Vec<_>>().join("\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn dry_run_lists_changes_and_deletions_in_order() {
        let pool = json!({"metadata": {"name": "shop-a"}, "spec": {"replicas": 2, "vmClass": "medium"}});
        let wanted = json!({"spec": {"replicas": 5, "vmClass": "medium"}});
        let changes = [".spec.replicas", ".spec.vmClass"].map(|field| Change::of(field, &pool, &wanted));
        let run = DryRunReport::default().changes("NodePool", &pool, &changes).deletes("NodePool", [&pool]);
        let lines = ["would change NodePool/shop-a: .spec.replicas from 2 to 5", "would delete NodePool/shop-a"];
        assert_eq!(run.text(), lines.join("\n"));
        let change = json!({"kind": "NodePool", "name": "shop-a", "field": ".spec.replicas", "from": 2, "to": 5});
        let actions = json!([{"change": change}, {"delete": {"kind": "NodePool", "name": "shop-a"}}]);
        assert_eq!(serde_json::to_value(&run).unwrap(), json!({"dryRun": true, "actions": actions}));
        let same = Change::of(".spec.vmClass", &pool, &wanted);
        assert_eq!(DryRunReport::default().changes("NodePool", &pool, &[same]).text(), "nothing would change");
    }
}
