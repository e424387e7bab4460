//! A spec's image in another version, or with other Kubernetes components: what a
//! release pipeline stamps, and what an upgrade is tried with.

use anyhow::{Error, Result, bail};

use super::{Spec, check};
use crate::component::{self, Component};

/// What differs from the spec.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variant {
    /// The image's version.
    pub version: Option<String>,
    /// The Kubernetes components, the newest minor first; none for those of the spec.
    pub kubernetes: Vec<String>,
}

impl Variant {
    /// Changes the spec. `described` are the components that there are.
    ///
    /// # Errors
    /// The version is none, or there is no such Kubernetes component; the spec is then as it was.
    pub fn apply(&self, spec: &mut Spec, described: &[Component]) -> Result<()> {
        if let Some(version) = &self.version {
            check::version(version).map_err(Error::msg)?;
        }
        for name in &self.kubernetes {
            let found = described.iter().find(|component| component.name == *name);
            if found.and_then(|component| component::minor(&component.version)).is_none() {
                bail!("{} describes no Kubernetes component `{name}`", spec.components.file.display());
            }
        }
        if let Some(version) = &self.version {
            spec.identity.version.clone_from(version);
        }
        if !self.kubernetes.is_empty() {
            spec.components.kubernetes.clone_from(&self.kubernetes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_is_not_there_is_named_and_nothing_changed() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("specs/control-plane.toml");
        let (mut spec, described) = crate::spec::read(&path).unwrap();
        let before = (spec.identity.version.clone(), spec.components.kubernetes.clone());
        let variant = |version: Option<&str>, kubernetes: &[&str]| Variant {
            version: version.map(str::to_owned),
            kubernetes: kubernetes.iter().map(|name| (*name).to_owned()).collect(),
        };
        for (variant, named) in [
            (variant(Some("one"), &[]), "`one`"),
            (variant(Some("1.2.3"), &["kubernetes-0-1"]), "`kubernetes-0-1`"),
            (variant(None, &["pauses"]), "`pauses`"),
        ] {
            let error = variant.apply(&mut spec, &described).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
            assert_eq!(before, (spec.identity.version.clone(), spec.components.kubernetes.clone()));
        }
        variant(Some("1.2.3-rc.1"), &["kubernetes-1-35"]).apply(&mut spec, &described).unwrap();
        assert_eq!(
            (spec.identity.version.as_str(), spec.components.kubernetes.as_slice()),
            ("1.2.3-rc.1", &["kubernetes-1-35".to_owned()][..])
        );
    }
}
