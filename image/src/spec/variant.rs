//! A spec's image in another version, with other Kubernetes components, without compression, or with the agent of
//! another commit. Release pipelines set versions, and tests need the rest.

use std::path::PathBuf;

use anyhow::{Error, Result, bail};

use super::{Compression, Spec, check};
use crate::component::{self, Component};
use crate::own_programs;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variant {
    pub version: Option<String>,
    /// The Kubernetes components, the newest minor version first. Empty for those of the spec.
    pub kubernetes: Vec<String>,
    /// The tree of another commit with our programs and units, instead of the spec's. Programs that it does not have
    /// are left out.
    pub agent_source: Option<PathBuf>,
    /// Leaves the root uncompressed: the OVA is larger, and the root is packed in seconds.
    pub uncompressed: bool,
}

/// The sources of agent and units, by their paths in a tree of this project.
const AGENT_SOURCE: [&str; 4] = ["Cargo.toml", "Cargo.lock", "agent/Cargo.toml", "systemd/system"];

impl Variant {
    /// Changes the spec. `described` are the available components. It is unchanged after an error: an invalid version,
    /// an unknown Kubernetes component, a tree without an agent.
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
        if let Some(tree) = &self.agent_source
            && let Some(missing) = AGENT_SOURCE.iter().find(|place| !tree.join(place).exists())
        {
            bail!("{} is no tree of this project to take the agent from: it has no {missing}", tree.display());
        }
        let mut programs = spec.files.programs.clone();
        if let Some(tree) = &self.agent_source {
            let there = programs.iter().map(|package| own_programs::has(tree, package)).collect::<Result<Vec<_>>>()?;
            programs =
                programs.into_iter().zip(there).filter_map(|(package, there)| there.then_some(package)).collect();
        }
        if let Some(version) = &self.version {
            spec.identity.version.clone_from(version);
        }
        if !self.kubernetes.is_empty() {
            spec.components.kubernetes.clone_from(&self.kubernetes);
        }
        if let Some(tree) = &self.agent_source {
            spec.files.agent.clone_from(tree);
            spec.files.systemd = tree.join("systemd");
            spec.files.programs = programs;
        }
        if self.uncompressed {
            spec.disk.compression = Compression::None;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn an_unknown_component_is_named_and_nothing_changes() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("specs/control-plane.toml");
        let (mut spec, described) = crate::spec::read(&path).unwrap();
        let before = (spec.identity.version.clone(), spec.components.kubernetes.clone());
        let variant = |version: Option<&str>, kubernetes: &[&str]| Variant {
            version: version.map(str::to_owned),
            kubernetes: kubernetes.iter().map(|name| (*name).to_owned()).collect(),
            ..Variant::default()
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
        variant(Some("1.2.3-rc.1"), &["kubernetes-1-36"]).apply(&mut spec, &described).unwrap();
        assert_eq!(
            (spec.identity.version.as_str(), spec.components.kubernetes.as_slice()),
            ("1.2.3-rc.1", &["kubernetes-1-36".to_owned()][..])
        );
    }

    #[test]
    fn only_the_compression_of_the_root_changes() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("specs/control-plane.toml");
        let (spec, described) = crate::spec::read(&path).unwrap();
        let mut other = spec.clone();
        Variant { uncompressed: true, ..Variant::default() }.apply(&mut other, &described).unwrap();
        assert_eq!(other.disk.compression, Compression::None);
        assert_ne!(spec.disk.compression, Compression::None);
        other.disk = spec.disk.clone();
        assert_eq!(other, spec);
    }

    #[test]
    fn agent_and_units_can_come_from_another_commit() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("specs/control-plane.toml");
        let (spec, described) = crate::spec::read(&path).unwrap();
        let tree = tempfile::tempdir().unwrap();
        let variant = Variant { agent_source: Some(tree.path().to_owned()), ..Variant::default() };
        let mut other = spec.clone();
        let error = variant.apply(&mut other, &described).unwrap_err().to_string();
        assert!(error.ends_with("to take the agent from: it has no Cargo.toml") && other == spec, "{error}");
        std::fs::create_dir_all(tree.path().join("agent")).unwrap();
        std::fs::create_dir_all(tree.path().join("systemd/system")).unwrap();
        for file in &AGENT_SOURCE[..3] {
            std::fs::write(tree.path().join(file), "[workspace.dependencies]\nagent = { path = \"agent\" }\n").unwrap();
        }
        variant.apply(&mut other, &described).unwrap();
        assert_eq!(spec.files.programs, ["controller"]);
        assert!(other.files.programs.is_empty(), "that commit has none");
        assert_eq!((other.files.agent.as_path(), other.files.systemd), (tree.path(), tree.path().join("systemd")));
        // The compiler and the image's other files are those of this commit.
        assert_eq!((other.files.workspace, other.files.roots), (spec.files.workspace, spec.files.roots));
    }
}
