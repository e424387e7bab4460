//! Kubeconfigs (`v1` of `Config`, k8s.io/client-go): the address of a cluster's API, its CA, and the client's credentials. As
//! kubectl does, reading uses the current context, from YAML or JSON. Writing makes JSON, which YAML includes.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use zeroize::Zeroizing;

use crate::secret::Secret;

/// How long the kubeconfig of a tenant cluster that the controller hands over is valid, in hours.
pub const HANDED_OVER_HOURS: u32 = 7 * 24;

/// The name of the cluster in written kubeconfigs, as in kubeadm's.
const CLUSTER: &str = "kubernetes";

/// All fields that the current entries of an untrusted kubeconfig may have. They are read, or have no effect on the server, the
/// credentials and the programs of a client.
const OF_CLUSTER: [&str; 5] =
    ["certificate-authority-data", "server", "tls-server-name", "extensions", "disable-compression"];
const OF_USER: [&str; 3] = ["client-certificate-data", "client-key-data", "extensions"];

/// The address, CA and credentials with which one client uses one API server. All certificates and keys are in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubeconfig {
    /// `https://<address>:<port>`.
    pub server: String,
    /// The name that the server's certificate must have, if not the one in `server`.
    pub server_name: Option<String>,
    /// The certificate of the cluster's CA.
    pub authority: String,
    /// The client's certificate.
    pub certificate: String,
    /// The key of the certificate.
    pub key: Secret,
}

/// A context of one kubeconfig or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectedContext {
    /// The address, CA and credentials of the context.
    pub kubeconfig: Kubeconfig,
    /// The name of the context. `None` if the kubeconfig has no current context.
    pub name: Option<String>,
    /// The namespace of the context. `None` if the context has none.
    pub namespace: Option<String>,
}

/// Why a text cannot be used. It contains nothing of the text, which has a key in it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is neither YAML nor JSON, or something else than a kubeconfig.
    #[error("it is no kubeconfig: line {0} is not understood")]
    Malformed(u64),
    /// A part is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// There are several entries and no current context.
    #[error("it has several entries in {0} and no current context")]
    Ambiguous(&'static str),
    /// Certificates or keys are in separate files.
    #[error("{0} is not in it: a kubeconfig with its certificates inside is needed")]
    ExternalFile(&'static str),
    /// The server's address is not unique in the text.
    #[error("its server cannot be replaced: write the address once, without escapes")]
    AmbiguousServer,
    /// The current entry has an unknown field. It may make a client run a program, or use another server.
    #[error(
        "its current entry in {0} has a field that is not understood, such as exec, token or proxy-url, in addition to \
         server, CA, certificate and key"
    )]
    UnknownField(&'static str),
    /// The client's certificate cannot be parsed, or another CA has signed it.
    #[error("its certificate was not signed by its CA")]
    WrongIssuer,
    /// A field is not base64 of PEM.
    #[error("{0} is not base64 of a text")]
    Unreadable(&'static str),
}

impl Kubeconfig {
    /// Reads the current context of a kubeconfig. Without contexts, reads its only cluster and its only user. All other entries
    /// are ignored.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::of(&Document::parse(text)?)
    }

    fn of(document: &Document) -> Result<Self, Error> {
        let (cluster, user) = (document.cluster()?, document.user()?);
        Ok(Self {
            server: cluster.server()?.to_owned(),
            server_name: cluster.server_name.clone(),
            authority: decoded(cluster.authority.as_deref(), "certificate-authority-data")?,
            certificate: decoded(user.certificate.as_deref(), "client-certificate-data")?,
            key: Secret::new(decoded(user.key.as_ref().map(Secret::expose), "client-key-data")?),
        })
    }

    /// The same for a kubeconfig that others may have written and that is passed on: its reader's client follows it. Its
    /// current entries have no unknown fields, and its CA has signed its certificate. The caller checks when the certificate
    /// expires.
    pub fn parse_untrusted(text: &str) -> Result<Self, Error> {
        let read = Self::parse(text)?;
        let fields = DocumentOf::<Fields, Fields>::parse(text)?;
        let goes_beyond = |fields: &Fields, known: &[&str]| {
            fields.iter().any(|(field, holds)| holds.0 && !known.contains(&field.as_str()))
        };
        if goes_beyond(fields.cluster()?, &OF_CLUSTER) {
            return Err(Error::UnknownField("clusters"));
        }
        if goes_beyond(fields.user()?, &OF_USER) {
            return Err(Error::UnknownField("users"));
        }
        if read.is_signed() { Ok(read) } else { Err(Error::WrongIssuer) }
    }

    /// Whether the CA has signed the client's certificate.
    fn is_signed(&self) -> bool {
        let pem = |text: &str| x509_parser::pem::parse_x509_pem(text.as_bytes()).ok().map(|(_, pem)| pem);
        let Some((certificate, authority)) = pem(&self.certificate).zip(pem(&self.authority)) else { return false };
        let (Ok(certificate), Ok(authority)) = (certificate.parse_x509(), authority.parse_x509()) else { return false };
        certificate.verify_signature(Some(authority.public_key())).is_ok()
    }

    /// When the client's certificate expires. `None` if it cannot be parsed.
    pub fn valid_until(&self) -> Option<SystemTime> {
        let (_, pem) = x509_parser::pem::parse_x509_pem(self.certificate.as_bytes()).ok()?;
        let ends = pem.parse_x509().ok()?.validity().not_after.timestamp();
        Some(UNIX_EPOCH + Duration::from_secs(u64::try_from(ends).ok()?))
    }

    /// The user in the client's certificate. `None` if it cannot be parsed or has no name.
    pub fn user(&self) -> Option<String> {
        let (_, pem) = x509_parser::pem::parse_x509_pem(self.certificate.as_bytes()).ok()?;
        let certificate = pem.parse_x509().ok()?;
        let name = certificate.subject().iter_common_name().next()?.as_str().ok()?.to_owned();
        Some(name)
    }

    /// The file's content. `user` is the name of the user's entry and of the context. The API server uses the certificate's
    /// name instead.
    pub fn render(&self, user: &str) -> Zeroizing<String> {
        self.rendered(CLUSTER, user)
    }

    /// The same with one name, the cluster's, for all entries. In `$KUBECONFIG` with several files, clients use the first of
    /// the entries with one name. So each cluster needs another name.
    pub fn render_named(&self, name: &str) -> Zeroizing<String> {
        self.rendered(name, name)
    }

    fn rendered(&self, cluster: &str, user: &str) -> Zeroizing<String> {
        let encode = |text: &str| BASE64_STANDARD.encode(text);
        let document = Document {
            api_version: Some("v1".to_owned()),
            clusters: Some(vec![NamedCluster {
                cluster: Cluster {
                    authority: Some(encode(&self.authority)),
                    server: Some(self.server.clone()),
                    server_name: self.server_name.clone(),
                },
                name: cluster.to_owned(),
            }]),
            contexts: Some(vec![NamedContext {
                context: Context { cluster: cluster.to_owned(), namespace: None, user: user.to_owned() },
                name: user.to_owned(),
            }]),
            current_context: Some(user.to_owned()),
            kind: Some("Config".to_owned()),
            users: Some(vec![NamedUser {
                name: user.to_owned(),
                user: User {
                    certificate: Some(encode(&self.certificate)),
                    key: Some(Secret::new(encode(self.key.expose()))),
                },
            }]),
        };
        let text = serde_json::to_string_pretty(&document).expect("texts and lists are JSON");
        Zeroizing::new(text + "\n")
    }
}

impl SelectedContext {
    /// Reads several kubeconfigs as kubectl does: the first entry with a name is used, and the first current context. `context`
    /// names another context than that. Without contexts, reads the only cluster and the only user.
    pub fn merged(texts: &[&str], context: Option<&str>) -> Result<Self, Error> {
        let document = Document::merged(texts, context)?;
        let namespace = document.context()?.and_then(|context| context.namespace.clone());
        Ok(Self {
            kubeconfig: Kubeconfig::of(&document)?,
            name: document.current_context.clone().filter(|name| !name.is_empty()),
            namespace: namespace.filter(|namespace| !namespace.is_empty()),
        })
    }
}

/// The certificate of the cluster's CA, in PEM, from a kubeconfig that may have no user: the content of the ConfigMap
/// `cluster-info`.
pub fn authority(text: &str) -> Result<String, Error> {
    decoded(Document::parse(text)?.cluster()?.authority.as_deref(), "certificate-authority-data")
}

/// The names of the contexts in several kubeconfigs, in their order.
pub fn contexts(texts: &[&str]) -> Result<Vec<String>, Error> {
    let document = Document::merged(texts, None)?;
    Ok(document.contexts.into_iter().flatten().map(|named| named.name).collect())
}

/// A kubeconfig without a user: server and CA only. The current context is left out, because there is no user.
pub fn without_user(server: &str, authority: &str) -> String {
    let cluster = serde_json::json!({
        "certificate-authority-data": BASE64_STANDARD.encode(authority),
        "server": server,
    });
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"cluster": cluster, "name": ""}],
        "contexts": null,
        "current-context": "",
        "users": null,
    })
    .to_string()
}

fn decoded(value: Option<&str>, name: &'static str) -> Result<String, Error> {
    let encoded = value.ok_or(Error::ExternalFile(name))?;
    let bytes = BASE64_STANDARD.decode(encoded).map_err(|_| Error::Unreadable(name))?;
    String::from_utf8(bytes).map_err(|_| Error::Unreadable(name))
}

/// The text of a kubeconfig with another server in its current context, and no other change. `None` if it has this `server`
/// already.
pub fn with_server(text: &str, server: &str) -> Result<Option<Zeroizing<String>>, Error> {
    let document = Document::parse(text)?;
    let named = document.cluster()?.server()?;
    if named == server {
        return Ok(None);
    }
    let changed = Zeroizing::new(text.replacen(named, server, 1));
    // The same characters may be in a comment, or in another cluster's address, first.
    match Document::parse(&changed)?.cluster()?.server()? == server {
        true => Ok(Some(changed)),
        false => Err(Error::AmbiguousServer),
    }
}

/// The parts of a kubeconfig that are read and written. kubectl writes `null` for an empty list.
type Document = DocumentOf<Cluster, User>;

/// The fields of an entry by their names. Their values are ignored.
type Fields = BTreeMap<String, HasValue>;

/// Whether a field has a value that affects a client: not null, false or empty.
struct HasValue(bool);

impl<'de> Deserialize<'de> for HasValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(HasValueVisitor).map(Self)
    }
}

struct HasValueVisitor;

impl<'de> Visitor<'de> for HasValueVisitor {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_bool<E>(self, value: bool) -> Result<bool, E> {
        Ok(value)
    }

    fn visit_i64<E>(self, _: i64) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_u64<E>(self, _: u64) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_f64<E>(self, _: f64) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_str<E>(self, text: &str) -> Result<bool, E> {
        Ok(!text.is_empty())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<bool, A::Error> {
        let mut holds = false;
        while list.next_element::<IgnoredAny>()?.is_some() {
            holds = true;
        }
        Ok(holds)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let mut holds = false;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            holds = true;
        }
        Ok(holds)
    }
}

#[derive(Serialize, Deserialize)]
struct DocumentOf<C, U> {
    #[serde(rename = "apiVersion")]
    api_version: Option<String>,
    clusters: Option<Vec<NamedCluster<C>>>,
    contexts: Option<Vec<NamedContext>>,
    #[serde(rename = "current-context")]
    current_context: Option<String>,
    kind: Option<String>,
    users: Option<Vec<NamedUser<U>>>,
}

#[derive(Serialize, Deserialize)]
struct NamedCluster<C> {
    cluster: C,
    #[serde(default)]
    name: String,
}

#[derive(Serialize, Deserialize)]
struct Cluster {
    #[serde(rename = "certificate-authority-data")]
    authority: Option<String>,
    server: Option<String>,
    #[serde(rename = "tls-server-name", skip_serializing_if = "Option::is_none")]
    server_name: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct NamedContext {
    context: Context,
    name: String,
}

#[derive(Serialize, Deserialize)]
struct Context {
    cluster: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    user: String,
}

#[derive(Serialize, Deserialize)]
struct NamedUser<U> {
    #[serde(default)]
    name: String,
    user: U,
}

#[derive(Serialize, Deserialize)]
struct User {
    #[serde(rename = "client-certificate-data")]
    certificate: Option<String>,
    #[serde(rename = "client-key-data")]
    key: Option<Secret>,
}

impl<C: DeserializeOwned, U: DeserializeOwned> DocumentOf<C, U> {
    fn parse(text: &str) -> Result<Self, Error> {
        // The parser's own messages quote the text.
        let options = serde_saphyr::options! { with_snippet: false };
        serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| Error::Malformed(error.location().map_or(1, |location| location.line())))
    }

    /// Merges kubeconfigs. `context` names another context than the current one.
    fn merged(texts: &[&str], context: Option<&str>) -> Result<Self, Error> {
        let mut documents = texts.iter().map(|text| Self::parse(text));
        let mut document = documents.next().ok_or(Error::Missing("clusters"))??;
        for other in documents {
            document.append(other?);
        }
        if let Some(context) = context {
            document.current_context = Some(context.to_owned());
        }
        Ok(document)
    }

    /// Adds the entries of a further kubeconfig.
    fn append(&mut self, other: Self) {
        self.clusters.get_or_insert_default().extend(other.clusters.into_iter().flatten());
        self.contexts.get_or_insert_default().extend(other.contexts.into_iter().flatten());
        self.users.get_or_insert_default().extend(other.users.into_iter().flatten());
        if self.current_context.as_deref().unwrap_or_default().is_empty() {
            self.current_context = other.current_context;
        }
    }

    fn context(&self) -> Result<Option<&Context>, Error> {
        let Some(current) = self.current_context.as_deref().filter(|name| !name.is_empty()) else { return Ok(None) };
        let found = self.contexts.iter().flatten().find(|context| context.name == current);
        found.map(|named| Some(&named.context)).ok_or(Error::Missing("the current context"))
    }

    fn cluster(&self) -> Result<&C, Error> {
        let name = self.context()?.map(|context| context.cluster.as_str());
        let clusters = self.clusters.as_deref().unwrap_or_default();
        meant(clusters, "clusters", name, |named| &named.name).map(|named| &named.cluster)
    }

    fn user(&self) -> Result<&U, Error> {
        let name = self.context()?.map(|context| context.user.as_str());
        let users = self.users.as_deref().unwrap_or_default();
        meant(users, "users", name, |named| &named.name).map(|named| &named.user)
    }
}

impl Cluster {
    fn server(&self) -> Result<&str, Error> {
        self.server.as_deref().filter(|server| !server.is_empty()).ok_or(Error::Missing("server"))
    }
}

/// The entry with this name, or the only one if no name is given.
fn meant<'l, T>(
    list: &'l [T],
    what: &'static str,
    name: Option<&str>,
    name_of: impl Fn(&T) -> &str,
) -> Result<&'l T, Error> {
    match (name, list) {
        (Some(name), _) => list.iter().find(|one| name_of(one) == name).ok_or(Error::Missing(what)),
        (None, [only]) => Ok(only),
        (None, []) => Err(Error::Missing(what)),
        (None, _) => Err(Error::Ambiguous(what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As kubeadm writes it.
    const YAML: &str = "apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: QQ==
    server: https://10.0.0.10:6443
  name: kubernetes
contexts:
- context:
    cluster: kubernetes
    user: kubernetes-admin
  name: kubernetes-admin@kubernetes
current-context: kubernetes-admin@kubernetes
kind: Config
preferences: {}
users:
- name: kubernetes-admin
  user:
    client-certificate-data: Qg==
    client-key-data: Qw==
";

    fn read() -> Kubeconfig {
        Kubeconfig {
            server: "https://10.0.0.10:6443".into(),
            server_name: None,
            authority: "A".into(),
            certificate: "B".into(),
            key: Secret::new("C".into()),
        }
    }

    #[test]
    fn kubeconfig_without_a_user_names_the_ca() {
        let text = without_user("https://10.0.0.10:6443", "A");
        assert_eq!(authority(&text), Ok("A".to_owned()));
        assert_eq!(authority(YAML), Ok("A".to_owned()));
        assert_eq!(Kubeconfig::parse(&text), Err(Error::Missing("users")));
    }

    fn mutated(from: &str, to: &str) -> Result<Kubeconfig, Error> {
        assert_eq!(YAML.matches(from).count(), 1, "{from}");
        Kubeconfig::parse(&YAML.replace(from, to))
    }

    #[test]
    fn yaml_and_json_are_read() {
        assert_eq!(Kubeconfig::parse(YAML), Ok(read()));
        let named = Kubeconfig { server_name: Some("10.0.0.10".into()), ..read() };
        for written in [read(), named] {
            assert_eq!(Kubeconfig::parse(&written.render("anna")), Ok(written));
        }
        let compact = serde_json::from_str::<serde_json::Value>(&read().render("anna")).unwrap().to_string();
        assert_eq!(Kubeconfig::parse(&compact), Ok(read()));
        assert_eq!(Kubeconfig::parse(&compact.replace(',', ",\n\t")), Ok(read()), "indented with tabs");
    }

    #[test]
    fn its_end_is_that_of_the_clients_certificate() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::default();
        parameters.not_after = rcgen::date_time_ymd(2030, 1, 1);
        let certificate = parameters.self_signed(&key).unwrap().pem();
        // date --date 2030-01-01Z +%s
        let ends = UNIX_EPOCH + Duration::from_secs(1_893_456_000);
        assert_eq!(Kubeconfig { certificate, ..read() }.valid_until(), Some(ends));
        assert_eq!(read().valid_until(), None);
    }

    #[test]
    fn written_form_is_unchanged() {
        let expected = r#"{
  "apiVersion": "v1",
  "clusters": [
    {
      "cluster": {
        "certificate-authority-data": "QQ==",
        "server": "https://10.0.0.10:6443"
      },
      "name": "kubernetes"
    }
  ],
  "contexts": [
    {
      "context": {
        "cluster": "kubernetes",
        "user": "anna"
      },
      "name": "anna"
    }
  ],
  "current-context": "anna",
  "kind": "Config",
  "users": [
    {
      "name": "anna",
      "user": {
        "client-certificate-data": "Qg==",
        "client-key-data": "Qw=="
      }
    }
  ]
}
"#;
        assert_eq!(*read().render("anna"), expected);
        let named = expected.replace("\"anna\"", "\"shop\"").replace("\"kubernetes\"", "\"shop\"");
        assert_eq!(*read().render_named("shop"), named);
    }

    #[test]
    fn the_current_context_is_meant() {
        let other = "- cluster:\n    server: https://other\n  name: other\n- cluster:\n    certificate-authority-data";
        assert_eq!(mutated("- cluster:\n    certificate-authority-data", other), Ok(read()));
        let current = "current-context: kubernetes-admin@kubernetes\n";
        assert_eq!(mutated(current, ""), Ok(read()), "the only cluster and user");
        assert_eq!(mutated(current, "current-context: gone\n"), Err(Error::Missing("the current context")));
        let two = YAML.replace(current, "").replace("- cluster:\n    certificate-authority-data", other);
        assert_eq!(Kubeconfig::parse(&two), Err(Error::Ambiguous("clusters")));
        assert_eq!(mutated("    cluster: kubernetes\n", "    cluster: gone\n"), Err(Error::Missing("clusters")));
        assert_eq!(mutated("user: kubernetes-admin\n", "user: gone\n"), Err(Error::Missing("users")));
    }

    #[test]
    fn first_entry_and_first_current_context_are_used() {
        let other = YAML.replace("10.0.0.10", "10.0.0.20");
        let renamed = other.replace("kubernetes", "other");
        let selected = SelectedContext::merged;
        let server = |texts: &[&str], context| selected(texts, context).map(|read| read.kubeconfig.server);
        let [first, second] = ["https://10.0.0.10:6443", "https://10.0.0.20:6443"].map(|server| Ok(server.to_owned()));
        assert_eq!(server(&[YAML, &other], None), first);
        assert_eq!(server(&[YAML, &renamed], None), first);
        assert_eq!(server(&[YAML, &renamed], Some("other-admin@other")), second);
        let names = ["kubernetes-admin@kubernetes", "other-admin@other"].map(str::to_owned).to_vec();
        assert_eq!(contexts(&[YAML, &renamed]), Ok(names));
        let blue = renamed.replace("    user: other-admin\n", "    user: other-admin\n    namespace: blue\n");
        let namespace = |texts: &[&str], context| selected(texts, context).map(|read| (read.name, read.namespace));
        assert_eq!(namespace(&[YAML, &blue], None), Ok((Some("kubernetes-admin@kubernetes".to_owned()), None)));
        let expected = Ok((Some("other-admin@other".to_owned()), Some("blue".to_owned())));
        assert_eq!(namespace(&[YAML, &blue], Some("other-admin@other")), expected);
        assert_eq!(namespace(&[&blue, YAML], None), expected);
        let without = YAML.replace("current-context: kubernetes-admin@kubernetes\n", "");
        assert_eq!(namespace(&[&without], None), Ok((None, None)));
        assert_eq!(server(&[&without, &renamed], None), second);
        assert_eq!(server(&[YAML], Some("gone")), Err(Error::Missing("the current context")));
        assert_eq!(server(&[], None), Err(Error::Missing("clusters")));
    }

    #[test]
    fn unknown_fields_of_untrusted_kubeconfigs_are_refused() {
        let (key, server) = ("    client-key-data: Qw==\n", "    server: https://10.0.0.10:6443\n");
        let handed_on = |from: &str, to: &str| {
            // Reading a trusted kubeconfig ignores these fields.
            assert_eq!(mutated(from, to), Ok(read()), "{to}");
            Kubeconfig::parse_untrusted(&YAML.replace(from, to)).unwrap_err()
        };
        for more in
            ["exec: {command: evil}", "token: t", "tokenFile: /t", "as: root", "Exec: [x]", "auth-provider: {name: x}"]
        {
            assert_eq!(handed_on(key, &format!("{key}    {more}\n")), Error::UnknownField("users"), "{more}");
        }
        for more in ["proxy-url: http://10.9.9.9", "insecure-skip-tls-verify: true", "certificate-authority: /ca"] {
            assert_eq!(handed_on(server, &format!("{server}    {more}\n")), Error::UnknownField("clusters"), "{more}");
        }
        // These fields are accepted. Only the certificate, which cannot be parsed, is refused.
        for nothing in ["exec: null", "exec: {}", "token: \"\"", "tokenFile: ~", "as-groups: []"] {
            assert_eq!(handed_on(key, &format!("{key}    {nothing}\n")), Error::WrongIssuer, "{nothing}");
        }
        let known = "extensions: [{name: x, extension: {a: 1}}]";
        for nothing in ["insecure-skip-tls-verify: false", "proxy-url: \"\"", known] {
            assert_eq!(handed_on(server, &format!("{server}    {nothing}\n")), Error::WrongIssuer, "{nothing}");
        }
        let other = "users:\n- name: other\n  user:\n    exec: {command: theirs}\n";
        assert_eq!(handed_on("users:\n", other), Error::WrongIssuer, "another cluster's user is refused");
    }

    #[test]
    fn certificate_of_another_ca_is_refused() {
        let authority = || {
            let (key, mut parameters) = (rcgen::KeyPair::generate().unwrap(), rcgen::CertificateParams::default());
            parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            let pem = parameters.self_signed(&key).unwrap().pem();
            (pem, rcgen::Issuer::new(parameters, key))
        };
        let ((own, issuer), (other, foreign)) = (authority(), authority());
        let key = rcgen::KeyPair::generate().unwrap();
        let signed = rcgen::CertificateParams::default().signed_by(&key, &issuer).unwrap().pem();
        let not_signed = rcgen::CertificateParams::default().signed_by(&key, &foreign).unwrap().pem();
        let given = Kubeconfig { authority: own, certificate: signed, ..read() };
        assert_eq!(Kubeconfig::parse_untrusted(&given.render("anna")), Ok(given.clone()));
        for foreign in [
            Kubeconfig { certificate: not_signed, ..given.clone() },
            Kubeconfig { authority: other, ..given.clone() },
            Kubeconfig { authority: "none".to_owned(), ..given.clone() },
        ] {
            assert_eq!(Kubeconfig::parse_untrusted(&foreign.render("anna")), Err(Error::WrongIssuer));
        }
    }

    #[test]
    fn errors_do_not_contain_the_key() {
        assert_eq!(mutated("    server: https://10.0.0.10:6443\n", ""), Err(Error::Missing("server")));
        let reference = "client-key: /var/lib/kubelet/pki/kubelet-client-current.pem";
        assert_eq!(mutated("client-key-data: Qw==", reference), Err(Error::ExternalFile("client-key-data")));
        assert_eq!(mutated("Qg==", "'*'"), Err(Error::Unreadable("client-certificate-data")));
        assert_eq!(mutated("QQ==", "/w=="), Err(Error::Unreadable("certificate-authority-data")), "no text");
        let damaged = mutated("  user:\n", "  user: [\n").unwrap_err();
        assert!(matches!(damaged, Error::Malformed(_)), "{damaged:?}");
        for nothing in ["", "clusters: null\n", "kind: Config\n", "{}"] {
            assert!(Kubeconfig::parse(nothing).is_err(), "{nothing}");
        }
        assert!(format!("{:?}", read()).contains("Secret(…)"));
    }

    #[test]
    fn another_server_is_named_and_nothing_else_changes() {
        let (one, other) = ("https://10.0.0.10:6443", "https://10.0.0.11:6443");
        for text in [YAML, &read().render("anna")] {
            assert_eq!(*with_server(text, other).unwrap().unwrap(), text.replace(one, other));
            assert_eq!(with_server(text, one), Ok(None));
        }
        let without = YAML.replace("    client-key-data: Qw==\n", "");
        assert!(with_server(&without, other).unwrap().is_some(), "the kubelet's key is in a file of its own");
        let commented = format!("# once {one}\n{YAML}");
        assert_eq!(with_server(&commented, other), Err(Error::AmbiguousServer));
        assert_eq!(with_server("users: []\n", other), Err(Error::Missing("clusters")));
    }
}
