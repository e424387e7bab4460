//! A control cluster's API server in memory, for the program itself: over TLS, with a kubeconfig. It has an API
//! server's generations, UIDs, server-side apply, merge patches, dry runs and finalizers, and the policy that a
//! deletion is confirmed. It accepts only objects that the kinds' types can read. A test's controller runs before it
//! answers a look at a cluster, a Provider or a NodeImage.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};

use contract::kubeconfig::Kubeconfig;
use contract::secret::Secret;
use controller::objects::{CONFIRM_DELETE, NodeImage, NodePool, Operation, Provider, TenantCluster};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Lists come in pages of so many, whatever was asked for.
const PAGE: usize = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Method, a space, and the path with its query.
    pub line: String,
    /// The media type of the body.
    pub form: String,
    pub body: Value,
}

/// The plurals of the API group without a name.
const CORE: [&str; 5] = ["events", "namespaces", "nodes", "pods", "secrets"];

/// Plural, namespace and name.
pub type Key = (String, String, String);

#[derive(Default)]
pub struct Kept {
    pub objects: BTreeMap<Key, Value>,
    /// The requests, in their order.
    pub asked: Vec<Asked>,
    /// A refused request: a part of method and path, and the reason.
    pub refuses: Option<(&'static str, &'static str)>,
    /// A failed request: a part of method and path, and the message.
    pub fails: Option<(&'static str, &'static str)>,
    /// The manager that has set a field of a spec other than by applying it.
    pub owners: BTreeMap<(Key, String), &'static str>,
    /// The logs of pods, by the pods' names.
    pub logs: BTreeMap<String, String>,
    /// Whether the next answer is broken off before it has begun.
    pub breaks: bool,
    /// How often a cluster or a Provider was looked at.
    looks: usize,
    uids: u64,
}

impl Kept {
    /// An existing object.
    pub fn object(&mut self, plural: &str, name: &str) -> &mut Value {
        let found = self.objects.iter_mut().find(|((of, _, is), _)| (of.as_str(), is.as_str()) == (plural, name));
        found.unwrap_or_else(|| panic!("{name} of {plural} is not there")).1
    }

    pub fn has(&self, plural: &str, name: &str) -> bool {
        self.objects.keys().any(|(of, _, is)| (of.as_str(), is.as_str()) == (plural, name))
    }

    pub fn put(&mut self, plural: &str, namespace: &str, name: &str, mut object: Value) {
        self.uids += 1;
        let metadata = json!({"name": name, "namespace": namespace, "uid": format!("uid-{}", self.uids), "generation": 1,
                              "creationTimestamp": "2026-01-01T00:00:00Z",
                              "resourceVersion": self.uids.to_string()});
        merge(&mut object, &json!({ "metadata": metadata }));
        self.objects.insert((plural.to_owned(), namespace.to_owned(), name.to_owned()), object);
    }

    /// Says something of an object as it is now.
    pub fn says(&mut self, plural: &str, name: &str, about: &str, status: &str, reason: &str) {
        let object = self.object(plural, name);
        let generation = object["metadata"]["generation"].clone();
        let condition = json!({"type": about, "status": status, "reason": reason, "message": "as it is",
                               "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let mut conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.retain(|one| one["type"] != about);
        conditions.push(condition);
        object["status"]["conditions"] = conditions.into();
    }

    /// The writing requests, as method and path without the query.
    pub fn written(&self) -> Vec<String> {
        let written = self.asked.iter().filter(|asked| !asked.line.starts_with("GET "));
        written.map(|asked| asked.line.split('?').next().unwrap().to_owned()).collect()
    }

    fn answer(&mut self, asked: &Asked) -> (u16, Value) {
        if let Some((what, why)) = self.refuses.filter(|(what, _)| asked.line.contains(what)) {
            return refused(403, &format!("{what} is forbidden: {why}"));
        }
        if let Some((_, why)) = self.fails.filter(|(what, _)| asked.line.contains(what)) {
            return (500, json!({"kind": "Status", "message": why}));
        }
        let (method, address) = asked.line.split_once(' ').unwrap();
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        let has = |parameter: &str| query.split('&').any(|one| one == parameter);
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let rest = match parts.as_slice() {
            ["apis", "kaas.local", "v1alpha1", rest @ ..] | ["apis", "coordination.k8s.io", "v1", rest @ ..] => rest,
            ["api", "v1", rest @ ..] if rest.iter().any(|part| CORE.contains(part)) => rest,
            ["version"] => return (200, json!({"gitVersion": "v1.37.0"})),
            // A node's endpoint, at the same address.
            ["v1", "status"] => return self.found(&key("status", "", "agent")),
            _ => return (404, Value::String("404 page not found".to_owned())),
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] => (*namespace, rest),
            rest => ("", rest),
        };
        match (method, rest) {
            ("GET", [plural]) => self.list(plural, namespace, query),
            ("GET", ["pods", name, "log"]) => {
                let log = self.logs.get(*name).map(|log| Value::String(log.clone()));
                log.map_or_else(|| missing(name), |log| (200, log))
            }
            ("GET", [plural, name]) => self.found(&key(plural, namespace, name)),
            ("PATCH", [plural, name, "scale"]) if *plural == "nodepools" => {
                let part = json!({"spec": {"replicas": asked.body["spec"]["replicas"]}});
                self.patch(&key(plural, namespace, name), &part, has("dryRun=All"))
            }
            ("PATCH", [plural, name, "status"]) => {
                assert!(asked.form == "application/apply-patch+yaml" && has("fieldManager=kaas"), "{}", asked.line);
                self.patch(&key(plural, namespace, name), &json!({"status": asked.body["status"]}), false)
            }
            ("PATCH", [plural, name]) if asked.form == "application/apply-patch+yaml" => {
                assert!(has("fieldManager=kaas") && has("fieldValidation=Strict"), "{}", asked.line);
                let key = key(plural, namespace, name);
                let seen = &asked.body["metadata"]["resourceVersion"];
                assert_eq!(has("force=true"), seen.is_string(), "what others have changed meanwhile would be lost");
                let there = self.objects.get(&key).map(|there| &there["metadata"]["resourceVersion"]);
                if seen.is_string() && there != Some(seen) {
                    return refused(409, "the object has been modified");
                }
                match self.conflict(&key, &asked.body) {
                    Some(conflict) if !has("force=true") => conflict,
                    _ => self.apply(&key, &asked.body, has("dryRun=All")),
                }
            }
            ("PATCH", [plural, name]) => {
                assert_eq!(asked.form, "application/merge-patch+json");
                self.patch(&key(plural, namespace, name), &asked.body, has("dryRun=All"))
            }
            ("DELETE", [plural, name]) => self.delete(&key(plural, namespace, name), &asked.body, has("dryRun=All")),
            _ => panic!("{}", asked.line),
        }
    }

    fn found(&self, key: &Key) -> (u16, Value) {
        self.objects.get(key).map_or_else(|| missing(&key.2), |object| (200, object.clone()))
    }

    fn list(&self, plural: &str, namespace: &str, query: &str) -> (u16, Value) {
        let from = query.split('&').find_map(|one| one.strip_prefix("continue=page%2F"));
        let from = from.map_or(0, |from| from.parse::<usize>().unwrap());
        let there = |key: &Key| key.0 == plural && (namespace.is_empty() || key.1 == namespace);
        let all: Vec<&Value> = self.objects.iter().filter(|(key, _)| there(key)).map(|(_, object)| object).collect();
        let end = (from + PAGE).min(all.len());
        let next = if end < all.len() { format!("page/{end}") } else { String::new() };
        (200, json!({"kind": "List", "metadata": {"continue": next}, "items": all[from..end]}))
    }

    /// Why an object cannot be applied: another manager has set one of its fields to another value.
    fn conflict(&self, key: &Key, object: &Value) -> Option<(u16, Value)> {
        let there = self.objects.get(key)?;
        let is_other = |(of, field): &(Key, String)| {
            let wanted = &object["spec"][field.as_str()];
            of == key && !wanted.is_null() && *wanted != there["spec"][field.as_str()]
        };
        let cause = |((_, field), owner): (&(Key, String), &&str)| {
            let message = format!("conflict with {owner:?} using kaas.local/v1alpha1 at 2026-01-01T00:00:00Z");
            json!({"reason": "FieldManagerConflict", "message": message, "field": format!(".spec.{field}")})
        };
        let causes: Vec<Value> = self.owners.iter().filter(|(of, _)| is_other(of)).map(cause).collect();
        let said = json!({"kind": "Status", "status": "Failure", "reason": "Conflict", "details": {"causes": causes},
                          "message": format!("Apply failed with {} conflicts", causes.len())});
        (!causes.is_empty()).then_some((409, said))
    }

    fn apply(&mut self, key: &Key, object: &Value, dry_run: bool) -> (u16, Value) {
        let before = self.objects.get(key).cloned();
        let mut after = before.clone().unwrap_or_else(|| json!({}));
        merge(&mut after, object);
        if let Err(error) = understood(&key.0, &after) {
            return refused(422, &error.to_string());
        }
        if dry_run {
            return (200, after);
        }
        self.owners.retain(|(of, field), _| of != key || object["spec"][field.as_str()].is_null());
        match before {
            Some(before) => self.replace(key, &before, after),
            None => self.put(&key.0, &key.1, &key.2, after),
        }
        self.found(key)
    }

    fn patch(&mut self, key: &Key, part: &Value, dry_run: bool) -> (u16, Value) {
        let Some(before) = self.objects.get(key).cloned() else { return missing(&key.2) };
        let uid = &part["metadata"]["uid"];
        if !uid.is_null() && *uid != before["metadata"]["uid"] {
            return refused(409, "Precondition failed: UID in precondition");
        }
        let seen = &part["metadata"]["resourceVersion"];
        if !seen.is_null() && *seen != before["metadata"]["resourceVersion"] {
            return refused(409, "the object has been modified");
        }
        let mut after = before.clone();
        merge(&mut after, part);
        if let Err(error) = understood(&key.0, &after) {
            return refused(422, &error.to_string());
        }
        if dry_run {
            return (200, after);
        }
        let fields = part["spec"].as_object().into_iter().flatten().map(|(field, _)| (key.clone(), field.clone()));
        self.owners.extend(fields.map(|of| (of, "kaas")));
        self.replace(key, &before, after);
        self.found(key)
    }

    fn replace(&mut self, key: &Key, before: &Value, mut after: Value) {
        if before["spec"] != after["spec"] {
            let generation = before["metadata"]["generation"].as_i64().unwrap();
            after["metadata"]["generation"] = (generation + 1).into();
        }
        self.uids += 1;
        after["metadata"]["resourceVersion"] = self.uids.to_string().into();
        self.objects.insert(key.clone(), after);
    }

    /// It has a finalizer, and goes when the test has it go.
    fn delete(&mut self, key: &Key, options: &Value, dry_run: bool) -> (u16, Value) {
        let Some(object) = self.objects.get_mut(key) else { return missing(&key.2) };
        if options["preconditions"]["uid"] != object["metadata"]["uid"] {
            return refused(409, "Precondition failed: UID in precondition");
        }
        if key.0 == "tenantclusters" && object["metadata"]["annotations"][CONFIRM_DELETE] != key.2 {
            return refused(422, "a cluster is deleted with its VMs and their disks: confirm it");
        }
        if dry_run {
            return (200, object.clone());
        }
        let generation = object["metadata"]["generation"].as_i64().unwrap();
        object["metadata"]["generation"] = (generation + 1).into();
        object["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z".into();
        (200, object.clone())
    }
}

fn key(plural: &str, namespace: &str, name: &str) -> Key {
    (plural.to_owned(), namespace.to_owned(), name.to_owned())
}

fn refused(status: u16, message: &str) -> (u16, Value) {
    (status, json!({"kind": "Status", "status": "Failure", "message": message, "reason": "Invalid"}))
}

fn missing(name: &str) -> (u16, Value) {
    let message = format!("\"{name}\" not found");
    (404, json!({"kind": "Status", "message": message, "reason": "NotFound", "details": {"name": name}}))
}

/// Merges a part into an object (RFC 7386).
fn merge(into: &mut Value, part: &Value) {
    let Value::Object(members) = part else {
        *into = part.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (name, value) in members {
        if value.is_null() {
            into.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut into[name.as_str()], value);
        }
    }
}

fn understood(plural: &str, object: &Value) -> Result<(), serde_json::Error> {
    match plural {
        "tenantclusters" => serde_json::from_value::<TenantCluster>(object.clone()).map(drop),
        "nodepools" => serde_json::from_value::<NodePool>(object.clone()).map(drop),
        "operations" => serde_json::from_value::<Operation>(object.clone()).map(drop),
        "nodeimages" => serde_json::from_value::<NodeImage>(object.clone()).map(drop),
        "providers" => serde_json::from_value::<Provider>(object.clone()).map(drop),
        _ => Ok(()),
    }
}

/// A controller's action at each look at a cluster or a Provider. Looks are counted from 1.
type Acts = Box<dyn FnMut(&mut Kept, usize) + Send>;

/// The API server, a kubeconfig that leads to it, and a directory for files.
pub struct Bed {
    /// The port of the API server, and of the nodes' endpoint.
    pub port: u16,
    kept: Arc<Mutex<Kept>>,
    acts: Arc<Mutex<Acts>>,
    directory: TempDir,
}

impl Bed {
    pub fn start() -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let private = PrivatePkcs8KeyDer::from(key.serialize_der());
        let tls = tls.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], private.into()).unwrap();
        let (tls, listener) = (Arc::new(tls), TcpListener::bind("127.0.0.1:0").unwrap());
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = Kubeconfig {
            server: format!("https://{}", listener.local_addr().unwrap()),
            server_name: None,
            authority: certificate.pem(),
            certificate: certificate.pem(),
            key: Secret::new(key.serialize_pem()),
        };
        fs::write(directory.path().join("control.kubeconfig"), &*kubeconfig.render("admin")).unwrap();
        let acts: Acts = Box::new(|_, _| {});
        let port = listener.local_addr().unwrap().port();
        let bed = Self { port, kept: Arc::default(), acts: Arc::new(Mutex::new(acts)), directory };
        let (kept, acts) = (Arc::clone(&bed.kept), Arc::clone(&bed.acts));
        // It ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let connection = ServerConnection::new(Arc::clone(&tls)).unwrap();
                // The client may have gone.
                let _ = serve(StreamOwned::new(connection, stream.unwrap()), &kept, &acts);
            }
        });
        bed
    }

    pub fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap()
    }

    /// From now on, before a look at a cluster or a Provider, this is done.
    pub fn acts(&self, acts: impl FnMut(&mut Kept, usize) + Send + 'static) {
        *self.acts.lock().unwrap() = Box::new(acts);
        self.kept().looks = 0;
    }

    /// A file in the bed's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file there.
    pub fn file(&self, name: &str, text: &str) -> String {
        fs::write(self.path(name), text).unwrap();
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Runs the command there, with arguments separated by spaces.
    pub fn kaas(&self, arguments: &str) -> Output {
        self.command().args(arguments.split(' ')).output().expect("running kaas")
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kaas"));
        command.current_dir(self.directory.path()).stdin(Stdio::null());
        // Help is wrapped at this width.
        command.env("COLUMNS", "100").env("KUBECONFIG", self.path("control.kubeconfig"));
        command
    }

    /// Standard output of a successful command with these variables.
    pub fn kaas_with(&self, variables: &[(&str, &str)], arguments: &str) -> String {
        let output = self.command().envs(variables.iter().copied()).args(arguments.split(' ')).output();
        let output = output.expect("running kaas");
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Exit status and standard error of a command whose reader has closed standard output.
    pub fn unread(&self, arguments: &str) -> (Option<i32>, String) {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = self.command();
        command.args(arguments.split(' ')).stdout(writer).stderr(Stdio::piped());
        let output = command.spawn().and_then(Child::wait_with_output).expect("running kaas");
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    /// The candidates for the last word of a command line, without options.
    pub fn completes(&self, line: &str) -> Vec<String> {
        let mut command = self.command();
        command.env("KAAS_COMPLETE", "fish").arg("--").args(line.split(' '));
        let output = command.output().expect("running kaas");
        let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(output.status.success() && err.is_empty(), "{line}: {out}{err}");
        let words = out.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned());
        words.filter(|word| !word.starts_with('-')).collect()
    }

    /// Standard output and standard error of a command with this exit status.
    #[track_caller]
    pub fn says(&self, status: i32, arguments: &str) -> (String, String) {
        let output = self.kaas(arguments);
        let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert_eq!(output.status.code(), Some(status), "kaas {arguments}: {out}{err}");
        (out, err)
    }

    /// The JSON output of a command with this exit status.
    #[track_caller]
    pub fn json(&self, status: i32, arguments: &str) -> Value {
        let (out, _) = self.says(status, &format!("{arguments} --output json"));
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }
}

/// Answers one request (RFC 9112), and ends the connection.
fn serve(
    mut stream: StreamOwned<ServerConnection, TcpStream>,
    kept: &Mutex<Kept>,
    acts: &Mutex<Acts>,
) -> std::io::Result<()> {
    let (mut received, mut part) = (Vec::new(), [0; 4096]);
    let head = loop {
        let count = stream.read(&mut part)?;
        if count == 0 {
            return Ok(());
        }
        received.extend_from_slice(&part[..count]);
        if let Some(end) = received.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let text = String::from_utf8_lossy(&received[..head]).into_owned();
    let header = |name: &str| {
        let headers = text.lines().filter_map(|line| line.split_once(": "));
        headers.filter(|(is, _)| is.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned()).next()
    };
    let length = header("content-length").map_or(0, |length| length.parse::<usize>().unwrap());
    while received.len() < head + length {
        let count = stream.read(&mut part)?;
        received.extend_from_slice(&part[..count]);
    }
    let line = text.lines().next().unwrap().trim_end_matches(" HTTP/1.1").to_owned();
    let body = serde_json::from_slice(&received[head..]).unwrap_or_default();
    let asked = Asked { line, form: header("content-type").unwrap_or_default(), body };
    let (status, answer) = {
        let mut kept = kept.lock().unwrap();
        let kept = &mut *kept;
        let is_look = asked.line.starts_with("GET ")
            && ["/tenantclusters/", "/providers/", "/nodeimages/"].iter().any(|of| asked.line.contains(of));
        if is_look {
            kept.looks += 1;
            let look = kept.looks;
            let mut acts = acts.lock().unwrap();
            (*acts)(kept, look);
        }
        if std::mem::take(&mut kept.breaks) {
            return Ok(());
        }
        let answer = kept.answer(&asked);
        kept.asked.push(asked);
        answer
    };
    let body = answer.as_str().map_or_else(|| answer.to_string(), str::to_owned);
    let length = body.len();
    write!(stream, "HTTP/1.1 {status} Said\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}")?;
    stream.conn.send_close_notify();
    stream.flush()
}
