//! Access to the API and the endpoints of three nodes in containers: the clients, their certificates, and the audit log.

use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use scenarios::endpoint;
use scenarios::places::kaas_dev;
use scenarios::scenario::{ALL, MOMENT, Scenario};
use scenarios::upgrade::Upgrade;
use scenarios::writer::Writer;
use serde_json::{Value, json};

pub mod long {
    use super::*;

    /// A stranger reaches health and the discovery of joins, and leaves no trace in the audit log. A revoked certificate is
    /// refused by each node. All certificates are renewed by one command, node by node, while a client writes.
    pub fn anonymous_clients_get_nothing_and_certificates_are_renewed() {
        let scenario = Scenario::formed("access");
        Upgrade::of(&scenario);
        a_stranger_reaches_health_alone_and_is_not_noted(&scenario);
        a_pods_token_is_valid_for_an_hour(&scenario);
        a_revoked_certificate_is_refused_by_each_node(&scenario);
        all_certificates_are_renewed_while_a_client_writes(&scenario);
    }

    /// The answer of the API server on cp1 to a request without a credential.
    fn anonymous(scenario: &Scenario, path: &str) -> String {
        let server = endpoint::address(scenario, "cp1");
        let command = format!(
            "printf 'GET {path} HTTP/1.0\\r\\n\\r\\n' | openssl s_client -quiet -verify_return_error -verify_ip {server} \
             -CAfile /etc/kubernetes/pki/ca.crt -connect {server}:6443 2>/dev/null || true"
        );
        scenario.inside("cp1", &["sh", "-c", &command])
    }

    fn a_stranger_reaches_health_alone_and_is_not_noted(scenario: &Scenario) {
        for path in ["/livez", "/readyz", "/healthz"] {
            let answer = anonymous(scenario, path);
            assert!(answer.contains(" 200 "), "{path}: {answer}");
        }
        let marked = "/api/v1/namespaces/default/secrets/asked-by-a-stranger";
        for path in ["/version", "/livez/etcd", "/api", "/openapi/v2", marked] {
            let answer = anonymous(scenario, path);
            assert!(answer.contains(" 401 "), "{path}: {answer}");
        }
        let known = ["get", "secret", "asked-by-an-operator", "--ignore-not-found"];
        scenario.kubectl(&known);
        let noted = |node: &str, what: &str| {
            let command = format!("grep --no-messages --count {what} /data/audit/audit.log || true");
            scenario.inside(node, &["sh", "-c", &command]).trim().parse::<u32>().unwrap_or_default()
        };
        scenario.wait("the operator's question to be in an audit log on a data disk", MOMENT, || {
            Ok(ALL.iter().any(|node| noted(node, "asked-by-an-operator") > 0))
        });
        assert_eq!(noted("cp1", "asked-by-a-stranger"), 0);
        let mode = scenario.inside("cp1", &["stat", "--format=%a", "/data/audit"]);
        assert_eq!(mode.trim(), "700");
    }

    /// Kubernetes extends a token to a year if a pod asks for so many seconds, as kubelets do
    /// (`WarnOnlyBoundTokenExpirationPeriod` of `k8s.io/kubernetes/pkg/serviceaccount`).
    fn a_pods_token_is_valid_for_an_hour(scenario: &Scenario) {
        const SECONDS: i64 = 3607;
        let dns =
            ["--namespace=kube-system", "--selector=k8s-app=kube-dns", "--output=jsonpath={.items[0].metadata.name}"];
        let pod = scenario.kubectl(&[&["get", "pods"], &dns[..]].concat());
        let (pod, duration) = (format!("--bound-object-name={}", pod.trim()), format!("--duration={SECONDS}s"));
        let bound = ["--namespace=kube-system", "--bound-object-kind=Pod", &pod, &duration];
        let token = scenario.kubectl(&[&["create", "token", "coredns"], &bound[..]].concat());
        let claims = token.trim().split('.').nth(1).unwrap_or_else(|| panic!("{token} is no token"));
        let claims = BASE64_URL_SAFE_NO_PAD.decode(claims).unwrap_or_else(|error| panic!("{token}: {error}"));
        let claims: Value = serde_json::from_slice(&claims).unwrap_or_else(|error| panic!("{token}: {error}"));
        let at = |claim: &str| claims[claim].as_i64().unwrap_or_else(|| panic!("no {claim} in {claims}"));
        assert_eq!(at("exp") - at("iat"), SECONDS, "{claims}");
    }

    fn a_revoked_certificate_is_refused_by_each_node(scenario: &Scenario) {
        endpoint::issue(scenario, "cp1", "monitoring");
        for node in ALL {
            assert!(endpoint::ask(scenario, "cp1", node, "/v1/status", true).contains(" 200 "), "{node}");
        }
        let serial = scenario.inside("cp1", &["openssl", "x509", "-noout", "-serial", "-in", endpoint::CREDENTIAL]);
        let serial = serial.trim().trim_start_matches("serial=");
        let revoked = scenario.inside("cp2", &["kaas-agent", "certificate", "revoke", serial, "--output", "json"]);
        let revoked: Value = serde_json::from_str(&revoked).unwrap_or_else(|error| panic!("{revoked}: {error}"));
        assert!(revoked["revoked"].as_str().is_some_and(|name| name.starts_with("serial/")), "{revoked}");
        for node in ALL {
            scenario.wait(&format!("{node} to refuse the revoked certificate"), MOMENT, || {
                Ok(endpoint::ask(scenario, "cp1", node, "/v1/status", true).contains("this certificate was revoked"))
            });
        }
        endpoint::issue(scenario, "cp1", "monitoring");
        assert!(endpoint::ask(scenario, "cp1", "cp2", "/v1/status", true).contains(" 200 "), "a later one is accepted");
    }

    fn all_certificates_are_renewed_while_a_client_writes(scenario: &Scenario) {
        const NAMES: &str = "cd /etc/kubernetes && md5sum pki/*.crt pki/etcd/*.crt *.conf";
        let listed = |node: &str| scenario.inside(node, &["sh", "-c", NAMES]);
        let before = ALL.map(listed);
        let writer = Writer::start(scenario);
        let lab = scenario.lab().name();
        let renewed = Command::new(kaas_dev())
            .args(["control", "certificate", "renew", "--lab", lab, "--output", "json"])
            .output();
        let renewed = renewed.unwrap_or_else(|error| panic!("starting kaas: {error}"));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(renewed.status.success(), "{}", text(&renewed.stderr));
        scenario.reached(&format!("renewed node by node: {}", writer.end()));
        let said: Value = serde_json::from_str(&text(&renewed.stdout)).unwrap();
        let mut names: Vec<&str> = said["renewed"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        names.sort_unstable();
        assert_eq!(json!(names), json!(ALL));
        scenario.all_ready(MOMENT);
        for (node, before) in ALL.iter().zip(before) {
            for line in listed(node).lines().filter(|line| before.contains(*line)) {
                assert!(line.ends_with("ca.crt"), "{node} has the same as before: {line}");
            }
        }
    }
}
