//! `kaas cluster kubeconfig`: the kubeconfig of a cluster's administrator as a file. Whoever may write Secrets in the cluster's namespace can
//! put another one there, and kubectl does what it says: so it is judged by what the controller has noted of the cluster, and the file is
//! written anew from what was read of it.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use contract::deployer::Fingerprint;
use contract::ports;
use fleet::node::Credentials;
use serde_json::Value;
use zeroize::Zeroizing;

use super::arguments::Kubeconfig;
use super::there;
use crate::control::{Control, Place, text};
use crate::output::say;

/// The type of a cluster's kubeconfig Secret, and the label with the cluster's name, as Cluster API has them.
const SECRET: &str = "cluster.x-k8s.io/secret";
const OF_CLUSTER: &str = "/metadata/labels/cluster.x-k8s.io~1cluster-name";

/// The file is there whole and for its owner's eyes only, or as it was.
///
/// # Errors
/// There is no kubeconfig yet, or it is not the cluster's; or the file is something else than an earlier one of the same cluster.
pub fn write(arguments: &Kubeconfig) -> anyhow::Result<()> {
    let Kubeconfig { name, output, within } = arguments;
    let path = output.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.kubeconfig")));
    let control = Control::of(&within.at.kubeconfig)?;
    let cluster = there(&control, &within.namespace, name)?.cluster;
    let secret = format!("{name}-kubeconfig");
    let Some(object) = control.get(Place::within("secrets", &within.namespace), &secret)? else {
        bail!(
            "the cluster {name} has no kubeconfig yet: the Secret {secret} is made once its control nodes have formed"
        );
    };
    let (kind, of) = (text(&object, "/type"), text(&object, OF_CLUSTER));
    ensure!(
        kind == SECRET && of == name.as_str(),
        "the Secret {secret} is not the kubeconfig of the cluster {name}: its type is {kind:?}, and it is of the cluster {of:?}"
    );
    let credentials = judged(&object, &cluster).with_context(|| format!("reading the Secret {secret}"))?;
    place(&path, name, &credentials)?;
    say(&told(&path, &credentials));
    Ok(())
}

/// What a Secret holds, if it leads to the cluster: to its endpoint or to one of its control nodes, known by the authority that it has
/// formed with and by no other one.
fn judged(secret: &Value, cluster: &Value) -> anyhow::Result<Credentials> {
    let value = Zeroizing::new(BASE64_STANDARD.decode(text(secret, "/data/value"))?);
    let held = std::str::from_utf8(&value).context("it is no text")?;
    let credentials = Credentials::parse(held).context("it is no kubeconfig of a cluster")?;
    let renewed = "the controller writes it anew within minutes, or remove the Secret";
    let nodes = cluster["status"]["deployment"]["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut own = nodes.iter().map(|node| text(node, "/address")).chain([text(cluster, "/status/resolved/endpoint")]);
    match credentials.address() {
        Some(server) if server.port() == ports::API && own.any(|own| own.parse() == Ok(*server.ip())) => {}
        Some(server) => bail!(
            "it leads to {server}, which is neither the cluster's endpoint nor one of its control nodes: somebody has changed it; {renewed}"
        ),
        None => bail!("it leads to no address of the cluster's: somebody has changed it; {renewed}"),
    }
    let formed = text(cluster, "/status/deployment/authority").parse::<Fingerprint>().ok();
    let known = credentials.authorities()?;
    ensure!(
        formed.is_some_and(|formed| known == [formed]),
        "it trusts another authority than the one that the cluster has formed with: somebody has changed it; {renewed}"
    );
    Ok(credentials)
}

/// Writes the file. One that is there gives way if this command has written it, and it is of the same cluster or has ended.
fn place(path: &Path, name: &str, credentials: &Credentials) -> anyhow::Result<()> {
    let content = credentials.kubeconfig(name);
    let there = match fs::read_to_string(path) {
        Ok(there) => Zeroizing::new(there),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return fleet::files::write_new(path, content.as_bytes());
        }
        Err(error) => return Err(error).with_context(|| format!("reading {}, which is there", path.display())),
    };
    ensure!(
        gives_way(&there, name, credentials, SystemTime::now()),
        "{} exists, and is no kubeconfig of the cluster {name} that this command has written: move it away, or name another file with \
         --output",
        path.display()
    );
    fleet::files::write(path, &content)
}

/// Whether nothing is lost with a file: it is, letter by letter, what this command writes, of the same cluster or of one whose name this one
/// has now, and good for nothing any more.
fn gives_way(there: &str, name: &str, credentials: &Credentials, now: SystemTime) -> bool {
    let Ok(old) = Credentials::parse(there) else { return false };
    let is_written_here = old.kubeconfig(name).as_str() == there;
    let is_same = match (old.authorities(), credentials.authorities()) {
        (Ok(old), Ok(new)) => old == new,
        _ => false,
    };
    is_written_here && (is_same || old.ends().is_some_and(|ends| ends <= now))
}

/// Where it leads and for how long, for people.
fn told(path: &Path, credentials: &Credentials) -> String {
    let leads = credentials.address().map(|server| format!("leads to https://{server}")).unwrap_or_default();
    let ends = match credentials.ends() {
        Some(ends) => format!("good until {}", humantime::format_rfc3339_seconds(ends)),
        None => "good until nobody knows when".to_owned(),
    };
    format!(
        "{}: {leads}, {ends}; given again, this command takes its place with the one that the controller has renewed by then",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use contract::kubeconfig::Kubeconfig as Content;
    use contract::secret::Secret;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    /// Credentials of a cluster with an authority of its own, which end with 2029.
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
    fn a_file_gives_way_only_if_nothing_is_lost_with_it() {
        let (own, other) = (credentials(), credentials());
        let new = Credentials::parse(&own.render("x")).unwrap();
        // date --date 2030-01-01Z +%s
        let ends = UNIX_EPOCH + Duration::from_secs(1_893_456_000);
        let (before, after) = (ends - Duration::from_secs(1), ends);
        let gives_way = |there: &str, now| gives_way(there, "shop", &new, now);
        assert!(gives_way(&own.render("shop"), before));
        assert!(!gives_way(&own.render("anna"), before), "somebody's own");
        assert!(!gives_way(&other.render("shop"), before), "another cluster's, and good");
        assert!(gives_way(&other.render("shop"), after), "of a cluster that had the name before");
        let more = own.render("shop").replacen("\"name\": \"shop\"", "\"name\": \"shop\", \"mine\": {}", 1);
        for there in [more.as_str(), "", "notes", "{}"] {
            assert!(!gives_way(there, after), "{there}");
        }
    }
}
