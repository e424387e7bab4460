//! The control cluster of a command, by the rules of kubectl: `--kubeconfig`, or the files of `KUBECONFIG`, or `~/.kube/config`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use fleet::nodes::{Credentials, SelectedContext};

use super::Control;
use super::prompt::{candidates, option};
use crate::output::is_shell_word;

#[derive(Args)]
pub struct ControlClusterArgs {
    /// Kubeconfig of the control cluster. Default: the files that the variable KUBECONFIG lists, otherwise ~/.kube/config
    #[arg(long, value_name = "FILE", help_heading = "Control cluster")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. Default: the current context
    #[arg(long, value_name = "NAME", help_heading = "Control cluster", add = contexts())]
    context: Option<String>,
}

/// The names of contexts, which a shell completes. Others may have written the kubeconfig, so names with other characters are
/// left out.
pub fn contexts() -> ArgValueCandidates {
    candidates(|words| {
        let names = Credentials::contexts(&ControlClusterArgs::given(words).files()?)?;
        Ok(names.into_iter().filter(|name| is_shell_word(name)).collect())
    })
}

/// Credentials, and where they come from.
pub struct NamedCredentials {
    pub credentials: Credentials,
    pub name: String,
}

impl ControlClusterArgs {
    /// These options. Both may be missing.
    pub fn new(kubeconfig: Option<PathBuf>, context: Option<String>) -> Self {
        Self { kubeconfig, context }
    }

    /// The credentials that the options select. `None` without options: `KUBECONFIG` alone selects none.
    pub fn named(&self) -> anyhow::Result<Option<NamedCredentials>> {
        let name = match (&self.kubeconfig, &self.context) {
            (None, None) => return Ok(None),
            (Some(path), None) => path.display().to_string(),
            (_, Some(context)) => format!("the context {context}"),
        };
        Ok(Some(NamedCredentials { credentials: self.selected()?.credentials, name }))
    }

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
    fn credentials_are_selected_by_options_only() {
        assert!(ControlClusterArgs::new(None, None).named().unwrap().is_none());
        let missing = ControlClusterArgs::new(Some("/missing/kubeconfig".into()), None).named();
        assert!(missing.is_err_and(|error| format!("{error:#}").contains("/missing/kubeconfig")));
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
