//! The node's side writes these files: what it says must be understood here.

use uuid::Uuid;

use crate::upgrade::{Facts, KubernetesRequest, Refused, Stage, SwapRequest};

macro_rules! golden {
    ($name:literal) => {
        include_str!(concat!("../../../../agent/src/endpoint/testdata/", $name))
    };
}

fn same<T: serde::Serialize + serde::de::DeserializeOwned>(text: &str) -> T {
    let value: T = serde_json::from_str(text).unwrap();
    let before: serde_json::Value = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_value(&value).unwrap(), before, "something of it is not known here");
    value
}

#[test]
fn what_a_node_says_is_understood_to_the_last_field() {
    let facts: Facts = same(golden!("node.json"));
    assert!(facts.good.is_some() && facts.swap.is_none());
    assert_eq!(facts.pinned.as_deref(), Some("SHA256:publisher"));
    // A node that knows nothing of pinned keys.
    let older = golden!("node.json").replace("\"pinned\": \"SHA256:publisher\",", "");
    assert_eq!(serde_json::from_str::<Facts>(&older).unwrap().pinned, None);
    let members = facts.etcd.unwrap().members;
    assert_eq!(members.iter().filter(|member| member.healthy).count(), 2);
    let prepared: Facts = same(golden!("node-prepared.json"));
    assert_eq!(prepared.swap.unwrap().stage, Stage::Prepared);
    let taken: Facts = same(golden!("node-taken.json"));
    assert_eq!(taken.swap.map(|swap| (swap.stage, swap.to)), Some((Stage::Taken, None)));
    let upgrading: Facts = same(golden!("node-upgrading.json"));
    assert_eq!(upgrading.kubernetes.upgrade.map(|upgrade| upgrade.to).as_deref(), Some("1.36"));
    let refused: Refused = same(golden!("refused.json"));
    assert_eq!(refused.code, "swap.quorum");
}

#[test]
fn what_a_node_takes_is_what_is_said_here() {
    let request: SwapRequest = same(golden!("swap-request.json"));
    assert!(request.id != Uuid::nil() && request.publisher.is_none());
    let request: SwapRequest = same(golden!("swap-request-publisher.json"));
    assert_eq!(request.publisher.as_deref(), Some("SHA256:another"));
    let request: KubernetesRequest = same(golden!("kubernetes-request.json"));
    assert_eq!(request.to, "1.36");
}
