//! Overrides while no configuration is saved. They are in one file in memory, readable by root alone, because it may
//! hold the deployment secret.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use contract::properties::{self, Property};
use contract::secret::Secret;
use zeroize::Zeroizing;

use crate::host::files;

pub const PATH: &str = "/run/kaas/overrides.json";

/// Property keys with values that replace those of the OVF environment. `Debug` shows no values.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Overrides(BTreeMap<String, Secret>);

impl fmt::Debug for Overrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Overrides {
    /// The overrides since power-on, below `root` (`/` outside of tests).
    pub fn load(root: &Path) -> anyhow::Result<Self> {
        Ok(Self(files::read_record(&path(root))?.unwrap_or_default()))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets a property. An empty value removes it.
    pub(super) fn set(&mut self, property: &Property, text: &str) {
        self.0.insert(property.key.to_owned(), Secret::new(text.to_owned()));
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'static Property, &str)> {
        self.0.iter().filter_map(|(key, text)| Some((properties::find(key)?, text.expose())))
    }

    /// Saves the overrides. True if they have changed.
    pub(super) fn save(&self, root: &Path) -> anyhow::Result<bool> {
        let path = path(root);
        let text = Zeroizing::new(serde_json::to_vec_pretty(&self.0)?);
        files::ensure_content(&path, &text, 0o600).with_context(|| format!("saving {}", path.display()))
    }
}

/// Erases the overrides, after they were saved in the configuration.
pub fn forget(root: &Path) -> io::Result<()> {
    files::remove(&path(root)).map(drop)
}

fn path(root: &Path) -> PathBuf {
    files::below(root, PATH)
}
