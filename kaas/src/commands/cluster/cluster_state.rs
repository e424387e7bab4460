//! The state of a cluster, and whether it is what a command wants. The checks are pure. They use conditions of the present
//! spec only: a missing, older or `Unknown` condition never counts as met.

use controller::objects::{NodePoolReason, OperationReason, Reason, TenantClusterReason};
use serde_json::{Value, json};

use super::worker_rollout::WorkerRollout;
use crate::control::{Condition, Control, ResourcePath, UNRECONCILED, WaitResult, read_conditions, text};
use crate::output::number_of;

/// A cluster with its pools, and the Operation that is under way or was the last one.
pub struct ClusterState {
    pub cluster: Value,
    pub pools: Vec<Value>,
    pub operation: Option<Value>,
    /// The Machines of its workers, if they were read.
    pub workers: Option<Vec<Value>>,
}

/// The condition of the present spec with one of these reasons, in words.
fn because<R: Reason>(object: &Value, reasons: &[R]) -> Option<String> {
    let is_it = |condition: &&Condition<'_>| condition.is_current && condition.is_one(reasons);
    read_conditions(object).iter().find(is_it).map(Condition::words)
}

/// The condition `about` of the present spec in words, if its reason needs the operator.
fn needs_operator<R: Reason>(object: &Value, about: &str) -> Option<String> {
    let is_it = |condition: &&Condition<'_>| condition.is_current && condition.about == about;
    read_conditions(object).iter().find(is_it).filter(|it| it.needs_operator::<R>()).map(Condition::words)
}

fn holds(object: &Value, about: &str) -> bool {
    read_conditions(object).iter().any(|condition| condition.about == about && condition.holds())
}

/// The conditions, one a line, without `Ready`, which sums up the others.
fn lines(object: &Value) -> Vec<(String, String)> {
    let name = text(object, "/metadata/name");
    let current: Vec<_> = read_conditions(object).into_iter().filter(|condition| condition.is_current).collect();
    if current.is_empty() {
        return vec![(name.to_owned(), format!("{name}: {UNRECONCILED}"))];
    }
    let others = current.iter().filter(|condition| condition.about != "Ready");
    others.map(|said| (format!("{name} {}", said.about), format!("{name}: {}", said.words()))).collect()
}

impl ClusterState {
    /// Reads a cluster. `None` if it does not exist.
    pub fn look(control: &Control, namespace: &str, name: &str) -> anyhow::Result<Option<Self>> {
        let Some(cluster) = control.get(ResourcePath::within("tenantclusters", namespace), name)? else {
            return Ok(None);
        };
        let pools = control.list(ResourcePath::within("nodepools", namespace))?;
        let pools = pools.into_iter().filter(|pool| text(pool, "/spec/clusterRef/name") == name).collect();
        let operation = match text(&cluster, "/status/operation") {
            "" => None,
            operation => control.get(ResourcePath::within("operations", namespace), operation)?,
        };
        Ok(Some(Self { cluster, pools, operation, workers: None }))
    }

    /// Reads the workers as well: the status of their pools may be old.
    pub fn look_at_workers(&mut self, control: &Control, namespace: &str) -> anyhow::Result<()> {
        let mut machines = control.list(ResourcePath::within("machines", namespace))?;
        let name = self.name();
        machines.retain(|one| text(one, "/spec/clusterRef/name") == name && !one["spec"]["poolRef"].is_null());
        self.workers = Some(machines);
        Ok(())
    }

    /// Reads the last replacement of a control-plane node as the Operation. The status names another one while settings change too.
    ///
    /// # Errors
    /// The control cluster does not answer, or refuses.
    pub fn look_at_replacement(&mut self, control: &Control, namespace: &str) -> anyhow::Result<()> {
        let operations = control.list(ResourcePath::within("operations", namespace))?;
        if let Some(last) = last_replacement(operations, self.name()) {
            self.operation = Some(last);
        }
        Ok(())
    }

    /// The name of the last replacement of a control-plane node that has ended. Empty if none has, or if one is open.
    pub fn ended_replacement(&self) -> &str {
        let has_ended = |one: &&Value| is_replacement(one) && !text(one, "/status/outcome").is_empty();
        self.operation.as_ref().filter(has_ended).map_or("", |last| text(last, "/metadata/name"))
    }

    fn followers(&self) -> Option<WorkerRollout<'_>> {
        let Self { cluster, pools, workers, .. } = self;
        workers.as_deref().map(|workers| WorkerRollout { cluster, pools, workers })
    }

    /// The result once the change of the control-plane nodes is final: the workers have followed, or still do.
    fn followed(&self, words: String) -> WaitResult {
        match self.followers() {
            Some(followers) => followers.wait_result(&words),
            None => WaitResult::Ready(words),
        }
    }

    /// The state as an object for programs.
    pub fn object(&self) -> Value {
        json!({"cluster": self.cluster, "pools": self.pools, "operation": self.operation})
    }

    pub fn name(&self) -> &str {
        text(&self.cluster, "/metadata/name")
    }

    /// The obstacles and the progress, one a line.
    pub fn lines(&self) -> Vec<(String, String)> {
        let mut lines = lines(&self.cluster);
        lines.extend(self.pools.iter().flat_map(lines_of_pool));
        lines.extend(self.operation.iter().map(step));
        lines.extend(self.followers().iter().flat_map(WorkerRollout::lines));
        lines
    }

    /// Whether the cluster is created, with the workers of these pools.
    pub fn is_made(&self, pools: &[&str]) -> WaitResult {
        if let Some(why) = self.blocked_reason() {
            return WaitResult::Stopped(why);
        }
        let of_command = |pool: &&Value| pools.contains(&text(pool, "/metadata/name"));
        let mut there = 0;
        for pool in self.pools.iter().filter(of_command) {
            if let Some(why) = needs_operator::<NodePoolReason>(pool, "Ready") {
                return WaitResult::Stopped(format!("{}: {why}", text(pool, "/metadata/name")));
            }
            there += usize::from(holds(pool, "Ready"));
        }
        if holds(&self.cluster, "Ready") && there == pools.len() {
            let endpoint = text(&self.cluster, "/status/resolved/endpoint");
            return WaitResult::Ready(format!("the cluster {} is Ready: https://{endpoint}:6443", self.name()));
        }
        WaitResult::Pending
    }

    /// Whether a pool has as many workers as it is to have, and all are Ready.
    pub fn is_scaled(&self, pool: &str, workers: u32) -> WaitResult {
        let Some(pool) = self.pools.iter().find(|one| text(one, "/metadata/name") == pool) else {
            return WaitResult::Stopped(format!("the pool {pool} no longer exists"));
        };
        let (name, wanted) = (text(pool, "/metadata/name"), pool["spec"]["replicas"].as_u64());
        if wanted != Some(workers.into()) {
            let wanted = number_of(wanted.unwrap_or_default(), "worker");
            return WaitResult::Stopped(format!("another client has scaled the pool {name} to {wanted}"));
        }
        if let Some(why) = needs_operator::<NodePoolReason>(pool, "Ready") {
            return WaitResult::Stopped(format!("{name}: {why}"));
        }
        let count = |field: &str| pool["status"][field].as_u64().unwrap_or_default();
        let workers = u64::from(workers);
        // A leaving worker does not count, and Ready is true once it has left.
        if holds(pool, "Ready") && (count("replicas"), count("readyReplicas")) == (workers, workers) {
            let words = match workers {
                1 => "1 worker, which is Ready".to_owned(),
                _ => format!("{workers} workers, and all are Ready"),
            };
            return WaitResult::Ready(format!("the pool {name} has {words}"));
        }
        self.blocked_reason().map_or(WaitResult::Pending, WaitResult::Stopped)
    }

    /// Whether control-plane nodes and workers have the image and minor version of the spec.
    pub fn is_changed(&self) -> WaitResult {
        let cluster = &self.cluster;
        if let Some(why) = needs_operator::<TenantClusterReason>(cluster, "UpToDate") {
            return WaitResult::Stopped(format!("{}: {why}{}", self.name(), self.of_operation()));
        }
        if let (Some(why), "Manual") =
            (because(cluster, &[TenantClusterReason::AwaitingCommit]), text(cluster, "/spec/upgrade/commit"))
        {
            let name = self.name();
            return WaitResult::Ready(format!(
                "{name}: {why}; `kaas cluster upgrade {name} --do commit` makes it final, `--do rollback` rolls it back"
            ));
        }
        if holds(cluster, "UpToDate") && holds(cluster, "Ready") {
            let (version, image) = (text(cluster, "/status/version"), text(cluster, "/status/resolved/image"));
            return self.followed(format!("the cluster {} runs Kubernetes {version} on {image}", self.name()));
        }
        // The reason is set only if no change of image or minor version is open.
        let untold = because(cluster, &[TenantClusterReason::ChangeNotSupported, TenantClusterReason::SettingsRefused]);
        if let Some(why) = untold.filter(|_| holds(cluster, "Ready")) {
            let (version, image) = (text(cluster, "/status/version"), text(cluster, "/status/resolved/image"));
            return self.followed(format!("the cluster {} runs Kubernetes {version} on {image}; {why}", self.name()));
        }
        self.blocked_reason().map_or(WaitResult::Pending, WaitResult::Stopped)
    }

    /// Whether a request on an Operation is done. After a final one, the workers must have followed.
    pub fn has_done(&self, operation: &str, annotation: &str) -> WaitResult {
        let is_it = |one: &&Value| text(one, "/metadata/name") == operation;
        let Some(operation) = self.operation.as_ref().filter(is_it) else {
            return WaitResult::Stopped(format!("another Operation than {operation} has begun on the cluster"));
        };
        let is_noted = operation["metadata"]["annotations"][annotation].is_null();
        let outcome = text(operation, "/status/outcome");
        let name = text(operation, "/metadata/name");
        let stands = reason_of(operation, OperationReason::needs_operator);
        match (is_noted, stands, outcome) {
            (false, ..) => WaitResult::Pending,
            (true, _, outcome @ ("committed" | "done")) => {
                let words = format!("{name} has ended: {outcome}");
                // Workers are created from these fields, which are written after the end.
                let has_come = |to: &str, at: &str| {
                    let to = text(operation, to);
                    to.is_empty() || to == text(&self.cluster, at)
                };
                let image = has_come("/spec/toImage", "/status/resolved/image");
                if image && has_come("/spec/toVersion", "/status/kubernetes") {
                    return self.followed(words);
                }
                self.blocked_reason().map_or(WaitResult::Pending, WaitResult::Stopped)
            }
            (true, _, outcome) if !outcome.is_empty() => WaitResult::Ready(format!("{name} has ended: {outcome}")),
            (true, Some(why), _) => WaitResult::Stopped(format!("{name}: {why}")),
            (true, None, _) => WaitResult::Pending,
        }
    }

    /// As [`Self::is_changed`], after a request to repeat an ended Operation. Another Operation may do its work.
    pub fn is_done_again(&self, operation: &str, annotation: &str) -> WaitResult {
        let is_it = |one: &&Value| text(one, "/metadata/name") == operation;
        let Some(same) = self.operation.as_ref().filter(is_it) else { return self.is_changed() };
        // The conditions are older than the request.
        if !same["metadata"]["annotations"][annotation].is_null() {
            return WaitResult::Pending;
        }
        match (self.is_changed(), reason_of(same, |reason| reason == OperationReason::Rejected)) {
            (there @ WaitResult::Ready(_), _) => there,
            (_, Some(why)) => WaitResult::Stopped(format!("{operation}: {why}")),
            (changed, None) => changed,
        }
    }

    /// Whether its VMs were adopted. The controller removes the annotation of the request then.
    pub fn is_adopted(&self, annotation: &str) -> WaitResult {
        let (metadata, name) = (&self.cluster["metadata"], self.name());
        if metadata["annotations"][annotation].is_null() {
            return WaitResult::Ready(format!("no VM of the cluster {name} is newer than the database"));
        }
        if metadata["deletionTimestamp"].is_null() {
            return WaitResult::Pending;
        }
        WaitResult::Stopped(format!("the cluster {name} is being deleted: it is not adopted"))
    }

    /// Whether the controller has replaced a node since the Operation `before`, which had ended. Until the request is heard, the
    /// conditions may be older than it.
    pub fn is_replaced(&self, node: &str, before: &str, is_heard: bool) -> WaitResult {
        let is_its = |one: &&Value| is_replacement(one) && text(one, "/metadata/name") != before;
        let stands = || needs_operator::<TenantClusterReason>(&self.cluster, "Progressing");
        let Some(operation) = self.operation.as_ref().filter(is_its) else {
            let why = stands().filter(|_| is_heard);
            return why.map_or(WaitResult::Pending, |why| WaitResult::Stopped(format!("{}: {why}", self.name())));
        };
        let name = text(operation, "/metadata/name");
        match text(operation, "/status/outcome") {
            "done" if holds(&self.cluster, "ControlPlaneReady") => {
                WaitResult::Ready(format!("the node {node} runs in another VM ({name})"))
            }
            "" | "done" => match reason_of(operation, OperationReason::needs_operator).filter(|_| is_heard) {
                Some(why) => WaitResult::Stopped(format!("{name}: {why}")),
                None => WaitResult::Pending,
            },
            _ => {
                let why = reason_of(operation, |reason| reason == OperationReason::Abandoned).unwrap_or_default();
                WaitResult::Stopped(format!("{name}: {why}"))
            }
        }
    }

    /// Whether the deletion continues.
    pub fn is_leaving(&self) -> WaitResult {
        let stands = needs_operator::<TenantClusterReason>(&self.cluster, "Progressing");
        stands.map_or(WaitResult::Pending, |why| WaitResult::Stopped(format!("{}: {why}", self.name())))
    }

    /// Why nothing continues until the operator acts.
    fn blocked_reason(&self) -> Option<String> {
        let (cluster, name) = (&self.cluster, self.name());
        if !cluster["metadata"]["deletionTimestamp"].is_null() {
            return Some(format!("the cluster {name} is being deleted"));
        }
        let why = needs_operator::<TenantClusterReason>(cluster, "Progressing")?;
        let mut others = String::new();
        for other in read_conditions(cluster).iter().filter(|one| one.is_current && one.status == "False") {
            if !["Progressing", "Ready"].contains(&other.about) {
                others += &format!("\n  {}", other.words());
            }
        }
        Some(format!("{name}: {why}{others}"))
    }

    fn of_operation(&self) -> String {
        self.operation.as_ref().map(|operation| format!("\n  {}", step(operation).1)).unwrap_or_default()
    }
}

fn is_replacement(operation: &Value) -> bool {
    text(operation, "/spec/type") == "ReplaceNode"
}

/// The replacement of a cluster's control-plane node that began last.
fn last_replacement(operations: Vec<Value>, cluster: &str) -> Option<Value> {
    let is_its = |one: &Value| is_replacement(one) && text(one, "/spec/clusterRef/name") == cluster;
    let begun = |one: &Value| text(one, "/metadata/creationTimestamp").to_owned();
    operations.into_iter().filter(is_its).max_by_key(begun)
}

/// Whether the operator may request the Operation again: it was rolled back or abandoned.
pub fn may_be_tried_again(operation: &Value) -> bool {
    ["rolled back", "abandoned"].contains(&text(operation, "/status/outcome"))
}

/// The condition of an Operation with such a reason, in words. Its spec never changes, so each condition is current.
fn reason_of(operation: &Value, is_such: fn(OperationReason) -> bool) -> Option<String> {
    read_conditions(operation).iter().find(|one| one.of_kind().is_some_and(is_such)).map(Condition::words)
}

fn lines_of_pool(pool: &Value) -> Vec<(String, String)> {
    let (name, status) = (text(pool, "/metadata/name"), &pool["status"]);
    let count = |field: &str| status[field].as_u64().unwrap_or_default();
    let wanted = pool["spec"]["replicas"].as_u64().unwrap_or(1);
    let why = read_conditions(pool).iter().find(|said| said.about == "Ready" && said.is_current).map(Condition::words);
    let why = why.map(|why| format!("; {why}")).unwrap_or_default();
    let ready = count("readyReplicas");
    vec![(name.to_owned(), format!("{name}: {ready} of {wanted} workers are Ready{why}"))]
}

fn step(operation: &Value) -> (String, String) {
    let (name, kind) = (text(operation, "/metadata/name"), text(operation, "/spec/type"));
    let steps = operation["spec"]["steps"].as_array().map_or(0, Vec::len);
    let done = operation["status"]["stepsDone"].as_u64().unwrap_or_default();
    let at = match (text(operation, "/status/outcome"), text(operation, "/status/step")) {
        ("", "") => String::new(),
        ("", step) => format!(", {step}"),
        (outcome, _) => format!(", {outcome}"),
    };
    let conditions = read_conditions(operation);
    let waits =
        conditions.iter().find(|said| said.about == "Progressing" && said.status != "True" && said.reason != "Ended");
    let waits = waits.map(|said| format!("; {}", said.words())).unwrap_or_default();
    (name.to_owned(), format!("{name} ({kind}): {done} of {steps} steps are done{at}{waits}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(reason: impl Reason, generation: i64) -> Value {
        let status = format!("{:?}", reason.standing());
        json!({"type": reason.condition(), "status": status, "reason": reason.word(), "message": "as it is",
               "observedGeneration": generation})
    }

    fn object(name: &str, conditions: &[Value]) -> Value {
        json!({"metadata": {"name": name, "generation": 3}, "spec": {}, "status": {"conditions": conditions}})
    }

    fn known(cluster: &[Value], pool: &[Value]) -> ClusterState {
        let mut pool = object("shop-a", pool);
        pool["spec"]["replicas"] = 2.into();
        pool["status"]["replicas"] = 2.into();
        pool["status"]["readyReplicas"] = 2.into();
        let mut cluster = object("shop", cluster);
        cluster["status"]["resolved"] = json!({"endpoint": "192.168.10.10", "image": "kaas-tenant-0.2.0"});
        ClusterState { cluster, pools: vec![pool], operation: None, workers: None }
    }

    // Finding 5 of controller.md.
    #[test]
    fn node_is_replaced_once_its_operation_is_done() {
        let with = |cluster: &[Value], name: &str, outcome: &str, reason: OperationReason| {
            let mut known = known(cluster, &[]);
            let mut operation = object(name, &[condition(reason, 3)]);
            operation["spec"]["type"] = "ReplaceNode".into();
            operation["status"]["outcome"] = outcome.into();
            known.operation = Some(operation);
            known
        };
        let ready = condition(TenantClusterReason::ControlNodesReady, 3);
        let lost = condition(TenantClusterReason::NodeLostAwaitingOperator, 3);
        let done = with(std::slice::from_ref(&ready), "shop-b", "done", OperationReason::Ended);
        assert!(matches!(done.is_replaced("shop-cp2", "shop-a", true), WaitResult::Ready(_)));
        let former = with(&[ready], "shop-a", "done", OperationReason::Ended);
        assert_eq!(former.is_replaced("shop-cp2", "shop-a", true), WaitResult::Pending, "another one's");
        let waits = known(&[lost], &[]);
        assert_eq!(waits.is_replaced("shop-cp2", "", false), WaitResult::Pending, "the request is not heard yet");
        assert!(matches!(waits.is_replaced("shop-cp2", "", true), WaitResult::Stopped(_)));
        let blocked = with(&[], "shop-b", "", OperationReason::Blocked);
        assert!(matches!(blocked.is_replaced("shop-cp2", "shop-a", true), WaitResult::Stopped(_)));
        let refused = with(&[], "shop-b", "abandoned", OperationReason::Abandoned);
        assert!(matches!(refused.is_replaced("shop-cp2", "shop-a", true), WaitResult::Stopped(_)));
    }

    // The status named the Operation of pending settings, and a waiting command missed the end of the replacement.
    #[test]
    fn replacement_is_found_among_other_operations() {
        let operation = |name: &str, kind: &str, cluster: &str, second: u8| {
            json!({"metadata": {"name": name, "creationTimestamp": format!("2027-01-01T00:00:{second:02}Z")},
                   "spec": {"type": kind, "clusterRef": {"name": cluster}}, "status": {"outcome": "done"}})
        };
        let all = vec![
            operation("shop-a", "ReplaceNode", "shop", 1),
            operation("shop-b", "ReplaceNode", "shop", 2),
            operation("shop-configure-1", "Configure", "shop", 3),
            operation("web-a", "ReplaceNode", "web", 4),
        ];
        let last = last_replacement(all.clone(), "shop");
        assert_eq!(last.as_ref().map(|last| text(last, "/metadata/name")), Some("shop-b"));
        assert_eq!(last_replacement(all, "other"), None);
        let mut known = known(&[condition(TenantClusterReason::ControlNodesReady, 3)], &[]);
        assert_eq!(known.ended_replacement(), "");
        known.operation = last;
        assert_eq!(known.ended_replacement(), "shop-b");
        assert!(matches!(known.is_replaced("shop-cp2", "shop-a", true), WaitResult::Ready(_)));
        // One that is open when the command begins is the awaited one.
        known.operation.as_mut().unwrap()["status"]["outcome"] = Value::Null;
        assert_eq!(known.ended_replacement(), "");
    }

    #[test]
    fn cluster_is_created_once_all_is_ready() {
        let serves = |generation| condition(TenantClusterReason::Available, generation);
        let ready = |generation| condition(NodePoolReason::AllReady, generation);
        let there = known(&[serves(3)], &[ready(3)]).is_made(&["shop-a"]);
        let words = "the cluster shop is Ready: https://192.168.10.10:6443";
        assert_eq!(there, WaitResult::Ready(words.to_owned()));
        for (cluster, pool, pools) in [
            (vec![serves(2)], vec![ready(3)], vec!["shop-a"]),
            (vec![serves(3)], vec![ready(2)], vec!["shop-a"]),
            (vec![], vec![ready(3)], vec!["shop-a"]),
            (vec![serves(3)], vec![], vec!["shop-a"]),
            // A missing pool is not Ready.
            (vec![serves(3)], vec![ready(3)], vec!["shop-a", "shop-b"]),
            (vec![condition(TenantClusterReason::NotReached, 3)], vec![ready(3)], vec!["shop-a"]),
        ] {
            assert_eq!(known(&cluster, &pool).is_made(&pools), WaitResult::Pending, "{cluster:?} {pool:?} {pools:?}");
        }
    }

    #[test]
    fn obstacles_for_the_operator_stop_the_wait() {
        let stuck = [
            condition(TenantClusterReason::AddressesMissing, 3),
            condition(TenantClusterReason::Blocked, 3),
            condition(TenantClusterReason::NotReady, 3),
        ];
        let WaitResult::Stopped(why) = known(&stuck, &[]).is_made(&[]) else { panic!("it is waited for") };
        let expected =
            "shop: Progressing is False (Blocked): as it is\n  Preflight is False (AddressesMissing): as it is";
        assert_eq!(why, expected);
        // The condition is of an earlier spec.
        assert_eq!(known(&[condition(TenantClusterReason::Blocked, 2)], &[]).is_made(&[]), WaitResult::Pending);
        let drifted = [condition(NodePoolReason::AdoptionRequired, 3)];
        assert!(matches!(known(&[], &drifted).is_made(&["shop-a"]), WaitResult::Stopped(_)));
        for reason in [NodePoolReason::JoinFailed, NodePoolReason::NamespaceNotAllowed, NodePoolReason::CapacityMissing]
        {
            let failed = known(&[], &[condition(reason, 3)]);
            assert!(matches!(failed.is_made(&["shop-a"]), WaitResult::Stopped(_)), "{reason:?}");
            assert!(matches!(failed.is_scaled("shop-a", 2), WaitResult::Stopped(_)), "{reason:?}");
        }
        let failed = [condition(NodePoolReason::JoinFailed, 3)];
        assert_eq!(known(&[], &failed).is_made(&[]), WaitResult::Pending, "another pool is another command's");
        let mut leaves = known(&[condition(TenantClusterReason::Available, 3)], &[]);
        leaves.cluster["metadata"]["deletionTimestamp"] = "2026-12-01T09:00:00Z".into();
        assert_eq!(leaves.is_made(&[]), WaitResult::Stopped("the cluster shop is being deleted".to_owned()));
    }

    #[test]
    fn adoption_is_done_once_its_annotation_is_gone() {
        let mut asked = known(&[condition(TenantClusterReason::AdoptionRequired, 3)], &[]);
        assert!(matches!(asked.is_adopted("kaas.local/adopt"), WaitResult::Ready(_)));
        asked.cluster["metadata"]["annotations"] = serde_json::json!({"kaas.local/adopt": "shop"});
        assert_eq!(asked.is_adopted("kaas.local/adopt"), WaitResult::Pending, "what is in the way may pass");
        asked.cluster["metadata"]["deletionTimestamp"] = "2026-12-01T09:00:00Z".into();
        assert!(matches!(asked.is_adopted("kaas.local/adopt"), WaitResult::Stopped(why) if why.contains("deleted")));
    }

    #[test]
    fn deletion_is_awaited_unless_the_operator_must_act() {
        let of = |reason, generation| known(&[condition(reason, generation)], &[]).is_leaving();
        assert_eq!(of(TenantClusterReason::Deleting, 3), WaitResult::Pending);
        let words = "shop: Progressing is False (Blocked): as it is";
        assert_eq!(of(TenantClusterReason::Blocked, 3), WaitResult::Stopped(words.to_owned()));
        // The condition is older than the deletion.
        assert_eq!(of(TenantClusterReason::Blocked, 2), WaitResult::Pending);
    }

    #[test]
    fn pool_is_scaled_once_exactly_all_are_ready() {
        let pool = [condition(NodePoolReason::AllReady, 3)];
        assert!(matches!(known(&[], &pool).is_scaled("shop-a", 2), WaitResult::Ready(_)));
        let WaitResult::Stopped(why) = known(&[], &pool).is_scaled("shop-a", 5) else { panic!("it is another number") };
        assert!(why.contains("another client has scaled the pool shop-a"), "{why}");
        assert!(matches!(known(&[], &pool).is_scaled("shop-b", 2), WaitResult::Stopped(_)));
        let mut leaving = known(&[], &pool);
        leaving.pools[0]["status"]["replicas"] = 3.into();
        assert_eq!(leaving.is_scaled("shop-a", 2), WaitResult::Pending);
        assert_eq!(known(&[], &[condition(NodePoolReason::AllReady, 2)]).is_scaled("shop-a", 2), WaitResult::Pending);
    }

    #[test]
    fn upgrade_is_done_failed_or_awaits_the_commit() {
        let (serves, current) =
            (condition(TenantClusterReason::Available, 3), condition(TenantClusterReason::Current, 3));
        assert!(matches!(known(&[serves.clone(), current.clone()], &[]).is_changed(), WaitResult::Ready(_)));
        assert_eq!(known(&[serves, condition(TenantClusterReason::Current, 2)], &[]).is_changed(), WaitResult::Pending);
        assert_eq!(known(&[current], &[]).is_changed(), WaitResult::Pending, "it has to serve as well");
        // Image and version match the spec. The unsupported change is reported.
        let untold = condition(TenantClusterReason::ChangeNotSupported, 3);
        let there = known(&[condition(TenantClusterReason::Available, 3), untold.clone()], &[]).is_changed();
        assert!(matches!(&there, WaitResult::Ready(words) if words.contains("(ChangeNotSupported)")), "{there:?}");
        assert_eq!(known(&[untold], &[]).is_changed(), WaitResult::Pending);
        let failed = known(&[condition(TenantClusterReason::ChangeFailed, 3)], &[]);
        assert!(matches!(failed.is_changed(), WaitResult::Stopped(_)));
        let mut waits = known(&[condition(TenantClusterReason::AwaitingCommit, 3)], &[]);
        assert_eq!(waits.is_changed(), WaitResult::Pending, "the controller commits by itself");
        waits.cluster["spec"]["upgrade"]["commit"] = "Manual".into();
        assert!(matches!(waits.is_changed(), WaitResult::Ready(words) if words.contains("--do commit")));
    }

    #[test]
    fn request_is_done_once_it_is_handled() {
        const DO: &str = controller::objects::DO;
        let with = |annotation: Value, conditions: &[Value], outcome: Option<&str>| {
            let mut operation = object("shop-swap-2", conditions);
            operation["metadata"]["annotations"][DO] = annotation;
            operation["status"]["outcome"] = outcome.into();
            ClusterState { operation: Some(operation), ..known(&[], &[]) }
        };
        let blocked = [condition(OperationReason::Blocked, 1)];
        // The condition is older than the request.
        assert_eq!(with("resume".into(), &blocked, None).has_done("shop-swap-2", DO), WaitResult::Pending);
        assert!(matches!(with(Value::Null, &blocked, None).has_done("shop-swap-2", DO), WaitResult::Stopped(_)));
        let ended = with(Value::Null, &[], Some("rolled back")).has_done("shop-swap-2", DO);
        assert_eq!(ended, WaitResult::Ready("shop-swap-2 has ended: rolled back".to_owned()));
        assert_eq!(with(Value::Null, &[], None).has_done("shop-swap-2", DO), WaitResult::Pending);
        assert!(matches!(with(Value::Null, &[], None).has_done("shop-swap-3", DO), WaitResult::Stopped(_)));
    }

    #[test]
    fn repeated_operation_is_done_with_the_new_state() {
        const DO: &str = controller::objects::DO;
        let outcomes = ["rolled back", "abandoned", "committed", "done", ""];
        let again = outcomes.map(|outcome| may_be_tried_again(&json!({"status": {"outcome": outcome}})));
        assert_eq!(again, [true, true, false, false, false]);
        let with = |name: &str, annotation: Value, said: &[Value], of_operation: &[Value]| {
            let mut operation = object(name, of_operation);
            operation["metadata"]["annotations"][DO] = annotation;
            operation["status"]["outcome"] = "rolled back".into();
            ClusterState { operation: Some(operation), ..known(said, &[]) }
        };
        let failed = [condition(TenantClusterReason::ChangeFailed, 3)];
        let done = [condition(TenantClusterReason::Current, 3), condition(TenantClusterReason::Available, 3)];
        let refused = [condition(OperationReason::Rejected, 1)];
        let is_done = |known: ClusterState| known.is_done_again("shop-2", DO);
        assert_eq!(
            is_done(with("shop-2", "resume".into(), &failed, &refused)),
            WaitResult::Pending,
            "nobody has heard it"
        );
        let WaitResult::Stopped(why) = is_done(with("shop-2", Value::Null, &failed, &refused)) else {
            panic!("it is not")
        };
        assert!(why.contains("Rejected"), "{why}");
        assert!(
            matches!(is_done(with("shop-2", Value::Null, &done, &refused)), WaitResult::Ready(_)),
            "nothing was left"
        );
        // Another Operation does the work.
        assert_eq!(is_done(with("shop-3", Value::Null, &[], &[])), WaitResult::Pending);
        assert!(
            matches!(is_done(with("shop-3", Value::Null, &failed, &[])), WaitResult::Stopped(_)),
            "it went back anew"
        );
        assert!(matches!(is_done(with("shop-3", Value::Null, &done, &[])), WaitResult::Ready(_)));
    }

    #[test]
    fn commit_is_done_once_workers_have_followed() {
        const DO: &str = controller::objects::DO;
        let worker = |image: &str| json!({"spec": {"poolRef": {"name": "shop-a"}, "image": {"name": image}, "kubernetes": "1.36"}});
        let with = |pinned: &str, workers: &[Value]| {
            let mut operation = object("shop-swap-2", &[]);
            operation["spec"]["toImage"] = "new".into();
            operation["status"]["outcome"] = "committed".into();
            let mut known = ClusterState {
                operation: Some(operation),
                workers: Some(workers.to_vec()),
                ..known(&[], &[condition(NodePoolReason::AllReady, 3)])
            };
            known.cluster["status"] = json!({"resolved": {"image": pinned}, "kubernetes": "1.36"});
            known.has_done("shop-swap-2", DO)
        };
        assert_eq!(with("old", &[worker("old")]), WaitResult::Pending, "it is not pinned yet: no worker is outdated");
        assert_eq!(with("new", &[worker("new"), worker("old")]), WaitResult::Pending);
        let words = "shop-swap-2 has ended: committed, and its 2 workers have followed";
        assert_eq!(with("new", &[worker("new"), worker("new")]), WaitResult::Ready(words.to_owned()));
    }

    #[test]
    fn each_running_change_has_a_line() {
        let mut known = known(&[condition(TenantClusterReason::Forming, 3)], &[condition(NodePoolReason::Scaling, 3)]);
        known.operation = Some(json!({
            "metadata": {"name": "shop-3f2504e0-4f89-41d3-9a0c-0305e82c3301"},
            "spec": {"type": "ImageSwap", "steps": [{}, {}, {}]},
            "status": {"stepsDone": 1, "step": "power-on shop-cp1",
                       "conditions": [condition(OperationReason::Waiting, 1)]},
        }));
        let lines: Vec<String> = known.lines().into_iter().map(|(_, line)| line).collect();
        let expected = [
            "shop: ControlPlaneReady is False (Forming): as it is",
            "shop-a: 2 of 2 workers are Ready; Ready is False (Scaling): as it is",
            "shop-3f2504e0-4f89-41d3-9a0c-0305e82c3301 (ImageSwap): 1 of 3 steps are done, power-on shop-cp1; Progressing is \
             False (Waiting): as it is",
        ];
        assert_eq!(lines, expected);
        let new = object("shop", &[]);
        assert!(super::lines(&new)[0].1.contains("the controller has not reconciled it yet"));
    }
}
