//! The limits of a Provider, as settings of the client of its vCenter.

use std::time::Duration;

use vsphere::Settings;

use crate::objects::VSphere;

pub(super) fn settings(described: &VSphere) -> Settings {
    Settings {
        calls: described.requests as usize,
        tasks: described.clones_at_once as usize,
        task_limit: Duration::from_secs(u64::from(described.task_minutes) * 60),
        ..Settings::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_client_gets_each_limit_of_the_object() {
        let described = |limits: serde_json::Value| -> VSphere {
            let mut object = json!({
                "server": "vcenter", "datacenter": "DC0", "folder": "tenants", "zones": [], "networks": [],
            });
            for (name, limit) in limits.as_object().unwrap() {
                object[name] = limit.clone();
            }
            serde_json::from_value(object).unwrap()
        };
        let of = |limits| {
            let Settings { calls, tasks, task_limit, .. } = settings(&described(limits));
            (calls, tasks, task_limit.as_secs())
        };
        assert_eq!(of(json!({})), (8, 8, 30 * 60));
        assert_eq!(of(json!({"requests": 3, "clonesAtOnce": 2, "taskMinutes": 7})), (3, 2, 7 * 60));
    }
}
