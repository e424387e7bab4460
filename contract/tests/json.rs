//! What nodes say and take over their endpoint is as the files in `testdata` show it.

use std::fs;
use std::path::Path;

use contract::kubernetes_upgrade;
use contract::node::Node;
use contract::swap::{Refused, Request};
use serde::Serialize;
use serde::de::DeserializeOwned;

fn is_as_the_file_shows<T: Serialize + DeserializeOwned>(name: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    let text = fs::read_to_string(&file).unwrap();
    let value: T = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string_pretty(&value).unwrap(), text.trim(), "{name}");
}

#[test]
fn what_is_said_is_as_the_files_show() {
    for name in ["node.json", "node-prepared.json", "node-taken.json"] {
        is_as_the_file_shows::<Node>(name);
    }
    is_as_the_file_shows::<Node>("node-upgrading.json");
    for name in ["swap-request.json", "swap-request-publisher.json"] {
        is_as_the_file_shows::<Request>(name);
    }
    is_as_the_file_shows::<kubernetes_upgrade::Request>("kubernetes-request.json");
    is_as_the_file_shows::<Refused>("refused.json");
    // A node that knows nothing of pinned keys.
    let text = include_str!("../testdata/node.json");
    let older = text.replace("\"pinned\": \"SHA256:publisher\",", "");
    assert_eq!(serde_json::from_str::<Node>(&older).unwrap().pinned, None);
}

#[test]
fn what_is_told_may_say_more_and_what_is_asked_may_not() {
    let with_more = |name: &str| {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
        let text = fs::read_to_string(&file).unwrap();
        text.replacen('{', "{ \"of-a-later-version\": 1, ", 1)
    };
    serde_json::from_str::<Node>(&with_more("node.json")).unwrap();
    serde_json::from_str::<Refused>(&with_more("refused.json")).unwrap();
    for refused in [
        serde_json::from_str::<Request>(&with_more("swap-request.json")).map(drop),
        serde_json::from_str::<kubernetes_upgrade::Request>(&with_more("kubernetes-request.json")).map(drop),
    ] {
        assert!(refused.unwrap_err().to_string().contains("unknown field `of-a-later-version`"));
    }
}
