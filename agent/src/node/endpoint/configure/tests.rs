//! Changes of properties over real TLS. Finding 14 of controller.md: settings reach a running node.

use contract::configure::LARGEST;
use serde_json::{Value, json};

use super::super::deployer::tests::formed;
use super::super::tests::Stage;
use super::*;
use crate::status::Status;

/// Status code and JSON of the answer to an administrator.
fn post(stage: &Stage, query: &str, body: &Value) -> (u16, Value) {
    let (client, body) = (stage.client(Some("kubeadm:cluster-admins")), body.to_string());
    let text =
        format!("POST /v1/configure{query} HTTP/1.1\r\nHost: node\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let answer = stage.send(Some(&client), &text).unwrap();
    let (header, body) = answer.split_once("\r\n\r\n").unwrap();
    (header[9..12].parse().unwrap(), serde_json::from_str(body).unwrap_or_else(|_| json!({"text": body})))
}

fn saved(stage: &Stage) -> Config {
    Records::new(stage.root()).config().unwrap().unwrap()
}

#[test]
fn dry_run_tells_what_would_change() {
    let stage = formed(None);
    let before = saved(&stage);
    let asked = json!({"properties": {"ntp-servers": "ntp.example.com", "pod-security": "baseline"}});
    let (status, answer) = post(&stage, "?dryRun", &asked);
    assert_eq!((status, &answer["changed"]), (200, &json!(["ntp-servers"])), "{answer}");
    assert_eq!(answer["properties"], json!({"ntp-servers": "", "pod-security": "baseline"}), "the present values");
    assert_eq!(saved(&stage), before);

    let (status, answer) = post(&stage, "", &asked);
    assert_eq!((status, &answer["changed"]), (200, &json!(["ntp-servers"])), "{answer}");
    assert_eq!(answer["properties"]["ntp-servers"], "ntp.example.com");
    assert_eq!(saved(&stage).node().ntp_servers, ["ntp.example.com"]);
    // The same request after a lost answer.
    assert_eq!(post(&stage, "", &asked).1["changed"], json!([]));
    // An empty value restores the default.
    post(&stage, "", &json!({"properties": {"ntp-servers": ""}}));
    assert_eq!(saved(&stage), before);
}

#[test]
fn refused_changes_are_refused_together() {
    let stage = formed(None);
    let before = saved(&stage);
    for query in ["?dryRun", ""] {
        let asked = json!({"properties": {"dns-servers": "x", "ntp-servers": "10.0.0.1", "api-vip": "10.0.0.99"}});
        let (status, answer) = post(&stage, query, &asked);
        assert_eq!((status, &answer["code"]), (409, &json!("property.fixed")), "{answer}");
        let asked = json!({"properties": {"dns-servers": "x", "ntp-servers": "10.0.0.1"}});
        let (status, answer) = post(&stage, query, &asked);
        assert_eq!((status, &answer["code"]), (409, &json!("property.malformed")), "{answer}");
        assert!(answer["reason"].as_str().unwrap().starts_with("dns-servers: "), "{answer}");
        assert_eq!(answer["properties"], json!({"dns-servers": "", "ntp-servers": ""}));
        assert_eq!(saved(&stage), before);
    }
}

/// A later controller removes a property that this image does not know.
#[test]
fn only_a_value_needs_a_known_property() {
    let stage = formed(None);
    let (status, answer) = post(&stage, "", &json!({"properties": {"later": ""}}));
    assert_eq!((status, &answer["changed"]), (200, &json!([])), "{answer}");
    let (status, answer) = post(&stage, "", &json!({"properties": {"later": "1"}}));
    assert_eq!((status, &answer["code"]), (409, &json!("property.unknown")), "{answer}");
}

#[test]
fn mistyped_dry_run_changes_nothing() {
    let stage = formed(None);
    let before = saved(&stage);
    for query in ["?dryrun", "?dryRun=false", "?", "?dryRun&force"] {
        assert_eq!(post(&stage, query, &json!({"properties": {"timeout-factor": "4"}})).0, 400, "{query}");
    }
    assert_eq!(saved(&stage), before);
}

#[test]
fn body_has_at_most_one_mebibyte() {
    let stage = formed(None);
    let (status, answer) = post(&stage, "?dryRun", &json!({"properties": {"later": "x".repeat(LARGEST - 64)}}));
    assert_eq!((status, &answer["code"]), (409, &json!("property.unknown")), "{answer}");
    let (status, answer) = post(&stage, "?dryRun", &json!({"properties": {"later": "x".repeat(LARGEST)}}));
    assert!(status == 413 && answer["text"].as_str().unwrap().contains("longer than"), "{answer}");
}

#[test]
fn settings_are_applied_after_a_restart() {
    use crate::upgrade::swap::manager::tests::context;
    let stage = formed(None);
    let mut own = context(stage.root(), None);
    own.config = saved(&stage).control_plane().unwrap().clone();
    stage.endpoint.swaps().open(own).unwrap();
    let asked = json!({"properties": {"timeout-factor": "4"}});
    let applied = |query: &str, asked: &Value| post(&stage, query, asked).1["applied"].clone();
    assert_eq!(applied("?dryRun", &asked), json!(false), "it has not done its steps");
    stage.reporter.update(|status: &mut Status| status.phase = Phase::Done);
    assert_eq!(applied("?dryRun", &asked), json!(true));
    assert_eq!(applied("", &asked), json!(false), "it must restart");
    assert_eq!(applied("?dryRun", &asked), json!(false));
    assert_eq!(applied("", &json!({"properties": {"timeout-factor": "1"}})), json!(true));
}
