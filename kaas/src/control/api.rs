//! The API server itself.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow};
use controller::objects::{GROUP, VERSION};
use fleet::nodes::{Answer, Client, Method, clean};
use kube_rest::{Cause, Limits, ListReader, Page, Status};
use serde_json::{Value, json};

use super::{Change, text};

/// The field manager: the API server protects the fields of other managers.
const MANAGER: &str = "kaas";

/// More pages than a control cluster has objects for.
const LIMITS: Limits = Limits { page: 500, pages: 1000, time: Duration::from_secs(120) };

/// Where objects of a kind are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourcePath<'a> {
    pub plural: &'a str,
    /// The namespace; none for all of them, and for kinds that are in none.
    pub namespace: Option<&'a str>,
}

impl<'a> ResourcePath<'a> {
    pub fn within(plural: &'a str, namespace: &'a str) -> Self {
        Self { plural, namespace: Some(namespace) }
    }

    /// In none, or in all.
    pub fn anywhere(plural: &'a str) -> Self {
        Self { plural, namespace: None }
    }

    fn path(self) -> String {
        let version = if self.plural == "secrets" { "v1".to_owned() } else { format!("{GROUP}/{VERSION}") };
        kube_rest::collection(&version, self.namespace, self.plural)
    }
}

impl fmt::Display for ResourcePath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.plural)?;
        self.namespace.map_or(Ok(()), |namespace| write!(f, " in the namespace {namespace}"))
    }
}

/// It was understood and is not done. Nothing was changed, and asking again changes nothing.
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

/// A control cluster, asked with the operator's kubeconfig.
pub struct Control(Client);

impl Control {
    /// The one that a kubeconfig leads to.
    ///
    /// # Errors
    /// It cannot be read, or has no certificate inside.
    pub fn of(kubeconfig: &Path) -> anyhow::Result<Self> {
        Client::of_kubeconfig(kubeconfig).map(Self)
    }

    /// `None` if the object is missing.
    ///
    /// # Errors
    /// The cluster does not answer, refuses, or does not know the kind.
    pub fn get(&self, of: ResourcePath<'_>, name: &str) -> anyhow::Result<Option<Value>> {
        let attempt = || format!("asking for {name} of {of}");
        let answer = self.ask(Method::GET, &format!("{}/{name}", of.path()), None).with_context(attempt)?;
        match missing(&answer) {
            true => Ok(None),
            false => understood(&answer).with_context(attempt).map(Some),
        }
    }

    /// All objects of a kind there, in the API server's order.
    ///
    /// # Errors
    /// As of [`Self::get`].
    pub fn list(&self, of: ResourcePath<'_>) -> anyhow::Result<Vec<Value>> {
        let attempt = || format!("asking for all {of}");
        let path = of.path();
        let (mut list, mut all) = (ListReader::new(&path, LIMITS), Vec::new());
        loop {
            let answer = self.ask(Method::GET, &list.request().with_context(attempt)?, None)?;
            let page = serde_json::from_value(understood(&answer).with_context(attempt)?);
            let page: Page<Value> = page.with_context(|| format!("{}: the answer is no list", attempt()))?;
            let is_last = !list.advance(&page).with_context(attempt)?;
            all.extend(page.items);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// Creates an object, or changes these of its fields. With `dry_run` the API server checks it and stores nothing. The API server
    /// rejects a field that another manager has set to another value.
    ///
    /// # Errors
    /// [`Rejected`]; or it is unknown whether it was done.
    pub fn apply(&self, of: ResourcePath<'_>, object: &Value, dry_run: bool) -> anyhow::Result<Value> {
        understood(&self.applied(of, object, dry_run, false)?).with_context(|| attempt_of(of, object))
    }

    /// As [`Self::apply`], but also changes fields that [`Self::patch`] has set: the API server counts that as another owner of the same
    /// name. Two operators may have given these commands, so `may` judges each such change before it is made. The API server rejects
    /// changes of other managers' fields, and of an object that has changed since `may` saw it.
    ///
    /// # Errors
    /// As of [`Self::apply`]; or `may` refuses.
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
        self.0.wait(self.0.apply(&path, object)).with_context(|| attempt_of(of, object))
    }

    /// Writes fields of an object's status. Those of other managers stay.
    ///
    /// # Errors
    /// [`Rejected`]; or it is unknown whether it was done.
    pub fn apply_status(&self, of: ResourcePath<'_>, object: &Value) -> anyhow::Result<Value> {
        let name = object["metadata"]["name"].as_str().context("an object without a name")?;
        let path = format!("{}/{name}/status?fieldManager={MANAGER}&fieldValidation=Strict", of.path());
        let attempt = || format!("noting what is known of {name} of {of}");
        let answer = self.0.wait(self.0.apply(&path, object)).with_context(attempt)?;
        understood(&answer).with_context(attempt)
    }

    /// Changes a part of an object, or of its `below`, such as `/scale` (RFC 7386).
    ///
    /// # Errors
    /// [`Rejected`]; or it is unknown whether it was done.
    pub fn patch(&self, of: ResourcePath<'_>, name: &str, below: &str, part: &Value) -> anyhow::Result<Value> {
        let attempt = || format!("changing {name} of {of}");
        let path = format!("{}/{name}{below}?fieldManager={MANAGER}&fieldValidation=Strict", of.path());
        let answer = self.ask(Method::PATCH, &path, Some(part)).with_context(attempt)?;
        understood(&answer).with_context(attempt)
    }

    /// Deletes the object with this UID, or does nothing if it is missing. The object may stay until its resources have gone.
    ///
    /// # Errors
    /// [`Rejected`]; or it is unknown whether it was done.
    pub fn delete(&self, of: ResourcePath<'_>, name: &str, uid: &str) -> anyhow::Result<()> {
        let attempt = || format!("deleting {name} of {of}");
        let only = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}});
        let answer = self.ask(Method::DELETE, &format!("{}/{name}", of.path()), Some(&only)).with_context(attempt)?;
        if missing(&answer) {
            return Ok(());
        }
        understood(&answer).with_context(attempt).map(drop)
    }

    fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        self.0.wait(self.0.ask_api(method, path, body))
    }
}

fn attempt_of(of: ResourcePath<'_>, object: &Value) -> String {
    format!("applying {} of {of}", text(object, "/metadata/name"))
}

/// Whether the API server itself says that an object is missing. An answer to an unknown path names no object.
fn missing(answer: &Answer) -> bool {
    let Status { kind, reason, details, .. } = Status::read(&answer.body);
    answer.status == 404 && kind == "Status" && reason == "NotFound" && details.name.is_some()
}

/// The fields that other `kaas` commands have set, if an object is rejected for these alone. The API server names each field and its
/// manager: `conflict with "kaas" with subresource "scale" using kaas.local/v1alpha1 at …` (Kubernetes, "Server-Side Apply", conflicts).
fn own_conflicts(answer: &Answer) -> Option<Vec<String>> {
    let Status { reason, details, .. } = Status::read(&answer.body);
    let own = format!("conflict with \"{MANAGER}\"");
    let is_own = |cause: &Cause| {
        let whose = cause.message.strip_prefix(&own);
        cause.reason == "FieldManagerConflict" && whose.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    let causes = details.causes;
    let is_it = answer.status == 409 && reason == "Conflict" && !causes.is_empty() && causes.iter().all(is_own);
    is_it.then(|| causes.into_iter().map(|cause| cause.field).collect())
}

/// The whole answer: callers write it again.
fn understood(answer: &Answer) -> anyhow::Result<Value> {
    let Status { kind, message, .. } = Status::read(&answer.body);
    let words = || message.as_deref().map_or_else(|| answer.words(), clean);
    match answer.status {
        200..=299 => match serde_json::from_slice(&answer.body).unwrap_or_default() {
            object @ Value::Object(_) => Ok(object),
            _ => Err(anyhow!("the answer is no object: {}", answer.words())),
        },
        404 if kind != "Status" => Err(Rejected(
            "the API server does not know this kind: a control cluster brings its kinds within a minute or two of its last node's joining, \
             so wait, and try again; else its image is of before tenant clusters were objects, or it is no control cluster"
                .to_owned(),
        )
        .into()),
        status if kube_rest::is_rejected(status) => {
            Err(Rejected(format!("the API server refuses it: {}", words())).into())
        }
        status => Err(anyhow!("the API server says {status}: {}", words())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        Answer::of(status, body.as_bytes().to_vec())
    }

    #[test]
    fn only_a_status_says_an_object_is_missing() {
        let of_object =
            r#"{"kind": "Status", "reason": "NotFound", "details": {"name": "shop"}, "message": "not found"}"#;
        assert!(missing(&answer(404, of_object)));
        assert!(!missing(&answer(500, of_object)));
        // A kind that is not known, and a proxy in between.
        assert!(!missing(&answer(404, "404 page not found\n")));
        assert!(!missing(&answer(404, r#"{"kind": "Status", "reason": "NotFound", "details": {}}"#)));
        let told = format!("{:#}", understood(&answer(404, "404 page not found\n")).unwrap_err());
        assert!(told.contains("does not know this kind"), "{told}");
        let (waits, gives_up) = (told.find("within a minute or two"), told.find("before tenant clusters"));
        assert!(waits.is_some() && waits < gives_up, "a young cluster is the first that comes to mind: {told}");
    }

    #[test]
    fn only_fields_set_by_kaas_are_set_again() {
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
    fn rejected_and_unknown_requests_differ() {
        let refused = |status| {
            let body = r#"{"kind": "Status", "message": "a cluster\u001b[2J is deleted with its VMs"}"#;
            let error = understood(&answer(status, body)).unwrap_err();
            (error.is::<Rejected>(), error.to_string())
        };
        let words = "the API server refuses it: a cluster [2J is deleted with its VMs";
        assert_eq!(refused(422), (true, words.to_owned()));
        for unknown in [408, 500, 504] {
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
    }
}
