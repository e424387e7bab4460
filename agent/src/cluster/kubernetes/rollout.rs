//! How far what is to run in the cluster runs.

use anyhow::Context as _;
use serde_json::Value;

use super::api::Api;

/// A Deployment or a DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    pub kind: Kind,
    pub namespace: String,
    pub name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// So many pods, wherever there is room.
    Deployment,
    /// A pod on each node that fits.
    DaemonSet,
}

impl Kind {
    /// As kubectl names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Deployment => "deployment",
            Self::DaemonSet => "daemonset",
        }
    }
}

impl Workload {
    /// The workload that an object describes, if it is one.
    pub fn of(object: &Value) -> Option<Self> {
        let kind = match object["kind"].as_str()? {
            "Deployment" => Kind::Deployment,
            "DaemonSet" => Kind::DaemonSet,
            _ => return None,
        };
        let text = |name: &str| object["metadata"][name].as_str().map(str::to_owned);
        Some(Self { kind, namespace: text("namespace")?, name: text("name")? })
    }
}

/// Why a workload does not run as it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadProblem {
    /// The problem, with the name of the workload.
    pub seen: String,
    /// Whether it passes by itself where pods are still coming up, as on a node that was just powered on: too few of them run.
    pub passes: bool,
}

/// Those of a list of objects.
pub fn workloads(objects: &[Value]) -> Vec<Workload> {
    objects.iter().filter_map(Workload::of).collect()
}

impl Api {
    /// Why a workload does not run as it should; none if it does, or is only now coming up.
    pub fn workload_problem(&self, workload: &Workload) -> anyhow::Result<Option<WorkloadProblem>> {
        let Workload { kind, namespace, name } = workload;
        let kind = kind.name();
        let object = self
            .find(&format!("/apis/apps/v1/namespaces/{namespace}/{kind}s/{name}"))
            .with_context(|| format!("asking for the {kind} {namespace}/{name}"))?;
        Ok(judge(workload, object.as_ref()))
    }
}

/// Reasons of the condition `Progressing` while the pods of a Deployment are still coming up, or going over to its next
/// version (`k8s.io/kubernetes/pkg/controller/deployment/util`).
const UNDER_WAY: [&str; 3] = ["NewReplicaSetCreated", "FoundNewReplicaSet", "ReplicaSetUpdated"];

/// The reason once that has lasted for longer than it may.
const STUCK: &str = "ProgressDeadlineExceeded";

fn judge(workload: &Workload, object: Option<&Value>) -> Option<WorkloadProblem> {
    let what = format!("the {} {}/{}", workload.kind.name(), workload.namespace, workload.name);
    let lasting = |seen: String| Some(WorkloadProblem { seen, passes: false });
    let Some(object) = object else { return lasting(format!("{what} is missing")) };
    let (spec, status) = (&object["spec"], &object["status"]);
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let (wanted, running) = match workload.kind {
        Kind::Deployment => {
            let condition = |kind: &str| {
                let mut all = status["conditions"].as_array().into_iter().flatten();
                all.find(|condition| condition["type"] == kind).cloned().unwrap_or_default()
            };
            let (available, progress) = (condition("Available"), condition("Progressing"));
            let reason = progress["reason"].as_str().unwrap_or_default();
            let coming = progress["status"] == "True" && UNDER_WAY.contains(&reason);
            // Its controller has not looked at it yet, or not at what it is now: what is said is of before.
            let seen = number(&status["observedGeneration"]) >= number(&object["metadata"]["generation"]);
            if available.is_null() || !seen || coming {
                return None;
            }
            if available["status"] == "True" {
                // The pods of its former version go on.
                return match reason == STUCK {
                    true => lasting(format!("the next version of {what} does not come up, the former one still runs")),
                    false => None,
                };
            }
            (number(&spec["replicas"]), number(&status["availableReplicas"]))
        }
        Kind::DaemonSet => {
            let (wanted, running) = (number(&status["desiredNumberScheduled"]), number(&status["numberAvailable"]));
            if running >= wanted {
                return None;
            }
            (wanted, running)
        }
    };
    Some(WorkloadProblem { seen: format!("of {what} {running} of {wanted} pods run"), passes: true })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn judged(kind: &str, status: Value) -> Option<WorkloadProblem> {
        let object = json!({
            "kind": kind, "metadata": {"namespace": "n", "name": "x"}, "spec": {"replicas": 2}, "status": status,
        });
        judge(&Workload::of(&object).unwrap(), Some(&object))
    }

    #[test]
    fn a_stuck_deployment_is_a_problem() {
        let with = |available: &str, progressing: &str, reason: &str| {
            judged(
                "Deployment",
                json!({"availableReplicas": 1, "conditions": [
                    {"type": "Available", "status": available},
                    {"type": "Progressing", "status": progressing, "reason": reason},
                ]}),
            )
        };
        assert_eq!(judged("Deployment", json!({})), None, "just made");
        assert_eq!(with("True", "True", "NewReplicaSetAvailable"), None);
        assert_eq!(with("False", "True", "ReplicaSetUpdated"), None, "it comes up");
        let few = "of the deployment n/x 1 of 2 pods run".to_owned();
        let trouble = Some(WorkloadProblem { seen: few, passes: true });
        assert_eq!(with("False", "False", STUCK), trouble);
        assert_eq!(with("False", "True", "NewReplicaSetAvailable"), trouble, "it ran, and does no more");
        let stuck = "the next version of the deployment n/x does not come up, the former one still runs";
        assert_eq!(with("True", "False", STUCK), Some(WorkloadProblem { seen: stuck.to_owned(), passes: false }));
        let missing = Workload { kind: Kind::Deployment, namespace: "n".into(), name: "x".into() };
        let gone = "the deployment n/x is missing".to_owned();
        assert_eq!(judge(&missing, None), Some(WorkloadProblem { seen: gone, passes: false }));
    }

    #[test]
    fn a_daemon_set_runs_on_its_nodes() {
        let with = |wanted, running| {
            judged("DaemonSet", json!({"desiredNumberScheduled": wanted, "numberAvailable": running}))
        };
        assert_eq!(with(0, 0), None, "no worker has joined yet");
        assert_eq!(with(3, 3), None);
        let few = "of the daemonset n/x 2 of 3 pods run".to_owned();
        assert_eq!(with(3, 2), Some(WorkloadProblem { seen: few, passes: true }));
    }
}
