//! The API server of a control cluster.

use std::fmt;
use std::net::SocketAddrV4;

use anyhow::{Context, anyhow, bail, ensure};
use controller::objects::{GROUP, VERSION};
use fleet::nodes::{Answer, Client, Method, SelectedContext, clean};
use serde_json::{Value, json};

use super::bound::{Bound, Ended};
use super::{Change, text};

/// The field manager of applied objects. The API server rejects a change of fields that other managers have set.
const MANAGER: &str = "kaas";

/// Objects in one page of a list.
const PAGE: usize = 500;
/// The largest number of pages. No control cluster has as many objects.
const PAGES: usize = 1000;

/// The path of a kind's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourcePath<'a> {
    pub plural: &'a str,
    /// The namespace. `None` for all namespaces, and for kinds without a namespace.
    pub namespace: Option<&'a str>,
}

pub const NODE_IMAGES: ResourcePath<'static> = ResourcePath::anywhere("nodeimages");
pub const PROVIDERS: ResourcePath<'static> = ResourcePath::anywhere("providers");

impl<'a> ResourcePath<'a> {
    pub fn within(plural: &'a str, namespace: &'a str) -> Self {
        Self { plural, namespace: Some(namespace) }
    }

    /// Of a kind without a namespace, or in all namespaces.
    pub const fn anywhere(plural: &'a str) -> Self {
        Self { plural, namespace: None }
    }

    fn path(self) -> String {
        let root = match self.plural {
            "secrets" => "/api/v1".to_owned(),
            _ => format!("/apis/{GROUP}/{VERSION}"),
        };
        let within = self.namespace.map(|namespace| format!("/namespaces/{namespace}")).unwrap_or_default();
        format!("{root}{within}/{}", self.plural)
    }
}

impl fmt::Display for ResourcePath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.plural)?;
        self.namespace.map_or(Ok(()), |namespace| write!(f, " in the namespace {namespace}"))
    }
}

/// A rejected request. Nothing was changed. The same request would be rejected again. After any other error of a write its result
/// is unknown.
#[derive(Debug)]
pub struct Rejected(String);

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Rejected {}

impl Rejected {
    pub fn because(words: String) -> Self {
        Self(words)
    }
}

/// A control cluster.
pub struct Control {
    client: Client,
    place: String,
    bound: Option<Bound>,
}

impl Control {
    /// The control cluster of a context. Sends nothing yet.
    pub fn of(selected: &SelectedContext) -> anyhow::Result<Self> {
        let client = Client::of_credentials(&selected.credentials)?;
        let place = place(selected.credentials.server(), selected.name.as_deref());
        Ok(Self { client, place, bound: None })
    }

    /// The control cluster for a command whose requests end early.
    #[must_use]
    pub fn until(self, bound: Bound) -> Self {
        Self { bound: Some(bound), ..self }
    }

    /// Why requests end now. `None` before the end.
    pub fn ended(&self) -> Option<Ended> {
        self.bound.as_ref()?.ended()
    }

    /// The server and the context, on one line.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// An object. `None` if it does not exist.
    pub fn get(&self, of: ResourcePath<'_>, name: &str) -> anyhow::Result<Option<Value>> {
        let attempt = || format!("asking for {name} of {of}");
        let answer = self.ask(Method::GET, &format!("{}/{name}", of.path()), None).with_context(attempt)?;
        match missing(&answer) {
            true => Ok(None),
            false => understood(&answer).with_context(attempt).map(Some),
        }
    }

    /// All objects of a kind, in the API server's order.
    pub fn list(&self, of: ResourcePath<'_>) -> anyhow::Result<Vec<Value>> {
        self.list_at(&of.path()).with_context(|| format!("asking for all {of}"))
    }

    /// All objects of the list at a path such as `/api/v1/nodes`, in the API server's order.
    pub fn list_at(&self, path: &str) -> anyhow::Result<Vec<Value>> {
        let mut all = Vec::new();
        self.list_into(path, usize::MAX, &mut all).map(|()| all)
    }

    /// As [`Self::list_at`], for a list that may be large. Adds each page to `all`, until the answers have `budget` bytes. After an
    /// error, `all` has the pages before it.
    pub fn list_into(&self, path: &str, budget: usize, all: &mut Vec<Value>) -> anyhow::Result<()> {
        read_pages(budget, all, |from| self.ask(Method::GET, &format!("{path}?limit={PAGE}{from}"), None))
    }

    /// The text at a path, such as a pod's log.
    pub fn text_at(&self, path: &str) -> anyhow::Result<String> {
        let answer = self.ask(Method::GET, path, None)?;
        accepted(&answer)?;
        Ok(String::from_utf8_lossy(&answer.body).into_owned())
    }

    /// The status document of the agent on a node, at the address of its endpoint.
    pub fn node_status(&self, node: SocketAddrV4) -> anyhow::Result<Value> {
        let answer = self.wait(self.client.node_status(node))?;
        ensure!(answer.status == 200, "the node answers {}: {}", answer.status, answer.words());
        serde_json::from_slice(&answer.body).with_context(|| format!("understanding the answer {:?}", answer.words()))
    }

    /// Asks for the API server's version, and accepts each answer.
    pub fn reach(&self) -> anyhow::Result<()> {
        self.ask(Method::GET, "/version", None).map(drop)
    }

    /// Creates an object, or changes the given fields of an existing one. With `dry_run` the API server only checks it. A field that
    /// another manager has set to another value is a conflict.
    pub fn apply(&self, of: ResourcePath<'_>, object: &Value, dry_run: bool) -> anyhow::Result<Value> {
        understood(&self.applied(of, object, dry_run, false)?).with_context(|| attempt_of(of, object))
    }

    /// As [`Self::apply`], and overrides fields that [`Self::patch`] has set: the API server counts these as another owner of the same
    /// name. Another operator may have set them, so `may` checks each such change first. Fields of other managers are not changed,
    /// and no field that has changed since the check.
    pub fn apply_again(
        &self,
        of: ResourcePath<'_>,
        object: &Value,
        dry_run: bool,
        may: &dyn Fn(&str, &[Change<'_>]) -> anyhow::Result<()>,
    ) -> anyhow::Result<Value> {
        let attempt = || attempt_of(of, object);
        let answer = self.applied(of, object, dry_run, false)?;
        let Some(fields) = own_conflicts(&answer) else { return understood(&answer).with_context(attempt) };
        let name = text(object, "/metadata/name");
        let gone = || Rejected::because(format!("{name} of {of} no longer exists"));
        let there = self.get(of, name)?.ok_or_else(gone)?;
        let changes: Vec<Change<'_>> = fields.iter().map(|field| Change::of(field, &there, object)).collect();
        may(name, &changes)?;
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"].clone();
        understood(&self.applied(of, &object, dry_run, true)?).with_context(attempt)
    }

    fn applied(&self, of: ResourcePath<'_>, object: &Value, dry_run: bool, force: bool) -> anyhow::Result<Answer> {
        let name = object["metadata"]["name"].as_str().context("an object without a name")?;
        let dry_run = if dry_run { "&dryRun=All" } else { "" };
        let force = if force { "&force=true" } else { "" };
        let path = format!("{}/{name}?fieldManager={MANAGER}&fieldValidation=Strict{dry_run}{force}", of.path());
        self.wait(self.client.apply(&path, object)).with_context(|| attempt_of(of, object))
    }

    /// Sets fields of an object's status.
    pub fn apply_status(&self, of: ResourcePath<'_>, object: &Value) -> anyhow::Result<Value> {
        let name = object["metadata"]["name"].as_str().context("an object without a name")?;
        let path = format!("{}/{name}/status?fieldManager={MANAGER}&fieldValidation=Strict", of.path());
        let attempt = || format!("recording the status of {name} of {of}");
        let answer = self.wait(self.client.apply(&path, object)).with_context(attempt)?;
        understood(&answer).with_context(attempt)
    }

    /// Changes a part of an object, or of its subresource `below`, such as `/scale` (RFC 7386). With `dry_run` the API server only
    /// checks it.
    pub fn patch(
        &self,
        of: ResourcePath<'_>,
        name: &str,
        below: &str,
        part: &Value,
        dry_run: bool,
    ) -> anyhow::Result<Value> {
        let attempt = || format!("changing {name} of {of}");
        let dry_run = if dry_run { "&dryRun=All" } else { "" };
        let path = format!("{}/{name}{below}?fieldManager={MANAGER}&fieldValidation=Strict{dry_run}", of.path());
        let answer = self.ask(Method::PATCH, &path, Some(part)).with_context(attempt)?;
        understood(&answer).with_context(attempt)
    }

    /// Deletes the object with this UID. It exists until its finalizers are removed. A missing object is no error. With `dry_run`
    /// the API server only checks it.
    pub fn delete(&self, of: ResourcePath<'_>, name: &str, uid: &str, dry_run: bool) -> anyhow::Result<()> {
        let attempt = || format!("deleting {name} of {of}");
        let path = format!("{}/{name}{}", of.path(), if dry_run { "?dryRun=All" } else { "" });
        let only = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}});
        let answer = self.ask(Method::DELETE, &path, Some(&only)).with_context(attempt)?;
        if missing(&answer) {
            return Ok(());
        }
        understood(&answer).with_context(attempt).map(drop)
    }

    fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        self.wait(self.client.ask_api(method, path, body))
    }

    fn wait<T>(&self, asking: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        match &self.bound {
            Some(bound) => self.client.wait(bound.wait(asking)),
            None => self.client.wait(asking),
        }
    }
}

/// Adds the objects of a list to `all`. `ask` asks for the page with these further parameters.
fn read_pages(
    budget: usize,
    all: &mut Vec<Value>,
    mut ask: impl FnMut(&str) -> anyhow::Result<Answer>,
) -> anyhow::Result<()> {
    let (mut from, mut size) = (String::new(), 0_usize);
    for _ in 0..PAGES {
        let answer = ask(&from)?;
        size = size.saturating_add(answer.body.len());
        let mut page = understood(&answer)?;
        match page["items"].take() {
            Value::Array(items) => all.extend(items),
            _ => bail!("the answer is no list"),
        }
        match page["metadata"]["continue"].as_str().filter(|next| !next.is_empty()) {
            Some(_) if size >= budget => {
                bail!("the list is larger than {} KiB: only its first {} objects were read", budget >> 10, all.len())
            }
            // The token is base64 for URLs. Any other character is escaped.
            Some(next) => from = format!("&continue={}", escaped(next)),
            None => return Ok(()),
        }
    }
    bail!("the list has no end")
}

fn place(server: &str, context: Option<&str>) -> String {
    let context = context.map(|context| format!(" (context {})", clean(context))).unwrap_or_default();
    format!("{}{context}", clean(server))
}

fn attempt_of(of: ResourcePath<'_>, object: &Value) -> String {
    format!("applying {} of {of}", text(object, "/metadata/name"))
}

/// Whether the API server reports a missing object. An unknown path has another answer.
fn missing(answer: &Answer) -> bool {
    let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    answer.status == 404
        && said["kind"] == "Status"
        && said["reason"] == "NotFound"
        && said["details"]["name"].is_string()
}

/// The conflicting fields, if other commands of this program have set all of them. The API server names the manager of each: `conflict
/// with "kaas" with subresource "scale" using kaas.local/v1alpha1 at …` (Kubernetes, "Server-Side Apply", conflicts).
fn own_conflicts(answer: &Answer) -> Option<Vec<String>> {
    let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let own = format!("conflict with \"{MANAGER}\"");
    let is_own = |cause: &Value| {
        let whose = cause["message"].as_str().and_then(|message| message.strip_prefix(&own));
        cause["reason"] == "FieldManagerConflict" && whose.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    let causes = said["details"]["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_it = answer.status == 409 && said["reason"] == "Conflict" && !causes.is_empty() && causes.iter().all(is_own);
    is_it.then(|| causes.iter().map(|cause| text(cause, "/field").to_owned()).collect())
}

/// The object of an answer, with all its fields.
fn understood(answer: &Answer) -> anyhow::Result<Value> {
    accepted(answer)?;
    match serde_json::from_slice::<Value>(&answer.body).unwrap_or_default() {
        object @ Value::Object(_) => Ok(object),
        _ => Err(anyhow!("the answer is no object: {}", answer.words())),
    }
}

/// Whether the API server has accepted the request.
fn accepted(answer: &Answer) -> anyhow::Result<()> {
    if (200..300).contains(&answer.status) {
        return Ok(());
    }
    let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    // A rejected request changed nothing. After any other error that is unknown (Kubernetes API conventions, "HTTP Status codes").
    match answer.status {
        404 if said["kind"] != "Status" => Err(Rejected(
            "the API server does not know this kind: a control cluster brings its kinds within two minutes of its last node's joining, \
             so wait, and try again. Otherwise its image is too old for tenant clusters, or it is no control cluster"
                .to_owned(),
        )
        .into()),
        // 408 and 429 ask for another attempt.
        400..=499 if ![408, 429].contains(&answer.status) => {
            Err(Rejected(format!("the API server refuses it: {}", answer.reason())).into())
        }
        _ => Err(anyhow!("the API server answered {}", answer.refusal())),
    }
}

/// A text as part of a query (RFC 3986, section 2.3).
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        Answer::of(status, body.as_bytes().to_vec())
    }

    #[test]
    fn only_a_named_status_means_a_missing_object() {
        let of_object =
            r#"{"kind": "Status", "reason": "NotFound", "details": {"name": "shop"}, "message": "not found"}"#;
        assert!(missing(&answer(404, of_object)));
        assert!(!missing(&answer(500, of_object)));
        // An unknown kind, and a proxy in between.
        assert!(!missing(&answer(404, "404 page not found\n")));
        assert!(!missing(&answer(404, r#"{"kind": "Status", "reason": "NotFound", "details": {}}"#)));
        let told = format!("{:#}", understood(&answer(404, "404 page not found\n")).unwrap_err());
        assert!(told.contains("does not know this kind"), "{told}");
        let (waits, gives_up) = (told.find("within two minutes"), told.find("too old for tenant clusters"));
        assert!(waits.is_some() && waits < gives_up, "a young cluster is the first that comes to mind: {told}");
    }

    #[test]
    fn large_list_keeps_its_first_pages() {
        let page = |next: &str| answer(200, &json!({"metadata": {"continue": next}, "items": [1, 2]}).to_string());
        let read = |budget: usize, broken: usize| {
            let (mut all, mut asked) = (Vec::new(), Vec::new());
            let result = read_pages(budget, &mut all, |from| {
                asked.push(from.to_owned());
                match asked.len() {
                    count if count == broken => Err(anyhow!("no route")),
                    3 => Ok(page("")),
                    _ => Ok(page("a/b")),
                }
            });
            (result.map_err(|error| error.to_string()), all.len(), asked)
        };
        let (whole, count, asked) = read(usize::MAX, 0);
        assert_eq!((whole, count), (Ok(()), 6));
        assert_eq!(asked, ["", "&continue=a%2Fb", "&continue=a%2Fb"]);
        // A page is larger than the budget. The last page completes the list.
        let (cut, count, _) = read(10, 0);
        assert_eq!(count, 2);
        assert!(cut.unwrap_err().ends_with("only its first 2 objects were read"));
        let (cut, count, _) = read(usize::MAX, 2);
        assert_eq!((cut, count), (Err("no route".to_owned()), 2));
    }

    #[test]
    fn place_names_server_and_context() {
        let server = "https://10.0.0.10:6443";
        assert_eq!(place(server, Some("a\nb")), "https://10.0.0.10:6443 (context a b)");
        assert_eq!(place(server, None), server);
    }

    #[test]
    fn only_own_conflicts_are_set_again() {
        let conflicts = |status: u16, messages: &[&str]| {
            let cause = |message: &&str| json!({"reason": "FieldManagerConflict", "message": message, "field": ".spec.replicas"});
            let causes: Vec<Value> = messages.iter().map(cause).collect();
            let body = json!({"kind": "Status", "reason": "Conflict", "details": {"causes": causes}, "message": "x"});
            own_conflicts(&answer(status, &body.to_string()))
        };
        let conflict = |status: u16, messages: &[&str]| conflicts(status, messages).is_some();
        let scaled =
            r#"conflict with "kaas" with subresource "scale" using kaas.local/v1alpha1 at 2026-12-01T09:00:00Z"#;
        let (patched, applied) = (r#"conflict with "kaas" using kaas.local/v1alpha1"#, r#"conflict with "kaas""#);
        assert_eq!(conflicts(409, &[scaled, patched, applied]).unwrap(), [".spec.replicas"; 3]);
        for other in
            [r#"conflict with "kubectl-edit" using kaas.local/v1alpha1"#, r#"conflict with "kaas-controller""#, ""]
        {
            assert!(!conflict(409, &[scaled, other]), "{other}");
        }
        let odd = r#"conflict with "kaas"" is a name"#;
        assert!(!conflict(409, &[]) && !conflict(422, &[scaled]) && !conflict(409, &[odd]));
        let changed = answer(409, r#"{"kind": "Status", "reason": "Conflict", "message": "changed"}"#);
        assert_eq!(own_conflicts(&changed), None);
    }

    #[test]
    fn rejected_requests_differ_from_unknown_results() {
        let refused = |status| {
            let body = r#"{"kind": "Status", "message": "a cluster\u001b[2J is deleted with its VMs"}"#;
            let error = understood(&answer(status, body)).unwrap_err();
            (error.is::<Rejected>(), error.to_string())
        };
        let words = "the API server refuses it: a cluster [2J is deleted with its VMs";
        assert_eq!(refused(422), (true, words.to_owned()));
        for unknown in [408, 429, 500, 504] {
            assert!(!refused(unknown).0, "{unknown}");
        }
        assert!(understood(&answer(200, "[]")).is_err() && understood(&answer(200, "{").clone()).is_err());
    }

    #[test]
    fn kinds_are_where_the_api_server_has_them() {
        assert_eq!(
            ResourcePath::within("nodepools", "blue").path(),
            "/apis/kaas.local/v1alpha1/namespaces/blue/nodepools"
        );
        assert_eq!(ResourcePath::anywhere("providers").path(), "/apis/kaas.local/v1alpha1/providers");
        assert_eq!(ResourcePath::within("secrets", "blue").path(), "/api/v1/namespaces/blue/secrets");
        assert_eq!(escaped("a/b=&c"), "a%2Fb%3D%26c");
    }
}
