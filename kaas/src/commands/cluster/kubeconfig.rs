//! `kaas cluster kubeconfig`: writes the kubeconfig of a cluster's administrator to a file. Everyone who may write Secrets in the
//! namespace can replace the Secret, and kubectl follows a kubeconfig. The Secret is therefore checked against the cluster's
//! status, and the file is written from the checked parts alone.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use contract::deployer::Fingerprint;
use contract::kubeconfig::HANDED_OVER_HOURS;
use contract::ports;
use fleet::nodes::Credentials;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use zeroize::Zeroizing;

use super::arguments::Kubeconfig;
use super::not_found;
use crate::control::{ResourcePath, text};
use crate::kubeconfig_file;

/// The type of a cluster's kubeconfig Secret, and the label with the cluster's name, as Cluster API has them.
const SECRET: &str = "cluster.x-k8s.io/secret";
const OF_CLUSTER: &str = "/metadata/labels/cluster.x-k8s.io~1cluster-name";

/// The longest validity of a certificate: twice what the controller requests, because clocks may differ.
const LONGEST: Duration = Duration::from_secs(2 * 3600 * HANDED_OVER_HOURS as u64);
/// The former name of the context, from the time when the file was a copy of the Secret.
const BEFORE: &str = "deployer";

/// Writes the whole file, readable by its owner alone. After an error, the file is unchanged.
pub fn write(arguments: &Kubeconfig) -> anyhow::Result<ExitCode> {
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
    let forms = |of: &Credentials| vec![of.kubeconfig_named(name), of.kubeconfig(name), of.kubeconfig(BEFORE)];
    kubeconfig_file::place(&path, name, &credentials, &forms)?;
    let written = WrittenKubeconfig::of(&path, &credentials);
    output.result(&written, || format!("{written}; run the command again for a renewed one"))
}

/// The credentials in a Secret. Their server must be the cluster's endpoint or a control-plane node. Their CA must be the one that the
/// cluster has formed with, and must have signed the certificate.
fn judged(secret: &Value, cluster: &Value, now: SystemTime) -> anyhow::Result<Credentials> {
    let value = Zeroizing::new(BASE64_STANDARD.decode(text(secret, "/data/value"))?);
    let held = std::str::from_utf8(&value).context("it is no text")?;
    let credentials = Credentials::handed_on(held).context("it is no kubeconfig of a cluster")?;
    let renewed = "the controller writes it again within minutes";
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
