//! `kaas-agent certificate` and `kaas-agent kubeconfig`.

use std::fs;
use std::io::{Read as _, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, bail};
use serde_json::json;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::api::{self, ApiCertificate};
use super::inventory;
use super::issue::{self, Purpose};
use super::{renew, revocation_list};
use crate::cluster::REQUEST;
use crate::cluster::etcd::client::EtcdClient;
use crate::cluster::kubernetes::PKI;
use crate::cluster::records::Records;
use crate::host::files;
use crate::host::services;
use crate::intake::config::{ControlPlane, Output};

/// The largest certificate or key file that is read, in bytes.
const LARGEST: u64 = 256 << 10;

/// The arguments of `kaas-agent certificate`.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List this node's certificates and when they end
    List {
        /// The form of the answer
        #[arg(long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
    /// Install your own certificate for the Kubernetes API, on this node
    ///
    /// Clients that connect by one of its DNS names get it. Clients that connect by address, as all clients inside the
    /// cluster do, still get the cluster's. Install it on each control-plane node.
    Install {
        /// The server's certificate and those between it and its CA, in PEM
        #[arg(long, value_name = "FILE")]
        certificate: PathBuf,
        /// Its private key in PEM, without a passphrase
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
    },
    /// Remove your own certificate for the Kubernetes API from this node
    Remove,
    /// Renew all certificates of this control-plane node now
    ///
    /// The virtual IP moves to another node, and control plane, kubelet and pod network of this node start again. The command ends
    /// when they run with the new certificates. `kaas control certificate renew` renews one node of a cluster after the other.
    ///
    /// For example: `kaas-agent certificate renew`
    Renew {
        /// The form of the answer: JSON lists the new certificates
        #[arg(long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
    /// Refuse certificates at the endpoint (port 9441) of all control-plane nodes
    ///
    /// All certificates of a revoked user are refused, later ones too: issue the next one to another name. The Kubernetes API accepts
    /// a revoked certificate until it expires. /data/kaas/issued.log on the node that issued it has serial number and user.
    ///
    /// For example: `kaas-agent certificate revoke anna`
    Revoke {
        /// A certificate's serial number in hexadecimal digits, or a user of `kaas-agent kubeconfig`
        #[arg(value_name = "SERIAL|USER")]
        who: String,
        /// The form of the answer
        #[arg(long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
}

const PACE: Duration = Duration::from_millis(500);

/// How long the agent may take for a renewal, times the timeout factor.
const RENEWING: Duration = Duration::from_secs(600);

pub fn command(root: &Path, options: &Options, stdout: &mut dyn Write) -> anyhow::Result<()> {
    match &options.action {
        Action::List { output } => list(root, *output, stdout),
        Action::Install { certificate, key } => {
            let config = configuration(root)?;
            let (chain, key) = (read(certificate)?, read(key)?);
            let own = ApiCertificate::examine(&chain, &key, &config, Some(SystemTime::now()))
                .with_context(|| format!("{} cannot be installed", certificate.display()))?;
            if !own.install(root).context("installing the certificate")? {
                return Ok(writeln!(stdout, "This certificate is installed already.")?);
            }
            services::restart_agent().context(services::NOT_TAKEN_UP)?;
            writeln!(stdout, "Installed for {}, issued by {}.", own.names.join(", "), own.issuer)?;
            writeln!(
                stdout,
                "The API on this node shows it in a minute; `kaas-agent certificate list` says when it ends."
            )?;
            let peers: Vec<&str> = config.peers().map(|peer| peer.name.as_str()).collect();
            if !peers.is_empty() {
                writeln!(stdout, "Install it on {} as well.", peers.join(" and "))?;
            }
            Ok(())
        }
        Action::Remove => {
            if !api::remove(root).context("removing the certificate")? {
                return Ok(writeln!(stdout, "No certificate of your own is installed.")?);
            }
            services::restart_agent().context(services::NOT_TAKEN_UP)?;
            Ok(writeln!(stdout, "Removed. The API on this node shows the cluster's certificate to all clients.")?)
        }
        Action::Renew { output } => renew(root, *output, stdout),
        Action::Revoke { who, output } => revoke(root, who, *output, stdout),
    }
}

fn renew(root: &Path, output: Output, stdout: &mut dyn Write) -> anyhow::Result<()> {
    let (records, config) = (Records::new(root), configuration(root)?);
    if !records.progress()?.formed {
        bail!("this node has not joined its cluster yet: see `kaas-agent status`");
    }
    let (id, limit) = (Uuid::new_v4(), config.timeout(RENEWING));
    let until = Instant::now() + limit;
    while !renew::ask(&records, id)? {
        if Instant::now() > until {
            bail!(
                "the control plane of this node does not run with new certificates after {} s: the agent continues, see \
                 `kaas-agent status`",
                limit.as_secs()
            );
        }
        thread::sleep(PACE);
    }
    match output {
        Output::Json => list(root, output, stdout),
        Output::Text => {
            Ok(writeln!(stdout, "Renewed. The control plane of this node runs with the new certificates.")?)
        }
    }
}

fn revoke(root: &Path, who: &str, output: Output, stdout: &mut dyn Write) -> anyhow::Result<()> {
    let (config, name) = (configuration(root)?, revocation_list::name(who)?);
    revocation_list::revoke(root, &name)?;
    let shared = EtcdClient::new(config.control_node()?, &files::below(root, PKI), config.timeout(REQUEST));
    shared.and_then(|etcd| revocation_list::share(root, &etcd)).context(
        "this node refuses it now; the other nodes do not know it yet: the agent tries again every 10 seconds",
    )?;
    match output {
        Output::Json => writeln!(stdout, "{:#}", json!({"revoked": name}))?,
        Output::Text => writeln!(
            stdout,
            "Revoked {name}. This node's endpoint refuses it now, those of the other control-plane nodes within 10 seconds. The \
             Kubernetes API accepts it until it expires."
        )?,
    }
    Ok(())
}

fn list(root: &Path, output: Output, stdout: &mut dyn Write) -> anyhow::Result<()> {
    let certificates = inventory(root);
    if certificates.is_empty() {
        bail!("no certificate can be read: the node has none yet, or you are not root");
    }
    match output {
        Output::Json => writeln!(stdout, "{}", serde_json::to_string_pretty(&certificates)?)?,
        Output::Text => {
            let now = SystemTime::now();
            for one in certificates {
                writeln!(stdout, "{:<26}{}", one.name, one.end(now))?;
            }
        }
    }
    Ok(())
}

/// The default validity of a member's certificate, in days.
const MEMBER_DAYS: u32 = 1;

/// The arguments of `kaas-agent kubeconfig`.
#[derive(Debug, clap::Args)]
pub struct KubeconfigOptions {
    /// The holder's name, as it appears in the API's audit log
    #[arg(long, default_value = "administrator")]
    name: String,
    /// Issue a certificate for this member of a team. Its rights come from bindings to user and group
    #[arg(long, value_name = "NAME", requires = "group", conflicts_with_all = ["name", "purpose"])]
    user: Option<String>,
    /// The member's group, such as team-blue
    #[arg(long, requires = "user")]
    group: Option<String>,
    /// Days until it expires, 90 at most. The default is 90, and 1 with --user
    #[arg(long, value_name = "DAYS")]
    valid_days: Option<u32>,
    /// The rights of the holder
    #[arg(long, value_enum, default_value_t = Purpose::Administrator)]
    purpose: Purpose,
    /// Write certificate, key and CA certificate as one PEM file instead
    #[arg(long)]
    pem: bool,
    /// Write to this file, for root alone, instead of standard output
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

pub fn kubeconfig(root: &Path, options: &KubeconfigOptions, stdout: &mut dyn Write) -> anyhow::Result<()> {
    let config = configuration(root)?;
    let KubeconfigOptions { name, user, group, valid_days, purpose, pem, file } = options;
    let (name, group, days) = match user.as_ref().zip(group.as_ref()) {
        Some((user, group)) => {
            issue::check_member_group(group)?;
            (user, group.as_str(), MEMBER_DAYS)
        }
        None => (name, purpose.group(), issue::LONGEST),
    };
    let days = valid_days.unwrap_or(days);
    let issued = issue::issue(root, &config, group, name, days, SystemTime::now())?;
    log::info!("issued a credential for {name} of {group}, valid for {days} days, serial {}", issued.serial);
    let text = if *pem { issued.pem() } else { issued.kubeconfig.render(&issued.context) };
    match file {
        Some(file) => {
            files::write_atomically(file, text.as_bytes(), 0o600).with_context(|| format!("writing {}", file.display()))
        }
        None => stdout.write_all(text.as_bytes()).context("writing the credential"),
    }
}

fn configuration(root: &Path) -> anyhow::Result<ControlPlane> {
    let config = Records::new(root).config()?.context("this node has no configuration yet")?;
    Ok(config.control_plane()?.clone())
}

fn read(path: &Path) -> anyhow::Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::new());
    let file = fs::File::open(path).with_context(|| format!("reading {}", path.display()))?;
    let length =
        file.take(LARGEST + 1).read_to_string(&mut text).with_context(|| format!("reading {}", path.display()))?;
    if length as u64 > LARGEST {
        bail!("{} is too large for a certificate or a key", path.display());
    }
    Ok(text)
}
