//! `kaas cluster describe`: the objects of a cluster as a tree, each with its conditions, as clusterctl shows those of Cluster API.

use std::process::ExitCode;
use std::time::SystemTime;

use anstyle::Style;
use anyhow::ensure;
use controller::objects::{MachineReason, NodePoolReason, OperationReason, TenantClusterReason};
use fleet::nodes::clean;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::arguments::Describe;
use super::not_found;
use crate::control::{
    Cell, Condition, Control, DryRunReport, ResourcePath, age, age_of, outdated, read_conditions, status_style, table,
    text,
};
use crate::output::{Output, object, objects};
use crate::styled::{FAILED, PLAIN, Text, WAITING};

/// Prints the tree.
pub fn describe(arguments: &Describe) -> anyhow::Result<ExitCode> {
    let Describe { name, all_conditions, output, within } = arguments;
    ensure!(
        !all_conditions || *output == Output::Table,
        "--all-conditions is for tables: json and yaml have all conditions\nhelp: leave the option out"
    );
    let (control, namespace) = within.open()?;
    let objects = ObjectTree::read(&control, &namespace, name)?.ok_or_else(|| not_found(&namespace, name))?;
    output.result(&objects, || objects.tree(*all_conditions, SystemTime::now()))
}

/// A cluster with the objects that belong to it. Its JSON has them unchanged.
#[derive(Serialize, JsonSchema)]
pub struct ObjectTree {
    #[schemars(schema_with = "object")]
    cluster: Value,
    #[schemars(schema_with = "objects")]
    pools: Vec<Value>,
    #[schemars(schema_with = "objects")]
    machines: Vec<Value>,
    /// The current or last Operation, and all that have not ended.
    #[schemars(schema_with = "objects")]
    operations: Vec<Value>,
}

impl ObjectTree {
    /// Reads them. `None` if the cluster is missing.
    pub fn read(control: &Control, namespace: &str, name: &str) -> anyhow::Result<Option<Self>> {
        let Some(cluster) = control.get(ResourcePath::within("tenantclusters", namespace), name)? else {
            return Ok(None);
        };
        let objects = |plural: &str| -> anyhow::Result<Vec<Value>> {
            let mut objects = control.list(ResourcePath::within(plural, namespace))?;
            objects.retain(|object| text(object, "/spec/clusterRef/name") == name);
            Ok(objects)
        };
        let [pools, machines, mut operations] = [objects("nodepools")?, objects("machines")?, objects("operations")?];
        let last = text(&cluster, "/status/operation");
        operations.retain(|one| text(one, "/status/outcome").is_empty() || text(one, "/metadata/name") == last);
        Ok(Some(Self { cluster, pools, machines, operations }))
    }

    /// The deletion of the cluster. The controller deletes the objects of the cluster with it.
    pub fn deletion(&self) -> DryRunReport {
        let Self { cluster, pools, machines, .. } = self;
        DryRunReport::default()
            .deletes("TenantCluster", [cluster])
            .deletes("NodePool", pools)
            .deletes("Machine", machines)
    }

    fn tree(&self, all_conditions: bool, now: SystemTime) -> Text {
        let view = View { all_conditions, now };
        let (workers, nodes): (Vec<&Value>, Vec<&Value>) =
            self.machines.iter().partition(|machine| !machine["spec"]["poolRef"].is_null());
        let pool_of = |machine: &Value| text(machine, "/spec/poolRef/name").to_owned();
        let pools: Vec<Line> = self
            .pools
            .iter()
            .map(|pool| {
                let mut line = view.object("NodePool", pool, "Ready", &[]);
                let own = workers.iter().filter(|machine| pool_of(machine) == text(pool, "/metadata/name"));
                line.below.extend(own.map(|machine| view.object("Machine", machine, "Ready", &[])));
                line
            })
            .collect();
        // The pool may be deleted before its workers.
        let is_orphan =
            |machine: &&&Value| !self.pools.iter().any(|pool| text(pool, "/metadata/name") == pool_of(machine));
        let orphans = workers.iter().filter(is_orphan).map(|machine| view.object("Machine", machine, "Ready", &[]));
        let control_plane = nodes.iter().map(|machine| view.object("Machine", machine, "Ready", &[])).collect();

        let groups = ["ControlPlaneReady", "NodesReady"];
        let mut root = view.object("TenantCluster", &self.cluster, "Ready", &groups);
        root.below.push(view.group("ControlPlane", &self.cluster, groups[0], control_plane));
        root.below.push(view.group("Workers", &self.cluster, groups[1], pools.into_iter().chain(orphans).collect()));
        root.below.extend(self.operations.iter().map(|one| view.object("Operation", one, "Succeeded", &[])));

        let mut rows = Vec::new();
        root.push(String::new(), "", &mut rows);
        table(["NAME", "READY", "SEVERITY", "REASON", "AGE", "MESSAGE"], rows)
    }
}

/// Options for showing objects.
struct View {
    all_conditions: bool,
    now: SystemTime,
}

impl View {
    /// An object with the condition `summary`. Its other conditions are below it, without those in `others`, which the caller shows.
    fn object(&self, kind: &str, object: &Value, summary: &str, others: &[&str]) -> Line {
        let conditions = read_conditions(object);
        let name = format!("{kind}/{}", text(object, "/metadata/name"));
        let worst = conditions.iter().map(severity).max().unwrap_or_default();
        let summed_up = conditions.iter().find(|one| one.about == summary);
        let severity = if summed_up.is_some_and(Condition::holds) { Severity::None } else { worst };
        let is_news = |one: &Condition<'_>| !is_at_rest(one) && (one.about == "Progressing" || !one.holds());
        let is_shown = |one: &&Condition<'_>| {
            one.about != summary && !others.contains(&one.about) && (self.all_conditions || is_news(one))
        };
        let below = conditions.iter().filter(is_shown).map(|one| self.condition(one)).collect();
        Line { below, ..Line::new(name, summed_up, severity, age(object, self.now)) }
    }

    /// Objects that a condition of the cluster sums up.
    fn group(&self, name: &str, cluster: &Value, condition: &str, below: Vec<Line>) -> Line {
        let conditions = read_conditions(cluster);
        let line = match conditions.iter().find(|one| one.about == condition) {
            Some(found) => Line { name: name.to_owned(), ..self.condition(found) },
            None => Line::new(name.to_owned(), None, Severity::None, "-".to_owned()),
        };
        Line { below, ..line }
    }

    fn condition(&self, condition: &Condition<'_>) -> Line {
        Line::new(condition.about.to_owned(), Some(condition), severity(condition), age_of(condition.since, self.now))
    }
}

/// A line of the tree.
struct Line {
    name: String,
    /// The cells behind the name.
    cells: [Cell; 5],
    below: Vec<Line>,
}

impl Line {
    /// A line with a condition. `None` if the controller has not written it yet.
    fn new(name: String, condition: Option<&Condition<'_>>, severity: Severity, age: String) -> Self {
        let (status, reason) = condition.map_or(("", ""), |one| (one.status, one.reason));
        let message = condition.map(|one| format!("{}{}", one.message, outdated(one))).unwrap_or_default();
        // The status of an activity is neither good nor bad.
        let is_activity = condition.is_some_and(|one| one.about == "Progressing");
        let style = match severity {
            _ if is_activity => PLAIN,
            Severity::Error if status != "True" => FAILED,
            _ => status_style(status),
        };
        let cells = [
            Cell::styled(if status.is_empty() { "-" } else { status }, style),
            Cell::styled(severity.word(), severity.style()),
            Cell::text(&clean(reason)),
            Cell::text(&age),
            Cell::from(clean(&message).as_str()),
        ];
        Self { name, cells, below: Vec::new() }
    }

    /// Adds the rows of the line and all lines below it. `branch` leads to its name, and `indent` is before the lines below.
    fn push(self, branch: String, indent: &str, rows: &mut Vec<[Cell; 6]>) {
        let [status, severity, reason, age, message] = self.cells;
        rows.push([Cell::from((branch + &self.name).as_str()), status, severity, reason, age, message]);
        let count = self.below.len();
        for (at, line) in self.below.into_iter().enumerate() {
            let (corner, rest) = if at + 1 == count { ("└─", "  ") } else { ("├─", "│ ") };
            line.push(format!("{indent}{corner}"), &format!("{indent}{rest}"), rows);
        }
    }
}

/// How much a condition matters to the operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    /// The condition holds, or there is nothing to do.
    #[default]
    None,
    /// The controller works on it.
    Info,
    /// The state is unknown.
    Warning,
    /// The operator must act.
    Error,
}

impl Severity {
    fn word(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Info => "Info",
            Self::Warning => "Warning",
            Self::Error => "Error",
        }
    }

    fn style(self) -> Style {
        match self {
            Self::None => PLAIN,
            Self::Info | Self::Warning => WAITING,
            Self::Error => FAILED,
        }
    }
}

fn severity(condition: &Condition<'_>) -> Severity {
    if condition.holds() || is_at_rest(condition) {
        return Severity::None;
    }
    let needs_operator = condition.needs_operator::<TenantClusterReason>()
        || condition.needs_operator::<NodePoolReason>()
        || condition.needs_operator::<MachineReason>()
        || condition.needs_operator::<OperationReason>();
    match condition.status {
        _ if needs_operator => Severity::Error,
        "Unknown" if !condition.is_one(&[OperationReason::NotEnded]) => Severity::Warning,
        _ => Severity::Info,
    }
}

/// Whether the condition says that there is nothing to do.
fn is_at_rest(condition: &Condition<'_>) -> bool {
    condition.is_one(&[TenantClusterReason::Idle])
        || condition.is_one(&[OperationReason::Ended])
        || condition.is_one(&[NodePoolReason::RepairOff])
}

#[cfg(test)]
mod tests {
    use controller::objects::Reason;
    use serde_json::json;

    use super::*;

    fn condition(reason: impl Reason, message: &str) -> Value {
        let status = format!("{:?}", reason.standing());
        json!({"type": reason.condition(), "status": status, "reason": reason.word(), "message": message,
               "observedGeneration": 2, "lastTransitionTime": "2026-12-01T09:50:00Z"})
    }

    fn object(name: &str, spec: Value, conditions: &[Value]) -> Value {
        json!({"metadata": {"name": name, "generation": 2, "creationTimestamp": "2026-12-01T09:30:00Z"}, "spec": spec,
               "status": {"conditions": conditions}})
    }

    fn objects() -> ObjectTree {
        let worker =
            |name: &str, pool: &str, conditions: &[Value]| object(name, json!({"poolRef": {"name": pool}}), conditions);
        let failed = [
            condition(MachineReason::JoinFailed, "the node did not\njoin"),
            condition(MachineReason::WorksNot, "NodeReady is False"),
        ];
        ObjectTree {
            cluster: object(
                "shop",
                json!({}),
                &[
                    condition(TenantClusterReason::Passed, ""),
                    condition(TenantClusterReason::ControlNodesReady, ""),
                    condition(TenantClusterReason::WorkersMissing, "shop-a"),
                    condition(TenantClusterReason::Idle, ""),
                    condition(TenantClusterReason::NotReady, "NodesReady is False"),
                ],
            ),
            pools: vec![object("shop-a", json!({}), &[condition(NodePoolReason::JoinFailed, "shop-a-w1")])],
            machines: vec![
                object("shop-cp1", json!({}), &[condition(MachineReason::Works, "")]),
                worker("shop-a-w1", "shop-a", &failed),
                worker("shop-b-w1", "shop-b", &[]),
            ],
            operations: vec![object(
                "shop-swap-2",
                json!({}),
                &[condition(OperationReason::Running, "power-on shop-cp1"), condition(OperationReason::NotEnded, "")],
            )],
        }
    }

    fn tree(all_conditions: bool) -> String {
        objects().tree(all_conditions, humantime::parse_rfc3339("2026-12-01T10:00:00Z").unwrap()).to_string()
    }

    #[test]
    fn tree_shows_objects_with_failing_conditions() {
        let expected = "\
NAME                     READY    SEVERITY  REASON          AGE  MESSAGE
TenantCluster/shop       False    Info      NotReady        30m  NodesReady is False
├─ControlPlane           True               AllReady        10m
│ └─Machine/shop-cp1     True               Ready           30m
├─Workers                False    Info      WorkersMissing  10m  shop-a
│ ├─NodePool/shop-a      False    Error     JoinFailed      30m  shop-a-w1
│ │ └─Machine/shop-a-w1  False    Error     NotReady        30m  NodeReady is False
│ │   └─NodeReady        False    Error     JoinFailed      10m  the node did not join
│ └─Machine/shop-b-w1    -                  -               30m
└─Operation/shop-swap-2  Unknown  Info      NotEnded        30m
  └─Progressing          True               Running         10m  power-on shop-cp1";
        assert_eq!(tree(false), expected);
    }

    #[test]
    fn all_conditions_include_those_that_hold() {
        let all = tree(true);
        for line in ["├─Preflight ", "├─Progressing ", "  └─Progressing "] {
            assert!(all.lines().any(|shown| shown.starts_with(line)), "{line}: {all}");
        }
        assert_eq!(all.matches("ControlPlane").count(), 1, "{all}");
    }

    #[test]
    fn severity_follows_status_and_reason() {
        let of = |value: &Value| severity(&read_conditions(value)[0]);
        let judged = |reason: Value| of(&object("x", json!({}), &[reason]));
        assert_eq!(judged(condition(TenantClusterReason::Available, "")), Severity::None);
        assert_eq!(judged(condition(TenantClusterReason::AddressesMissing, "")), Severity::Error);
        assert_eq!(judged(condition(TenantClusterReason::NotReached, "")), Severity::Warning);
        assert_eq!(judged(condition(NodePoolReason::Scaling, "")), Severity::Info);
        assert_eq!(judged(condition(OperationReason::Rejected, "")), Severity::Error);
        let mut old = object("x", json!({}), &[condition(TenantClusterReason::Available, "")]);
        old["metadata"]["generation"] = 3.into();
        assert_eq!(of(&old), Severity::Info);
    }
}
