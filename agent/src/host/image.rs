//! The running image's description of itself.

use std::fs;
use std::path::Path;

use anyhow::Context;
use contract::image::{ImageFacts, PATH};

use crate::host::files;

/// Fails if this is no appliance image.
pub fn read(root: &Path) -> anyhow::Result<ImageFacts> {
    let path = files::below(root, PATH);
    let text = fs::read(&path).with_context(|| format!("reading the image's description {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("understanding {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_without_a_description_is_an_error() {
        let error = read(Path::new("/nonexistent")).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/usr/lib/kaas/image.json"), "{error}");
    }
}
