//! Clients with and without the deployer's key, over real TLS.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use contract::deployer::{Fingerprint, GROUP, HOURS, PATH, PrivateKey};
use contract::secret::Secret;
use serde_json::{Value, json};

use super::super::tests::{HANGS, Stage, stage};
use super::*;
use crate::cluster::pki::{self, CertificateAuthorities, CertificateWithKey, Leaf};
use crate::cluster::records::Progress;
use crate::fuzz::{Example, fuzz};
use crate::host::files;
use crate::intake::config::Config;
use crate::intake::config::fixture::three_nodes;

/// A node of a formed cluster that has this key.
pub(in super::super) fn formed(key: Option<&PrivateKey>) -> Stage {
    let stage = stage();
    give(&stage, key);
    let image = files::below(stage.root(), "/usr/lib/kaas/image.json");
    std::fs::create_dir_all(image.parent().unwrap()).unwrap();
    std::fs::write(image, include_str!("../../../intake/config/fixtures/image.json")).unwrap();
    let progress = Progress { formed: true, ..Progress::default() };
    Records::new(stage.root()).save_progress(progress).unwrap();
    stage
}

/// Saves the key as `configure` does.
fn give(stage: &Stage, key: Option<&PrivateKey>) {
    let mut config = three_nodes();
    config.deployer_public_key = key.map(|key| key.public().unwrap().to_string());
    let (config, records) = (Config::ControlPlane(config), Records::new(stage.root()));
    match records.config().unwrap() {
        None => records.save_config(&config, &Secret::new("5ec4e7".repeat(6))).unwrap(),
        Some(_) => records.update_config(&config, None).unwrap(),
    };
}

fn authority(stage: &Stage) -> Fingerprint {
    stage.reporter.status().fingerprints.unwrap().ca
}

/// Status code and JSON of the answer to the request that `make` makes for a session.
fn asked(stage: &Stage, make: impl FnOnce(Session) -> Request) -> (u16, Value) {
    let mut stream = stage.connect(None);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).unwrap();
    }
    let body = serde_json::to_string(&make(Session::of(&stream.conn).unwrap())).unwrap();
    write!(stream, "POST {PATH} HTTP/1.1\r\nHost: node\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (header, body) = answer.split_once("\r\n\r\n").expect(&answer);
    (header[9..12].parse().unwrap(), serde_json::from_str(body).unwrap_or_else(|_| json!({"text": body})))
}

/// The answer to a deployer with this key that uses the fingerprints shown by the hypervisor.
fn ask(stage: &Stage, key: &PrivateKey) -> (u16, Value) {
    asked(stage, |session| session.request(key, &authority(stage)).unwrap())
}

fn refused((status, answer): (u16, Value)) -> (u16, String) {
    (status, answer["code"].as_str().unwrap_or_default().to_owned())
}

fn key() -> PrivateKey {
    PrivateKey::draw().unwrap()
}

#[test]
fn proof_gives_rights_until_the_key_changes() {
    let (mine, other) = (key(), key());
    let stage = formed(Some(&mine));
    let (status, answer) = ask(&stage, &mine);
    assert_eq!(status, 200, "{answer}");
    let issued: Issued = serde_json::from_value(answer).unwrap();
    assert_eq!((issued.server.as_str(), issued.cluster.as_str()), ("https://10.0.0.10:6443", "lab"));
    assert_eq!(issued.ca, stage.authorities.kubernetes.certificate);
    let certified = CertificateWithKey { certificate: issued.certificate, key: mine.pem() };
    pki::verified(&certified, &stage.authorities.kubernetes, SystemTime::now()).unwrap();
    let ends = pki::expiry(&certified.certificate).unwrap();
    let day = SystemTime::now() + Duration::from_secs(u64::from(HOURS) * 60 * 60);
    assert!(ends <= day && ends + HANGS > day, "good for a day");
    // The certificate gives access to the whole endpoint, without the Kubernetes API.
    assert_eq!(stage.get(Some(&certified), "/v1/status").0, 200);
    assert_eq!(stage.get(Some(&certified), "/v1/snapshot").0, 202);
    assert_eq!(ask(&stage, &mine).0, 200, "again on demand");

    let noted = std::fs::read_to_string(files::below(stage.root(), "/data/kaas/issued.log")).unwrap();
    let noted: Vec<Value> = noted.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let public = mine.public().unwrap();
    assert_eq!(noted.len(), 2);
    assert_eq!((&noted[0]["name"], &noted[0]["from"]), (&json!(user(&public)), &json!("127.0.0.1")));

    give(&stage, Some(&other));
    assert_eq!(refused(ask(&stage, &mine)), (403, "deployer.other-key".to_owned()));
    assert_eq!(stage.get(Some(&certified), "/v1/status").0, 403, "what was given out is worthless");
    assert_eq!(ask(&stage, &other).0, 200);
    give(&stage, None);
    assert_eq!(refused(ask(&stage, &other)), (409, "deployer.no-key".to_owned()));
    assert_eq!(stage.get(Some(&certified), "/v1/status").0, 403);
}

// Finding 1 of controller.md: the certificate is for the key that the deployer names, so a kubeconfig has no deployer's key.
#[test]
fn certificate_is_for_the_named_key() {
    let (mine, own) = (key(), key());
    let stage = formed(Some(&mine));
    let with = |holder: String| {
        asked(&stage, |session| Request { holder: Some(holder), ..session.request(&mine, &authority(&stage)).unwrap() })
    };
    let (status, answer) = with(own.public().unwrap().to_string());
    assert_eq!(status, 200, "{answer}");
    let issued: Issued = serde_json::from_value(answer).unwrap();
    let certified = CertificateWithKey { certificate: issued.certificate, key: own.pem() };
    pki::verified(&certified, &stage.authorities.kubernetes, SystemTime::now()).unwrap();
    assert_eq!(stage.get(Some(&certified), "/v1/status").0, 200, "its user is the deployer's");
    // Its key proves nothing: a reader of the kubeconfig gets no further certificate.
    assert_eq!(refused(ask(&stage, &own)), (403, "deployer.other-key".to_owned()));
    assert_eq!(with("no key".to_owned()).0, 400);
}

fn configure(stage: &Stage, client: Option<&CertificateWithKey>, body: &Value) -> (u16, String) {
    let body = body.to_string();
    let text = format!("POST /v1/configure HTTP/1.1\r\nHost: node\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let answer = stage.send(client, &text).unwrap();
    (answer[9..12].parse().unwrap(), answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

fn of_key(stage: &Stage, key: &PrivateKey) -> CertificateWithKey {
    let leaf = Leaf { group: Some(GROUP.to_owned()), ..Leaf::client(&user(&key.public().unwrap())) };
    leaf.issue(&stage.authorities.kubernetes, SystemTime::now()).unwrap()
}

// Finding 1 of controller.md: a key is replaced while one of the keys fits at every moment.
#[test]
fn keys_are_replaced_over_the_endpoint() {
    let (old, new) = (key(), key());
    let stage = formed(Some(&old));
    let [first, second] = [&old, &new].map(|key| key.public().unwrap());
    let body = |keys: &str| json!({"properties": {"deployer-public-key": keys}});
    let (both, alone) = (format!("{first},{second}"), second.to_string());
    let (by_old, by_new) = (of_key(&stage, &old), of_key(&stage, &new));
    assert_eq!(configure(&stage, Some(&by_new), &body(&both)).0, 403, "only a present key changes keys");
    let (status, words) = configure(&stage, Some(&by_old), &body(&alone));
    assert!(status == 409 && words.contains("deployer.other-key"), "{words}");
    // The same request again changes nothing.
    for _ in 0..2 {
        let (status, now) = configure(&stage, Some(&by_old), &body(&both));
        let now: Value = serde_json::from_str(&now).unwrap();
        assert_eq!((status, &now["properties"]), (200, &body(&both)["properties"]));
        assert_eq!((ask(&stage, &old).0, ask(&stage, &new).0), (200, 200));
    }
    let (status, now) = configure(&stage, Some(&by_new), &body(&alone));
    let now: Value = serde_json::from_str(&now).unwrap();
    assert_eq!((status, &now["properties"]), (200, &body(&alone)["properties"]));
    assert_eq!(refused(ask(&stage, &old)).1, "deployer.other-key");
    assert_eq!((ask(&stage, &new).0, stage.get(Some(&by_old), "/v1/status").0), (200, 403));
}

#[test]
fn unfit_deployer_keys_are_refused() {
    let mine = key();
    let stage = formed(Some(&mine));
    let client = of_key(&stage, &mine);
    let public = mine.public().unwrap().to_string();
    for (body, status, code) in [
        (json!({"properties": {"api-vip": "10.0.0.9", "deployer-public-key": public}}), 409, "property.fixed"),
        (json!({"properties": {"deployer-public-key": ""}}), 409, "property.malformed"),
        (
            json!({"properties": {"deployer-public-key": format!("{public},{public},{public}")}}),
            409,
            "property.malformed",
        ),
        (json!({"properties": {}, "later": 1}), 400, "unknown field"),
    ] {
        let (is, answer) = configure(&stage, Some(&client), &body);
        assert!(is == status && answer.contains(code), "{is} {answer}");
    }
    assert_eq!(ask(&stage, &mine).0, 200);
}

// Finding 1 of controller.md, the attacker: `NAME-kubeconfig` opens no route of a deployer or an administrator.
#[test]
fn the_kubeconfig_for_users_opens_no_route() {
    let mine = key();
    let stage = formed(Some(&mine));
    let of_users = Leaf::client("kaas:kubeconfig:0f6b2c0d6a9f4b0c8d1e2f3a4b5c6d7e");
    let of_users = of_users.issue(&stage.authorities.kubernetes, SystemTime::now()).unwrap();
    for path in ["/v1/status", "/v1/snapshot", "/v1/node", "/metrics"] {
        assert_eq!(stage.get(Some(&of_users), path).0, 403, "{path}");
    }
    let keys = json!({"properties": {"deployer-public-key": key().public().unwrap().to_string()}});
    assert_eq!(configure(&stage, Some(&of_users), &keys).0, 403);
    assert_eq!(configure(&stage, None, &keys).0, 401);
    // Its key proves nothing at the route for deployers.
    let own = PrivateKey::of_pem(of_users.key.expose()).unwrap();
    assert_eq!(refused(ask(&stage, &own)), (403, "deployer.other-key".to_owned()));
}

#[test]
fn requests_are_refused_before_the_cluster_has_formed() {
    let mine = key();
    let stage = stage();
    assert_eq!(refused(ask(&stage, &mine)), (409, "deployer.not-formed".to_owned()), "no configuration");
    give(&stage, Some(&mine));
    assert_eq!(refused(ask(&stage, &mine)), (409, "deployer.not-formed".to_owned()));
}

#[test]
fn proof_binds_session_key_and_cluster() {
    let (mine, other) = (key(), key());
    let stage = formed(Some(&mine));
    let not_proved = (403, "deployer.not-proved".to_owned());
    let mut recorded = None;
    let first = asked(&stage, |session| {
        let request = session.request(&mine, &authority(&stage)).unwrap();
        recorded = Some(request.clone());
        request
    });
    assert_eq!(first.0, 200);
    // Recorded, or passed on by an attacker with a session to the deployer.
    let replayed = recorded.unwrap();
    assert_eq!(refused(asked(&stage, |_| replayed.clone())), not_proved);
    let of_another_cluster = Fingerprint::of(b"another authority");
    assert_eq!(refused(asked(&stage, |session| session.request(&mine, &of_another_cluster).unwrap())), not_proved);
    let pretended = asked(&stage, |session| {
        let request = session.request(&other, &authority(&stage)).unwrap();
        Request { key: mine.public().unwrap().fingerprint(), ..request }
    });
    assert_eq!(refused(pretended), not_proved);
    let noted = std::fs::read_to_string(files::below(stage.root(), "/data/kaas/issued.log")).unwrap();
    assert_eq!(noted.lines().count(), 1);
}

#[test]
fn certificate_without_a_log_entry_is_not_issued() {
    let mine = key();
    let stage = formed(Some(&mine));
    let log = files::below(stage.root(), "/data/kaas/issued.log");
    std::fs::create_dir(&log).unwrap();
    assert_eq!(refused(ask(&stage, &mine)), (500, "deployer.failed".to_owned()));
    std::fs::remove_dir(&log).unwrap();
    std::fs::write(files::below(stage.root(), "/data/kaas/progress.json"), "{").unwrap();
    let (status, answer) = ask(&stage, &mine);
    assert_eq!(status, 500);
    assert!(!answer["reason"].as_str().unwrap().contains("progress.json"), "strangers are told of no files");
}

#[test]
fn the_group_alone_gives_no_right() {
    let mine = key();
    let stage = formed(Some(&mine));
    let certified = |name: &str| {
        let leaf = Leaf { group: Some(GROUP.to_owned()), ..Leaf::client(name) };
        leaf.issue(&stage.authorities.kubernetes, SystemTime::now()).unwrap()
    };
    let current = user(&mine.public().unwrap());
    assert_eq!(stage.get(Some(&certified(&current)), "/v1/status").0, 200);
    for name in ["", "somebody", &user(&key().public().unwrap())] {
        assert_eq!(stage.get(Some(&certified(name)), "/v1/status").0, 403, "{name}");
    }
    // The name gives no right without the group, or from another CA.
    let leaf = Leaf::client(&current);
    let alone = leaf.issue(&stage.authorities.kubernetes, SystemTime::now()).unwrap();
    assert_eq!(stage.get(Some(&alone), "/v1/status").0, 403);
    let foreign = CertificateAuthorities::make(SystemTime::now()).unwrap();
    let foreign = Leaf { group: Some(GROUP.to_owned()), ..leaf }.issue(&foreign.kubernetes, SystemTime::now()).unwrap();
    assert!(stage.send(Some(&foreign), "GET /livez HTTP/1.1\r\nHost: node\r\n\r\n").is_err());
}

#[test]
fn an_older_tls_and_other_requests_prove_nothing() {
    let stage = formed(Some(&key()));
    let request =
        |body: &str| format!("POST {PATH} HTTP/1.1\r\nHost: node\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let valid = json!({"key": Fingerprint::of(b"x"), "proof": "AAAA"}).to_string();
    let answer = stage.send_over(&[&rustls::version::TLS12], None, &request(&valid)).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("TLS 1.3"), "{answer}");
    let answer = stage.send(None, &request(&valid)).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("deployer.other-key"), "{answer}");
    let more = valid.replace('{', r#"{"group":"system:masters","#);
    for wrong in ["", "{}", "[]", &more, &valid.replace("sha256", "md5")] {
        let answer = stage.send(None, &request(wrong)).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{wrong}: {answer}");
    }
    assert_eq!(stage.get(None, PATH).0, 405);
}

/// A client needs only TLS to send this.
#[test]
fn fuzz_of_deployers_requests() {
    let mine = key();
    let stage = formed(Some(&mine));
    let mut sessions = Vec::new();
    let (_, answer) = asked(&stage, |session| {
        let request = session.request(&mine, &authority(&stage)).unwrap();
        sessions.push((session, request.clone()));
        request
    });
    assert!(answer["certificate"].is_string());
    let (session, request) = sessions.pop().unwrap();
    let valid = serde_json::to_vec(&request).unwrap();
    let context = &stage.endpoint.shared.context;
    fuzz("deployers' requests", 1 << 20, &[Example::new(valid)], |bytes| {
        let Ok(understood) = json::read_strictly::<Request>(bytes) else { return };
        // The signature itself can be encoded in more than one way. Another key's is never accepted.
        assert!(judge(context, &session, &understood).is_err() || understood.key == request.key);
    });
}
