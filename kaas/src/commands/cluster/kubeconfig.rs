//! `kaas cluster kubeconfig`: writes the kubeconfig of a cluster's administrator to a file. Everyone who may write Secrets in the
//! namespace can replace the Secret, and kubectl follows a kubeconfig. The Secret is therefore checked against the cluster's
//! status, and the file is written from the checked parts alone.

use std::fmt;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use contract::deployer::{Fingerprint, HOURS};
use contract::ports;
use fleet::nodes::Credentials;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use zeroize::Zeroizing;

use super::arguments::Kubeconfig;
use super::not_found;
use crate::control::{ResourcePath, text};

/// The type of a cluster's kubeconfig Secret, and the label with the cluster's name, as Cluster API has them.
const SECRET: &str = "cluster.x-k8s.io/secret";
const OF_CLUSTER: &str = "/metadata/labels/cluster.x-k8s.io~1cluster-name";

/// The longest validity of a certificate: twice what a node issues, because its clock may be ahead.
const LONGEST: Duration = Duration::from_secs(2 * 3600 * HOURS as u64);
/// The former name of the context, from the time when the file was a copy of the Secret.
const BEFORE: &str = "deployer";
/// More bytes than this command writes.
const LARGEST: u64 = 64 << 10;

/// Writes the whole file, readable by its owner alone. After an error, the file is unchanged.
pub fn write(arguments: &Kubeconfig) -> anyhow::Result<()> {
    let Kubeconfig { name, to_file, output, within } = arguments;
    let path = to_file.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.kubeconfig")));
    let (control, namespace) = within.open()?;
    let place_of = ResourcePath::within("tenantclusters", &namespace);
    let cluster = control.get(place_of, name)?.ok_or_else(|| not_found(&namespace, name))?;
    let secret = format!("{name}-kubeconfig");
    let Some(object) = control.get(ResourcePath::within("secrets", &namespace), &secret)? else {
        bail!(
            "the cluster {name} has no kubeconfig yet: the controller writes the Secret {secret} once the cluster has formed"
        );
    };
    let (kind, of) = (text(&object, "/type"), text(&object, OF_CLUSTER));
    ensure!(
        kind == SECRET && of == name.as_str(),
        "the Secret {secret} is not the kubeconfig of the cluster {name}: its type is {kind:?}, and it is of the cluster {of:?}"
    );
    let credentials =
        judged(&object, &cluster, SystemTime::now()).with_context(|| format!("reading the Secret {secret}"))?;
    place(&path, name, &credentials)?;
    let written = WrittenKubeconfig::of(&path, &credentials);
    output.result(&written, || format!("{written}; run the command again for a renewed one"))
}

/// The credentials in a Secret. Their server must be the cluster's endpoint or a control-plane node. Their CA must be the one that the
/// cluster has formed with, and must have signed the certificate.
fn judged(secret: &Value, cluster: &Value, now: SystemTime) -> anyhow::Result<Credentials> {
    let value = Zeroizing::new(BASE64_STANDARD.decode(text(secret, "/data/value"))?);
    let held = std::str::from_utf8(&value).context("it is no text")?;
    let credentials = Credentials::handed_on(held).context("it is no kubeconfig of a cluster")?;
    let renewed = "the controller writes it again within minutes, or remove the Secret";
    let nodes = cluster["status"]["deployment"]["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut own = nodes.iter().map(|node| text(node, "/address")).chain([text(cluster, "/status/resolved/endpoint")]);
    match credentials.address() {
        Some(server) if server.port() == ports::API && own.any(|own| own.parse() == Ok(*server.ip())) => {}
        Some(server) => bail!(
            "it leads to {server}, which is neither the cluster's endpoint nor one of its control-plane nodes: another client has changed it; {renewed}"
        ),
        None => bail!("it leads to no address of the cluster: another client has changed it; {renewed}"),
    }
    let formed = text(cluster, "/status/deployment/caFingerprint").parse::<Fingerprint>().ok().context(
        "the cluster's status does not name its CA yet, which the check needs: try again in a minute. `kaas cluster get` shows what \
         the cluster waits for",
    )?;
    ensure!(
        credentials.authorities()? == [formed],
        "it trusts another CA than the one that the cluster has formed with: another client has changed it; {renewed}"
    );
    let ends = credentials.ends().context("its certificate has no end")?;
    let at = humantime::format_rfc3339_seconds(ends);
    ensure!(ends > now, "it expired at {at}, or the clock of this machine is wrong; {renewed}");
    ensure!(
        ends <= now + LONGEST,
        "it is valid until {at}, longer than the controller issues: another client has changed it, or the clock of this machine is wrong; \
         {renewed}"
    );
    Ok(credentials)
}

/// Writes the file. Replaces an existing one only if this command wrote it, and it is of the same cluster or has expired.
fn place(path: &Path, name: &str, credentials: &Credentials) -> anyhow::Result<()> {
    let content = credentials.kubeconfig_named(name);
    let Some(there) = earlier(path)? else { return fleet::files::write_new(path, content.as_bytes()) };
    ensure!(
        std::str::from_utf8(&there).is_ok_and(|there| is_replaceable(there, name, credentials, SystemTime::now())),
        "{} exists, and is no kubeconfig of the cluster {name} that this command has written: move it away, or name another file with \
         --to-file",
        path.display()
    );
    fleet::files::write(path, &content)
}

/// The content of an existing file, or the beginning of a longer one. `None` if it is missing. A link may lead to another user's file,
/// and a pipe may never end: both are refused.
fn earlier(path: &Path) -> anyhow::Result<Option<Zeroizing<Vec<u8>>>> {
    let attempt = || format!("reading the existing {}", path.display());
    let there = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        there => there.with_context(attempt)?,
    };
    ensure!(
        there.is_file(),
        "{} is no regular file but a link, a directory, a pipe or a device: name another file with --to-file",
        path.display()
    );
    let mut content = Zeroizing::new(Vec::new());
    File::open(path).and_then(|file| file.take(LARGEST).read_to_end(&mut content)).with_context(attempt)?;
    Ok(Some(content))
}

/// Whether a file can be replaced without a loss: this command wrote exactly this text, and it is of the same cluster or has expired.
fn is_replaceable(there: &str, name: &str, credentials: &Credentials, now: SystemTime) -> bool {
    let Ok(old) = Credentials::parse(there) else { return false };
    let earlier = [old.kubeconfig_named(name), old.kubeconfig(name), old.kubeconfig(BEFORE)];
    let is_written_here = earlier.iter().any(|written| written.as_str() == there);
    let is_same = match (old.authorities(), credentials.authorities()) {
        (Ok(old), Ok(new)) => old == new,
        _ => false,
    };
    is_written_here && (is_same || old.ends().is_some_and(|ends| ends <= now))
}

/// The output of the command, and of `kaas control kubeconfig`.
#[derive(Serialize, JsonSchema)]
pub struct WrittenKubeconfig {
    /// Path of the file.
    path: PathBuf,
    /// Address and port of the server.
    server: Option<String>,
    /// When the certificate expires.
    valid_until: Option<String>,
}

impl WrittenKubeconfig {
    pub fn of(path: &Path, credentials: &Credentials) -> Self {
        let server = credentials.address().map(|server| server.to_string());
        let valid_until = credentials.ends().map(|ends| humantime::format_rfc3339_seconds(ends).to_string());
        Self { path: path.to_owned(), server, valid_until }
    }
}

impl fmt::Display for WrittenKubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let leads = self.server.as_ref().map(|server| format!("leads to https://{server}")).unwrap_or_default();
        let ends = self.valid_until.as_ref();
        let ends = ends.map_or_else(|| "without a known end".to_owned(), |ends| format!("valid until {ends}"));
        write!(f, "{}: {leads}, {ends}", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use contract::kubeconfig::Kubeconfig as Content;
    use contract::secret::Secret;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    /// Credentials of a cluster with its own CA, valid until the end of 2029.
    fn credentials() -> Content {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::default();
        parameters.not_after = date_time_ymd(2030, 1, 1);
        let certificate = parameters.self_signed(&key).unwrap().pem();
        Content {
            server: "https://192.168.10.10:6443".to_owned(),
            server_name: None,
            authority: certificate.clone(),
            certificate,
            key: Secret::new(key.serialize_pem()),
        }
    }

    #[test]
    fn only_own_kubeconfigs_are_replaced() {
        let (own, other) = (credentials(), credentials());
        let new = Credentials::parse(&own.render("x")).unwrap();
        // date --date 2030-01-01Z +%s
        let ends = UNIX_EPOCH + Duration::from_secs(1_893_456_000);
        let (before, after) = (ends - Duration::from_secs(1), ends);
        let gives_way = |there: &str, now| is_replaceable(there, "shop", &new, now);
        assert!(gives_way(&own.render_named("shop"), before));
        assert!(gives_way(&own.render("shop"), before) && gives_way(&own.render("deployer"), before), "of before");
        assert!(!gives_way(&own.render("anna"), before), "somebody's own");
        assert!(!gives_way(&other.render_named("shop"), before), "another cluster's, and good");
        assert!(gives_way(&other.render_named("shop"), after), "of a cluster that had the name before");
        let more = own.render_named("shop").replacen("\"name\": \"shop\"", "\"name\": \"shop\", \"mine\": {}", 1);
        assert_ne!(more, *own.render_named("shop"));
        for there in [more.as_str(), "", "notes", "{}"] {
            assert!(!gives_way(there, after), "{there}");
        }
    }

    #[test]
    fn only_the_beginning_of_regular_files_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        assert!(earlier(&at("new")).unwrap().is_none());
        fs::write(at("large"), vec![b'x'; usize::try_from(LARGEST).unwrap() + 1]).unwrap();
        assert_eq!(earlier(&at("large")).unwrap().unwrap().len(), usize::try_from(LARGEST).unwrap());
        std::os::unix::fs::symlink(at("large"), at("link")).unwrap();
        std::os::unix::fs::symlink(at("nothing"), at("loose")).unwrap();
        fs::create_dir(at("directory")).unwrap();
        for other in [at("link"), at("loose"), at("directory"), PathBuf::from("/dev/null")] {
            let refused = earlier(&other).unwrap_err().to_string();
            assert!(refused.contains("is no regular file"), "{}: {refused}", other.display());
        }
    }
}
