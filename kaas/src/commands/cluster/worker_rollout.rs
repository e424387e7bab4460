//! The workers of a cluster, which follow its control-plane nodes after a final change. Only Machines count: the status of a
//! pool may be older than the change.

use std::collections::BTreeMap;

use controller::objects::NodePoolReason;
use serde_json::Value;

use crate::control::{Condition, WaitResult, read_conditions, text};

/// The cluster with its final version, its pools and its workers.
pub struct WorkerRollout<'k> {
    pub cluster: &'k Value,
    pub pools: &'k [Value],
    /// The Machines of its workers.
    pub workers: &'k [Value],
}

/// The number of a pool's workers, and of those that match the control-plane nodes.
#[derive(Default)]
struct Counted {
    all: usize,
    current: usize,
}

impl WorkerRollout<'_> {
    /// Image and minor version of new workers. Empty if unknown.
    fn goal(&self) -> (&str, &str) {
        (text(self.cluster, "/status/resolved/image"), text(self.cluster, "/status/kubernetes"))
    }

    /// The pools that are not being deleted, each with its workers.
    fn pools(&self) -> impl Iterator<Item = (&Value, Counted)> {
        let (image, kubernetes) = self.goal();
        let mut counted = BTreeMap::<&str, Counted>::new();
        for worker in self.workers {
            let of = counted.entry(text(worker, "/spec/poolRef/name")).or_default();
            let is_current =
                text(worker, "/spec/image/name") == image && text(worker, "/spec/kubernetes") == kubernetes;
            of.all += 1;
            of.current += usize::from(is_current);
        }
        let stay = self.pools.iter().filter(|pool| pool["metadata"]["deletionTimestamp"].is_null());
        stay.map(move |pool| (pool, counted.remove(text(pool, "/metadata/name")).unwrap_or_default()))
    }

    /// The progress of the pools whose workers follow. Empty if all have followed.
    pub fn lines(&self) -> Vec<(String, String)> {
        let (name, (image, kubernetes)) = (text(self.cluster, "/metadata/name"), self.goal());
        let behind = self.pools().filter(|(_, counted)| counted.current < counted.all);
        let of_pool = |(pool, counted): (&Value, Counted)| {
            let pool_name = text(pool, "/metadata/name");
            let up_to_date =
                read_conditions(pool).into_iter().find(|one| one.about == "UpToDate" && one.status != "True");
            let why = up_to_date.map(|one| format!("; {}", one.words())).unwrap_or_default();
            let Counted { all, current } = counted;
            (format!("{pool_name} follows"), format!("{pool_name}: {current} of {all} workers run {image}{why}"))
        };
        let mut lines: Vec<(String, String)> = behind.map(of_pool).collect();
        if !lines.is_empty() {
            let words = format!(
                "{name}: the control-plane nodes run Kubernetes {kubernetes} of {image}; the workers follow at the pace of their pools' \
                 rollout"
            );
            lines.insert(0, (format!("{name} follows"), words));
        }
        lines
    }

    /// Whether all workers have followed. `words` describe the control-plane nodes. Paused workers are not awaited.
    pub fn wait_result(&self, words: &str) -> WaitResult {
        use NodePoolReason::{AdoptionRequired, ClusterNotReady, JoinFailed, NotReached, Scaling, WorkersNotReady};
        let is_paused = |of: &Value| of.as_bool().unwrap_or_default();
        let of_cluster = is_paused(&self.cluster["spec"]["paused"]);
        let (mut stay, mut goes, mut there) = (Vec::new(), false, 0);
        for (pool, counted) in self.pools() {
            let name = text(pool, "/metadata/name");
            let conditions = read_conditions(pool);
            let ready = conditions.iter().find(|one| one.about == "Ready" && one.is_current);
            // A pool that lacks workers for another reason lacked them before, so the upgrade does not end for it.
            if let Some(ready) = ready.filter(|ready| ready.is_one(&[JoinFailed, AdoptionRequired])) {
                return WaitResult::Stopped(format!("{words}. {name}: {}", ready.words()));
            }
            let is_behind = counted.current < counted.all;
            if is_behind && (of_cluster || is_paused(&pool["spec"]["rollout"]["paused"])) {
                stay.push(name);
                continue;
            }
            there += counted.current;
            let moves = |ready: &Condition<'_>| ready.is_one(&[Scaling, WorkersNotReady, NotReached, ClusterNotReady]);
            goes |= is_behind || ready.is_none_or(moves);
        }
        if goes {
            return WaitResult::Pending;
        }
        let follow = match there {
            0 => String::new(),
            1 => ", and its one worker has followed".to_owned(),
            all => format!(", and its {all} workers have followed"),
        };
        let stay = match stay.as_slice() {
            [] => String::new(),
            pools => format!("; paused and unchanged: the workers of {}", pools.join(" and ")),
        };
        WaitResult::Ready(format!("{words}{follow}{stay}"))
    }
}

#[cfg(test)]
mod tests {
    use controller::objects::Reason;
    use serde_json::json;

    use super::*;

    fn cluster() -> Value {
        json!({"metadata": {"name": "shop"}, "spec": {},
               "status": {"kubernetes": "1.36", "resolved": {"image": "new"}}})
    }

    fn pool(name: &str, reason: NodePoolReason) -> Value {
        let status = format!("{:?}", reason.standing());
        json!({"metadata": {"name": name, "generation": 3}, "spec": {},
               "status": {"conditions": [{"type": reason.condition(), "status": status, "reason": reason.word(),
                                          "message": "as it is", "observedGeneration": 3}]}})
    }

    fn worker(pool: &str, image: &str, kubernetes: &str) -> Value {
        json!({"spec": {"poolRef": {"name": pool}, "image": {"name": image}, "kubernetes": kubernetes}})
    }

    #[test]
    fn workers_have_followed_once_all_machines_match() {
        let come = |cluster: &Value, pools: &[Value], workers: &[Value]| {
            WorkerRollout { cluster, pools, workers }.wait_result("the cluster shop runs it")
        };
        let ready = pool("shop-a", NodePoolReason::AllReady);
        let new = || worker("shop-a", "new", "1.36");
        let there = come(&cluster(), std::slice::from_ref(&ready), &[new(), new()]);
        assert_eq!(there, WaitResult::Ready("the cluster shop runs it, and its 2 workers have followed".to_owned()));
        for old in [worker("shop-a", "old", "1.36"), worker("shop-a", "new", "1.35")] {
            // The pool's condition may be older than the commit.
            assert_eq!(come(&cluster(), std::slice::from_ref(&ready), &[new(), old]), WaitResult::Pending);
        }
        for reason in [NodePoolReason::Scaling, NodePoolReason::WorkersNotReady, NodePoolReason::NotReached] {
            assert_eq!(come(&cluster(), &[pool("shop-a", reason)], &[new()]), WaitResult::Pending, "{reason:?}");
        }
        let mut unsaid = ready.clone();
        unsaid["metadata"]["generation"] = 4.into();
        assert_eq!(come(&cluster(), &[unsaid], &[new()]), WaitResult::Pending, "nobody has judged it");
        for reason in [NodePoolReason::JoinFailed, NodePoolReason::AdoptionRequired] {
            let stopped = come(&cluster(), &[pool("shop-a", reason)], &[new()]);
            let words = format!("shop-a: Ready is False ({})", reason.word());
            assert!(matches!(stopped, WaitResult::Stopped(why) if why.contains(&words)), "{reason:?}");
        }
        assert!(matches!(
            come(&cluster(), &[pool("shop-a", NodePoolReason::CapacityMissing)], &[new()]),
            WaitResult::Ready(_)
        ));
        assert_eq!(come(&cluster(), &[], &[]), WaitResult::Ready("the cluster shop runs it".to_owned()));
    }

    #[test]
    fn paused_and_deleted_pools_are_not_awaited() {
        let old = [worker("shop-a", "old", "1.36"), worker("shop-b", "new", "1.36")];
        let mut pools = [pool("shop-a", NodePoolReason::AllReady), pool("shop-b", NodePoolReason::AllReady)];
        pools[0]["spec"]["rollout"]["paused"] = true.into();
        let come =
            |cluster: &Value, pools: &[Value]| WorkerRollout { cluster, pools, workers: &old }.wait_result("it runs");
        let expected = "it runs, and its one worker has followed; paused and unchanged: the workers of shop-a";
        assert_eq!(come(&cluster(), &pools), WaitResult::Ready(expected.to_owned()));
        pools[0]["spec"]["rollout"]["paused"] = false.into();
        assert_eq!(come(&cluster(), &pools), WaitResult::Pending);
        let mut paused = cluster();
        paused["spec"]["paused"] = true.into();
        assert!(matches!(come(&paused, &pools), WaitResult::Ready(words) if words.ends_with("workers of shop-a")));
        pools[0]["metadata"]["deletionTimestamp"] = "2026-12-01T09:00:00Z".into();
        assert_eq!(come(&cluster(), &pools), WaitResult::Ready("it runs, and its one worker has followed".to_owned()));
    }

    #[test]
    fn progress_is_shown_while_a_worker_is_behind() {
        let pools = [pool("shop-a", NodePoolReason::Replacing), pool("shop-b", NodePoolReason::AllReady)];
        let (cluster, mut workers) =
            (cluster(), vec![worker("shop-a", "old", "1.36"), worker("shop-a", "new", "1.36")]);
        workers.push(worker("shop-b", "new", "1.36"));
        let lines = |workers: &[Value]| -> Vec<String> {
            let followers = WorkerRollout { cluster: &cluster, pools: &pools, workers };
            followers.lines().into_iter().map(|(_, line)| line).collect()
        };
        let expected = [
            "shop: the control-plane nodes run Kubernetes 1.36 of new; the workers follow at the pace of their pools' rollout",
            "shop-a: 1 of 2 workers run new; UpToDate is False (Replacing): as it is",
        ];
        assert_eq!(lines(&workers), expected);
        assert!(lines(&workers[1..]).is_empty());
    }
}
