use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::nodes::LARGEST;

fn answer(status: u16, body: &Value) -> Answer {
    Answer::of(status, body.to_string().into_bytes())
}

#[test]
fn only_budgets_and_webhooks_block_an_eviction() {
    let blocked = json!({"message": "Cannot evict pod as it would violate the pod's disruption budget.",
        "details": {"causes": [{"message": "The disruption budget web needs 2 healthy pods and has 2 currently"}]}});
    let Evicted::Blocked(words) = evicted(&answer(429, &blocked)).unwrap() else { panic!("it goes") };
    assert!(words.contains("disruption budget.") && words.contains("web needs 2 healthy pods"), "{words}");
    for gone in [201, 404, 409] {
        assert_eq!(evicted(&answer(gone, &json!({}))).unwrap(), Evicted::Going);
    }
    let denied = json!({"message": "admission webhook \"keep.example.com\" denied the request: not today"});
    for status in [400, 403, 422] {
        let Evicted::Blocked(words) = evicted(&answer(status, &denied)).unwrap() else { panic!("it goes") };
        assert!(words.contains("denied the request: not today"), "{words}");
    }
    for status in [401, 503] {
        assert!(evicted(&answer(status, &json!({}))).unwrap_err().to_string().contains(&status.to_string()));
    }
}

#[test]
fn pods_of_the_node_itself_stay() {
    let pod = |more: Value| {
        let mut pod =
            json!({"metadata": {"namespace": "web", "name": "p", "uid": "u"}, "status": {"phase": "Running"}});
        for (key, value) in more.as_object().unwrap() {
            for (inner, value) in value.as_object().unwrap() {
                pod[key][inner] = value.clone();
            }
        }
        moving(&pod)
    };
    assert_eq!(pod(json!({})).unwrap().name, "p");
    assert!(pod(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})).unwrap().ending);
    let owner = |kind: &str| json!({"metadata": {"ownerReferences": [{"kind": kind, "controller": true}]}});
    assert!(!pod(owner("ReplicaSet")).unwrap().bare);
    assert!(pod(json!({})).unwrap().bare);
    let owned = json!({"metadata": {"ownerReferences": [{"kind": "ConfigMap"}]}});
    assert!(pod(owned).unwrap().bare, "who owns it does not start it elsewhere");
    assert!(pod(owner("DaemonSet")).is_none());
    assert!(pod(json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}})).is_none());
    assert!(pod(json!({"status": {"phase": "Succeeded"}})).is_none());
}

#[test]
fn a_local_claim_belongs_to_its_volumes_node() {
    let volume = |kind: &str, host: &str| {
        let expression = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [host]});
        json!({"status": {"phase": "Bound"}, "spec": {
            kind: {"path": "/volumes/a"}, "claimRef": {"namespace": "web", "name": "data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}})
    };
    assert_eq!(claim_kept_on(&volume("local", "w1"), "w1"), Some("web/data".to_owned()));
    assert_eq!(claim_kept_on(&volume("hostPath", "w1"), "w1"), Some("web/data".to_owned()));
    assert_eq!(claim_kept_on(&volume("local", "w2"), "w1"), None);
    assert_eq!(claim_kept_on(&volume("nfs", "w1"), "w1"), None);
}

#[test]
fn a_blocked_eviction_names_a_few_causes() {
    let causes: Vec<Value> = (0..20).map(|number| json!({"message": format!("{number}{}", "x".repeat(600))})).collect();
    let Evicted::Blocked(words) =
        evicted(&answer(429, &json!({"message": "no", "details": {"causes": causes}}))).unwrap()
    else {
        panic!("it goes")
    };
    assert!(words.starts_with("no 0x") && words.contains(" 2x") && !words.contains(" 3x"), "{words}");
    assert!(words.len() < 2000, "{}", words.len());
}

#[test]
fn a_node_is_ready_when_it_says_so() {
    let of = |ready: &str| {
        node(
            &json!({"metadata": {"name": "w1", "uid": "u", "labels": {"node-role.kubernetes.io/control-plane": ""}}, "spec": {"providerID": "vsphere://x", "unschedulable": true},
            "status": {"addresses": [{"type": "Hostname", "address": "w1"}, {"type": "InternalIP", "address": "10.0.0.9"}],
                "nodeInfo": {"kubeletVersion": "v1.36.2"}, "conditions": [{"type": "MemoryPressure", "status": "True"}, {"type": "Ready", "status": ready, "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]}}),
        )
    };
    let seen = of("True");
    assert!(seen.ready && seen.cordoned && seen.control);
    assert_eq!((seen.minor().unwrap().to_string().as_str(), seen.heard.as_str()), ("1.36", "2026-01-01T00:00:00Z"));
    assert_eq!(seen.address, Some([10, 0, 0, 9].into()));
    assert_eq!((seen.name.as_str(), seen.uid.as_str(), seen.provider.as_str()), ("w1", "u", "vsphere://x"));
    assert!(!of("Unknown").ready && !of("False").ready);
}

#[test]
fn a_leaving_node_takes_no_pods_or_addresses() {
    let seen = node(&json!({"metadata": {"name": "w1", "uid": "u"}}));
    let body = leave(&seen);
    assert_eq!((&body["metadata"]["uid"], &body["spec"]["unschedulable"]), (&json!("u"), &json!(true)));
    assert_eq!(body["metadata"]["labels"]["node.kubernetes.io/exclude-from-external-load-balancers"], "");
    let left = json!({"metadata": {"name": "w1", "uid": "u", "labels": body["metadata"]["labels"]}});
    assert!(node(&left).excluded && !seen.excluded);
}

#[test]
fn services_announced_by_a_node_are_named() {
    let status = |node: &str, name: &str| {
        let status =
            json!({"node": node, "serviceName": name, "serviceNamespace": "web", "interfaces": [{"name": "eth0"}]});
        json!({"metadata": {"name": "l2-x"}, "status": status})
    };
    let list = json!({"items": [status("w1", "one"), status("w2", "two"), json!({"metadata": {}})]});
    assert_eq!(announced(&answer(200, &list), "w1").unwrap(), ["web/one"]);
    assert!(announced(&answer(404, &json!({})), "w1").unwrap().is_empty(), "there is no MetalLB");
    assert!(announced(&answer(403, &json!({})), "w1").is_err());
}

#[test]
fn a_tokens_secret_has_kubeadms_form() {
    let token = Token::new("w1", 1_800_000_000, 1);
    let secret = secret(&token);
    assert_eq!(secret["metadata"]["name"], format!("bootstrap-token-{}", token.id));
    assert_eq!(secret["metadata"]["annotations"]["kaas.local/node"], "w1", "it is good for this node alone");
    assert_eq!(secret["type"], "bootstrap.kubernetes.io/token");
    let data = &secret["stringData"];
    assert_eq!(data["token-id"], token.id);
    assert_eq!(data["token-secret"], token.secret.expose());
    assert_eq!(data["expiration"], "2027-01-15T08:30:00Z");
    assert_eq!(data["usage-bootstrap-authentication"], "true");
    assert_eq!(data["usage-bootstrap-signing"], "true");
    assert_eq!(data["auth-extra-groups"], "system:bootstrappers:kubeadm:default-node-token");
}

#[test]
fn a_long_page_is_read_one_by_one() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = crate::nodes::tests::client(format!("http://{}", listener.local_addr().unwrap()));
    // Longer than texts that are shown.
    let next = format!("{}==", "a".repeat(600));
    let second = format!("/api/v1/nodes?limit=1&continue={}%3D%3D", "a".repeat(600));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap();
            let request = String::from_utf8_lossy(&request[..length]).into_owned();
            let page = |name: &str, next: &str| {
                json!({"metadata": {"continue": next}, "items": [{"metadata": {"name": name}}]}).to_string()
            };
            let body = match request.split(' ').nth(1).unwrap() {
                "/api/v1/nodes?limit=100" => "x".repeat(LARGEST + 1),
                // As the API server writes 1.4 MB of `<`.
                "/api/v1/nodes?limit=1" => page(&format!("w1{}", "<".repeat(1_400_000)), &next).replace('<', r"\u003c"),
                path if path == second => page("w2", ""),
                other => panic!("{other} is not asked of the API here"),
            };
            // The client may have read enough.
            let _ =
                write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        }
    });
    let nodes = client.wait(Cluster::nodes(&client)).unwrap();
    assert_eq!(nodes.iter().map(|node| &node.name[..2]).collect::<Vec<_>>(), ["w1", "w2"]);
}

/// A server with another page after each, which `page` makes from its number. Returns the nodes, and the number of requests.
fn endless_list(page: impl Fn(usize) -> Value + Send + 'static) -> (anyhow::Result<Vec<NodeSeen>>, usize) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = crate::nodes::tests::client(format!("http://{}", listener.local_addr().unwrap()));
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 4096]);
            let body = page(count.fetch_add(1, Ordering::SeqCst)).to_string();
            let _ =
                write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        }
    });
    let nodes = client.wait(Cluster::nodes(&client));
    (nodes, asked.load(Ordering::SeqCst))
}

#[test]
fn an_endless_list_is_an_error() {
    let named = |number: usize| json!({"metadata": {"name": format!("w{number}")}});
    let refused = |(nodes, asked): (anyhow::Result<Vec<NodeSeen>>, usize)| {
        let error = nodes.unwrap_err();
        assert!(error.is::<Answered>(), "somebody answers: {error:#}");
        (error.to_string(), asked)
    };
    let (why, asked) = refused(endless_list(move |number| {
        let items: Vec<Value> = (0..100).map(|item| named(100 * number + item)).collect();
        json!({"metadata": {"continue": number.to_string()}, "items": items})
    }));
    assert!(why.contains("more than 5000 of its objects count"), "{why}");
    assert_eq!(asked, 51);
    let (why, asked) =
        refused(endless_list(|number| json!({"metadata": {"continue": (number % 3).to_string()}, "items": []})));
    assert!(why.contains("a page leads back"), "{why}");
    assert_eq!(asked, 4);
    let (why, asked) =
        refused(endless_list(|number| json!({"metadata": {"continue": number.to_string()}, "items": []})));
    assert!(why.contains("more than 5000 pages"), "{why}");
    assert_eq!(asked, PAGES);
}

#[test]
fn keys_belong_to_the_same_node_objects() {
    let node = |name: &str, uid: &str| node(&json!({"metadata": {"name": name, "uid": uid}}));
    let (one, two, three) = (node("w1", "u1"), node("w2", "u2"), node("w3", "u3"));
    let data = json!({
        "w1": json!({"joined": "t", "let_in": "a", "uid": "u1"}).to_string(),
        "w2": json!({"joined": "t", "let_in": "b", "uid": "another"}).to_string(),
        "w3": "damaged", "_complete": "yes",
    });
    let noted = let_in(&answer(200, &json!({"data": data})), &[&one, &two, &three]).unwrap();
    assert_eq!(noted, BTreeMap::from([("w1".to_owned(), "a".to_owned())]));
    assert!(let_in(&answer(404, &json!({})), &[&one]).unwrap().is_empty(), "nothing is noted yet");
    assert!(let_in(&answer(200, &json!({})), &[&one]).unwrap().is_empty());
    assert!(let_in(&answer(403, &json!({})), &[&one]).is_err());
}

#[test]
fn releasing_a_name_removes_only_its_record() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = crate::nodes::tests::client(format!("http://{}", listener.local_addr().unwrap()));
    let server = std::thread::spawn(move || {
        ["404 Not Found", "200 OK", "403 Forbidden"].map(|status| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = String::new();
            while !asked.ends_with('}') {
                let mut part = [0; 4096];
                let length = stream.read(&mut part).unwrap();
                asked += &String::from_utf8_lossy(&part[..length]);
            }
            write!(stream, "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{{}}").unwrap();
            asked
        })
    });
    let released = || client.wait(client.change(ClusterChange::ReleaseName("t-w2")));
    // The ConfigMap does not exist; the name is no longer recorded; it may still be.
    assert_eq!([released(), released(), released()].map(|one| one.is_ok()), [true, true, false]);
    for asked in server.join().unwrap() {
        assert!(
            asked.starts_with("PATCH /api/v1/namespaces/kube-system/configmaps/kaas-worker-records HTTP"),
            "{asked}"
        );
        assert!(asked.contains("application/merge-patch+json"), "{asked}");
        assert!(asked.ends_with(r#"{"data":{"t-w2":null}}"#), "{asked}");
    }
}
