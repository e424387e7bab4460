//! The objects of a control cluster, as its Kubernetes API has them. Commands on tenant clusters read and write them. kubectl can
//! do the same. Knows the names of kinds, and not the meaning of their fields.

mod api;
mod bound;
pub mod candidates;
mod change;
mod documents;
mod dry_run;
mod kubeconfig;
mod object;
mod prompt;
mod shown;
mod table;
mod wait;

pub use self::api::{Control, NODE_IMAGES, PROVIDERS, Rejected, ResourcePath};
pub use self::bound::Bound;
pub use self::change::Change;
pub use self::documents::read;
pub use self::dry_run::DryRunReport;
pub use self::kubeconfig::{ControlClusterArgs, NamedCredentials, contexts};
pub use self::object::{Condition, age, age_of, read_conditions, text};
pub use self::shown::{UNRECONCILED, conditions, lines, note, outdated, wait_result};
pub use self::table::{Cell, number, status_style, table};
pub use self::wait::{Look, WaitReport, WaitResult, Waiter};

use clap::Args;

use crate::output::Output;
use crate::work::TimeoutArgs;

/// The options of a list of objects without a namespace.
#[derive(Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub at: ControlClusterArgs,
}

/// The namespace, and the control cluster.
#[derive(Args)]
pub struct NamespaceArgs {
    /// Namespace of the tenant cluster. Default: the namespace of the context, otherwise `default`
    #[arg(long, short, value_parser = name, help_heading = "Control cluster", add = candidates::namespaces())]
    namespace: Option<String>,
    #[command(flatten)]
    at: ControlClusterArgs,
}

impl NamespaceArgs {
    /// The options in the words of an incomplete command line.
    fn given(words: &[String]) -> Self {
        Self { namespace: prompt::option(words, &["--namespace", "-n"]), at: ControlClusterArgs::given(words) }
    }

    /// The control cluster and the namespace, by the rules of kubectl.
    pub fn open(&self) -> anyhow::Result<(Control, String)> {
        let selected = self.at.selected()?;
        let control = Control::of(&selected)?;
        let namespace = self.namespace.clone().or(selected.namespace).unwrap_or_else(|| "default".to_owned());
        // It becomes part of an address.
        let namespace =
            name(&namespace).map_err(|wrong| anyhow::anyhow!("the namespace {namespace:?} of the context: {wrong}"))?;
        Ok((control, namespace))
    }
}

/// The format of the output, and the wait.
#[derive(Args)]
pub struct WaitArgs {
    #[command(flatten)]
    pub output: Output,
    /// Wait until the wanted state is reached. With false, the command ends once the API server has accepted the request
    #[arg(
        long,
        value_name = "BOOL",
        default_value_t = true,
        action = clap::ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        help_heading = "Waiting"
    )]
    pub wait: bool,
    #[command(flatten)]
    pub waiting: TimeoutArgs,
}

/// The name of an object, which becomes part of an address: a DNS subdomain (Kubernetes, "Object Names and IDs").
pub fn name(text: &str) -> Result<String, String> {
    let is_label = |label: &str| {
        let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    if text.len() <= 253 && text.split('.').all(is_label) {
        return Ok(text.to_owned());
    }
    Err("a name has small letters, digits, dashes and dots".to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use contract::kubeconfig::Kubeconfig;
    use contract::secret::Secret;
    use nix::sys::stat::Mode;
    use rcgen::{CertificateParams, KeyPair};
    use serde_json::Value;

    use super::*;

    /// A kubeconfig with this namespace.
    fn kubeconfig(namespace: &str) -> String {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::default().self_signed(&key).unwrap().pem();
        let content = Kubeconfig {
            server: "https://192.168.10.10:6443".to_owned(),
            server_name: None,
            authority: certificate.clone(),
            certificate,
            key: Secret::new(key.serialize_pem()),
        };
        let mut content: Value = serde_json::from_str(&content.render("admin")).unwrap();
        content["contexts"][0]["context"]["namespace"] = namespace.into();
        content.to_string()
    }

    #[test]
    fn kubeconfig_in_a_pipe_is_read_once() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("kubeconfig");
        nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        let words = ["--kubeconfig".to_owned(), pipe.to_str().unwrap().to_owned()];
        let (sender, receiver) = channel();
        // A second read would wait for another writer.
        std::thread::spawn(move || drop(sender.send(NamespaceArgs::given(&words).open().unwrap().1)));
        fs::write(&pipe, kubeconfig("blue")).unwrap();
        assert_eq!(receiver.recv_timeout(Duration::from_secs(60)).as_deref(), Ok("blue"));
    }

    #[test]
    fn other_paths_are_no_names() {
        for text in ["shop", "kaas-tenant-0.2.0", "a"] {
            assert_eq!(name(text).as_deref(), Ok(text));
        }
        for text in ["", ".", "..", "a/b", "../nodes", "a?b", "a%2fb", "-a", "a-", "A", "a..b", "a b"] {
            assert!(name(text).is_err(), "{text}");
        }
    }
}
