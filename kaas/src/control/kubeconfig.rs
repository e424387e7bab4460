//! The control cluster of a command, by the rules of kubectl: `--kubeconfig`, or the files of `KUBECONFIG`, or `~/.kube/config`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use fleet::nodes::{Credentials, SelectedContext};

use super::Control;
use super::prompt::{candidates, option};

/// The control cluster.
#[derive(Args)]
pub struct ControlClusterArgs {
    /// Kubeconfig of the control cluster. Default: the files that the variable KUBECONFIG lists, otherwise ~/.kube/config
    #[arg(long, value_name = "FILE", help_heading = "Control cluster")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. Default: the current context
    #[arg(long, value_name = "NAME", help_heading = "Control cluster", add = contexts())]
    context: Option<String>,
}

/// The names of all contexts, which a shell completes.
fn contexts() -> ArgValueCandidates {
    candidates(|words| {
        let names = Credentials::contexts(&ControlClusterArgs::given(words).files()?)?;
        Ok(names.into_iter().filter(|name| is_plain_word(name)).collect())
    })
}

/// Whether a shell reads a text as one word, and not as an option or a command. Others may have written the kubeconfig.
fn is_plain_word(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._:/@-".contains(c);
    !text.is_empty() && !text.starts_with('-') && text.chars().all(is_plain)
}

impl ControlClusterArgs {
    /// The options in the words of an incomplete command line.
    pub(super) fn given(words: &[String]) -> Self {
        Self { kubeconfig: option(words, &["--kubeconfig"]).map(PathBuf::from), context: option(words, &["--context"]) }
    }

    /// The control cluster. Sends nothing yet.
    pub fn open(&self) -> anyhow::Result<Control> {
        Control::of(&self.selected()?)
    }

    /// The selected context. Reads each file once: it may be a pipe, and may change between two reads.
    pub fn selected(&self) -> anyhow::Result<SelectedContext> {
        SelectedContext::read(&self.files()?, self.context.as_deref())
    }

    fn files(&self) -> anyhow::Result<Vec<PathBuf>> {
        let (variable, home) = (std::env::var_os("KUBECONFIG"), std::env::var_os("HOME"));
        let files = files(self.kubeconfig.as_deref(), variable.as_deref(), home.as_deref());
        ensure!(!files.is_empty(), "there is no kubeconfig of the control cluster: give one with --kubeconfig");
        Ok(files)
    }
}

/// The files to read. A missing file of `KUBECONFIG` is left out, as kubectl does.
fn files(given: Option<&Path>, variable: Option<&OsStr>, home: Option<&OsStr>) -> Vec<PathBuf> {
    if let Some(given) = given {
        return vec![given.to_owned()];
    }
    let files: Vec<PathBuf> = match variable.filter(|variable| !variable.is_empty()) {
        Some(variable) => std::env::split_paths(variable).filter(|path| !path.as_os_str().is_empty()).collect(),
        None => home.map(|home| Path::new(home).join(".kube/config")).into_iter().collect(),
    };
    files.into_iter().filter(|path| path.exists()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_words_are_candidates() {
        for text in ["admin", "kubernetes-admin@kubernetes", "arn:aws:eks:eu-west-1:7:cluster/a_b", "10.0.0.10:6443"] {
            assert!(is_plain_word(text), "{text}");
        }
        for text in ["", "a b", "a;reboot", "$(reboot)", "`reboot`", "a'b", "a\"b", "a\nb", "a|b", "a&b", "-o", "a\u{202e}b"] {
            assert!(!is_plain_word(text), "{text:?}");
        }
    }

    #[test]
    fn option_precedes_variable_and_home() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir(at(".kube")).unwrap();
        for name in [".kube/config", "a", "b"] {
            std::fs::write(at(name), "").unwrap();
        }
        let (home, given) = (directory.path().as_os_str(), at("given"));
        let variable = std::env::join_paths([at("a"), at("missing"), at("b")]).unwrap();
        assert_eq!(files(Some(&given), Some(&variable), Some(home)), std::slice::from_ref(&given));
        assert_eq!(files(None, Some(&variable), Some(home)), [at("a"), at("b")]);
        for variable in [None, Some(OsStr::new(""))] {
            assert_eq!(files(None, variable, Some(home)), [at(".kube/config")]);
        }
        assert!(files(None, None, Some(at("a").as_os_str())).is_empty());
    }
}
