//! The key of a result: a digest of everything that went into it. Knows
//! nothing of where results are kept.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use super::Stage;

/// The key of a stage's result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    stage: Stage,
    digest: String,
}

impl Key {
    /// Begins a key of a stage with the modules that shape the stage's results.
    pub fn of(stage: Stage) -> KeyBuilder {
        let named = Parts::default().text("stage", stage.name);
        KeyBuilder { stage, parts: stage.sources.iter().fold(named, |parts, source| parts.text("recipe", source)) }
    }

    /// The stage that it is of.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// The digest in hexadecimal.
    pub fn as_str(&self) -> &str {
        &self.digest
    }
}

/// A digest of parts. Every part is named and delimited, so that no two lists of parts give the same digest.
#[derive(Clone, Debug, Default)]
pub struct Parts(Sha256);

impl Parts {
    /// Adds a text.
    pub fn text(self, name: &str, value: impl AsRef<[u8]>) -> Self {
        let value = value.as_ref();
        let mut digest = self.0;
        for part in [name.as_bytes(), value] {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        Self(digest)
    }

    /// The digest in hexadecimal.
    pub fn finish(self) -> String {
        hex(&self.0.finalize())
    }
}

/// A key being made.
pub struct KeyBuilder {
    stage: Stage,
    parts: Parts,
}

impl KeyBuilder {
    /// Adds a text.
    pub fn text(self, name: &str, value: impl AsRef<[u8]>) -> Self {
        Self { parts: self.parts.text(name, value), ..self }
    }

    /// Adds the key of a stage that this one builds on.
    pub fn key(self, name: &str, key: &Key) -> Self {
        self.text(name, &key.digest)
    }

    /// Adds a file by its content.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn file(self, name: &str, path: &Path) -> Result<Self> {
        let digest = file_digest(path)?;
        Ok(self.text(name, digest))
    }

    /// Adds a directory: the relative path, kind, executable bit and content of everything in it.
    ///
    /// # Errors
    /// When something in it cannot be read.
    pub fn directory(mut self, name: &str, path: &Path) -> Result<Self> {
        for entry in walkdir::WalkDir::new(path).sort_by_file_name() {
            let entry = entry.with_context(|| format!("reading {}", path.display()))?;
            let relative = entry.path().strip_prefix(path)?.to_string_lossy().into_owned();
            let kind = entry.file_type();
            self = if kind.is_symlink() {
                let target = fs::read_link(entry.path()).with_context(|| format!("reading {}", path.display()))?;
                let link = self.text(name, format!("link {relative} {}", target.display()));
                // A file that another directory lends counts by its content.
                let lent = target.starts_with("..") && entry.path().is_file();
                if lent { link.file(name, entry.path())? } else { link }
            } else if kind.is_file() {
                self.text(name, format!("file {relative} {}", is_executable(entry.path())?)).file(name, entry.path())?
            } else {
                self.text(name, format!("directory {relative}"))
            };
        }
        Ok(self)
    }

    /// The key.
    pub fn finish(self) -> Key {
        Key { stage: self.stage, digest: self.parts.finish() }
    }
}

/// Whether a file is executable by its owner: the one mode bit that git keeps too.
pub fn is_executable(path: &Path) -> Result<bool> {
    use std::os::unix::fs::PermissionsExt;
    let metadata = fs::metadata(path).with_context(|| format!("reading {}", path.display()))?;
    Ok(metadata.permissions().mode() & 0o100 != 0)
}

/// The SHA-256 of a file in hexadecimal.
///
/// # Errors
/// When it cannot be read.
pub fn file_digest(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| format!("reading {}", path.display()))?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 1 << 18];
    loop {
        let count = file.read(&mut buffer).with_context(|| format!("reading {}", path.display()))?;
        if count == 0 {
            return Ok(hex(&digest.finalize()));
        }
        digest.update(&buffer[..count]);
    }
}

/// Bytes in lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_parts_apart() {
        let one = Key::of(Stage::DISK).text("a", "bc").finish();
        let other = Key::of(Stage::DISK).text("ab", "c").finish();
        assert_ne!(one, other);
        assert_ne!(Key::of(Stage::DISK).finish(), Key::of(Stage::ROOT).finish());
    }

    #[test]
    fn a_directory_counts_by_names_contents_and_executable_bits() {
        let above = tempfile::tempdir().unwrap();
        let directory = above.path().join("directory");
        fs::create_dir(&directory).unwrap();
        let key = || Key::of(Stage::DISK).directory("f", &directory).unwrap().finish();
        fs::write(directory.join("a"), "1").unwrap();
        let first = key();
        fs::write(directory.join("a"), "2").unwrap();
        let changed = key();
        fs::rename(directory.join("a"), directory.join("b")).unwrap();
        let renamed = key();
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(directory.join("b"), fs::Permissions::from_mode(0o755)).unwrap();
        let executable = key();
        std::os::unix::fs::symlink("../lent", directory.join("c")).unwrap();
        fs::write(above.path().join("lent"), "1").unwrap();
        let linked = key();
        fs::write(above.path().join("lent"), "2").unwrap();
        let lends_another = key();
        let all = [&first, &changed, &renamed, &executable, &linked, &lends_another];
        assert!((0..6).all(|i| (0..i).all(|j| all[i] != all[j])));
    }
}
