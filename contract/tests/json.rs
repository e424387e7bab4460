//! The JSON of the endpoint is as in the files in `testdata`.

use std::fs;
use std::path::Path;

use contract::json::read_strictly;
use contract::kubernetes_upgrade;
use contract::node::Node;
use contract::swap::{EvacuationRequest, Rejection, Request};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

fn is_as_the_file_shows<T: Serialize + DeserializeOwned>(name: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    let text = fs::read_to_string(&file).unwrap();
    let value: T = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string_pretty(&value).unwrap(), text.trim(), "{name}");
}

#[test]
fn json_is_as_in_the_files() {
    for name in ["node.json", "node-prepared.json", "node-taken.json", "node-evacuation.json"] {
        is_as_the_file_shows::<Node>(name);
    }
    is_as_the_file_shows::<Node>("node-upgrading.json");
    for name in ["swap-request.json", "swap-request-publisher.json"] {
        is_as_the_file_shows::<Request>(name);
    }
    is_as_the_file_shows::<EvacuationRequest>("evacuation-request.json");
    is_as_the_file_shows::<kubernetes_upgrade::Request>("kubernetes-request.json");
    is_as_the_file_shows::<Rejection>("refused.json");
    // An earlier node, without pinned keys and pods.
    let text = include_str!("../testdata/node.json");
    let older = text.replace("\"pinned\": \"SHA256:publisher\",", "");
    let older = serde_json::from_str::<Node>(&older).unwrap();
    assert_eq!((older.pinned, older.pods, older.evacuation), (None, None, None));
}

/// The file with an additional field in each of its objects, one after the other.
fn with_more(name: &str) -> Vec<String> {
    fn objects(value: &Value, place: String, found: &mut Vec<String>) {
        if let Value::Object(fields) = value {
            for (name, value) in fields {
                objects(value, format!("{place}/{name}"), found);
            }
            found.push(place);
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    let value: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let mut places = Vec::new();
    objects(&value, String::new(), &mut places);
    let more = |place: &String| {
        let mut value = value.clone();
        value.pointer_mut(place).unwrap()["of-a-later-version"] = 1.into();
        value.to_string()
    };
    places.iter().map(more).collect()
}

#[test]
fn answers_may_have_unknown_fields_requests_not() {
    for text in ["node-prepared.json", "node-evacuation.json"].into_iter().flat_map(with_more) {
        serde_json::from_str::<Node>(&text).unwrap();
    }
    for text in with_more("refused.json") {
        serde_json::from_str::<Rejection>(&text).unwrap();
    }
    let requests = with_more("swap-request-publisher.json");
    assert!(requests.len() > 1, "the image that is asked for is an object of its own");
    for text in requests {
        let error = read_strictly::<Request>(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("unknown field `of-a-later-version`"), "{error}");
    }
    for text in with_more("evacuation-request.json") {
        assert!(read_strictly::<EvacuationRequest>(text.as_bytes()).is_err());
    }
    for text in with_more("kubernetes-request.json") {
        assert!(read_strictly::<kubernetes_upgrade::Request>(text.as_bytes()).is_err());
    }
}
