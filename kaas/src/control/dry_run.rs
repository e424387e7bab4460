//! The result of `--dry-run`: the changes and deletions that a command would request.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::change::Change;
use super::object::text;
use crate::output::Output;

/// Changes and deletions, in the order of the requests.
#[derive(Default)]
pub struct DryRun {
    lines: Vec<String>,
    actions: Vec<Value>,
}

impl DryRun {
    /// Adds changes of an object's fields. A field that has the wanted value already is left out.
    #[must_use]
    pub fn changes(mut self, kind: &str, object: &Value, changes: &[Change<'_>]) -> Self {
        let name = text(object, "/metadata/name");
        for change in changes.iter().filter(|change| change.old != change.new) {
            self.lines.push(format!("would change {kind}/{name}: {change}"));
            let Change { field, old, new } = change;
            self.actions.push(json!({"change": {"kind": kind, "name": name, "field": field, "from": old, "to": new}}));
        }
        self
    }

    /// Adds the deletion of objects.
    #[must_use]
    pub fn deletes<'v>(mut self, kind: &str, objects: impl IntoIterator<Item = &'v Value>) -> Self {
        for object in objects {
            let name = text(object, "/metadata/name");
            self.lines.push(format!("would delete {kind}/{name}"));
            self.actions.push(json!({"delete": {"kind": kind, "name": name}}));
        }
        self
    }

    /// Writes them as the command's result.
    pub fn report(self, output: Output) -> anyhow::Result<ExitCode> {
        output.result(&json!({"dryRun": true, "actions": self.actions}), || self.text())?;
        Ok(ExitCode::SUCCESS)
    }

    fn text(&self) -> String {
        match self.lines.as_slice() {
            [] => "nothing would change".to_owned(),
            lines => lines.join("\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dry_run_lists_changes_and_deletions_in_order() {
        let pool = json!({"metadata": {"name": "shop-a"}, "spec": {"replicas": 2, "vmClass": "medium"}});
        let wanted = json!({"spec": {"replicas": 5, "vmClass": "medium"}});
        let changes = [".spec.replicas", ".spec.vmClass"].map(|field| Change::of(field, &pool, &wanted));
        let run = DryRun::default().changes("NodePool", &pool, &changes).deletes("NodePool", [&pool]);
        let lines = ["would change NodePool/shop-a: .spec.replicas from 2 to 5", "would delete NodePool/shop-a"];
        assert_eq!(run.text(), lines.join("\n"));
        let change = json!({"kind": "NodePool", "name": "shop-a", "field": ".spec.replicas", "from": 2, "to": 5});
        assert_eq!(run.actions[0], json!({ "change": change }));
        let same = Change::of(".spec.vmClass", &pool, &wanted);
        assert_eq!(DryRun::default().changes("NodePool", &pool, &[same]).text(), "nothing would change");
    }
}
