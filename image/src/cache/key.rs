//! The key of a result: a digest of all its inputs. It remembers the input files and directories of the host, to
//! detect changes during a build. Independent of where results are stored.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::Stage;

/// The key of a stage's result. Two keys are equal if their digests are, whatever the paths of their inputs.
#[derive(Clone, Debug)]
pub struct Key {
    stage: Stage,
    digest: String,
    inputs: Vec<Input>,
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        (self.stage, &self.digest) == (other.stage, &other.digest)
    }
}

impl Eq for Key {}

/// A file or a directory of the host, as it was when the key was computed.
#[derive(Clone, Debug)]
struct Input {
    path: PathBuf,
    is_directory: bool,
    digest: String,
}

impl Input {
    fn read(path: &Path, is_directory: bool) -> Result<Self> {
        let mut parts = Parts::default();
        let digest = if is_directory {
            walk(path, |value| parts = std::mem::take(&mut parts).text("", value))?;
            parts.finish()
        } else {
            file_digest(path)?
        };
        Ok(Self { path: path.to_owned(), is_directory, digest })
    }
}

impl Key {
    /// Begins a key of a stage with the source texts of its modules.
    pub fn of(stage: Stage) -> KeyBuilder {
        let named = Parts::default().text("stage", stage.name);
        let parts = stage.sources.iter().fold(named, |parts, source| parts.text("recipe", source));
        KeyBuilder { stage, parts, inputs: Vec::new() }
    }

    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// The digest in hexadecimal.
    pub fn as_str(&self) -> &str {
        &self.digest
    }

    /// The key for a result that is made from a copy of its inputs. The caller checks the copy with [`Key::check`].
    /// Later changes of the inputs do not affect the result.
    pub fn of_copy(&self) -> Self {
        Self { inputs: Vec::new(), ..self.clone() }
    }

    /// Checks that the input files and directories have not changed.
    pub fn check(&self) -> Result<()> {
        for input in &self.inputs {
            let now = Input::read(&input.path, input.is_directory);
            if now.with_context(|| format!("looking again at {}", input.path.display()))?.digest != input.digest {
                bail!("{} has changed while it was built from: build again", input.path.display());
            }
        }
        Ok(())
    }
}

/// A digest of parts. Names and lengths delimit them, so that different lists of parts have different digests.
#[derive(Clone, Debug, Default)]
pub struct Parts(Sha256);

impl Parts {
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

pub struct KeyBuilder {
    stage: Stage,
    parts: Parts,
    inputs: Vec<Input>,
}

impl KeyBuilder {
    pub fn text(self, name: &str, value: impl AsRef<[u8]>) -> Self {
        Self { parts: self.parts.text(name, value), ..self }
    }

    pub fn key(self, name: &str, key: &Key) -> Self {
        self.text(name, &key.digest)
    }

    /// Adds a file by its content.
    pub fn file(self, name: &str, path: &Path) -> Result<Self> {
        let input = Input::read(path, false)?;
        let mut key = self.text(name, &input.digest);
        key.inputs.push(input);
        Ok(key)
    }

    /// Adds a directory: the relative path, kind, executable bit and content of everything in it.
    pub fn directory(mut self, name: &str, path: &Path) -> Result<Self> {
        // The recorded digest is that of the first pass. The files are not read twice.
        let mut own = Parts::default();
        walk(path, |value| {
            self.parts = std::mem::take(&mut self.parts).text(name, value);
            own = std::mem::take(&mut own).text("", value);
        })?;
        self.inputs.push(Input { path: path.to_owned(), is_directory: true, digest: own.finish() });
        Ok(self)
    }

    pub fn finish(self) -> Key {
        Key { stage: self.stage, digest: self.parts.finish(), inputs: self.inputs }
    }
}

/// Calls `found` with the relative path, kind, executable bit and content of everything in a directory, sorted by
/// name.
fn walk(path: &Path, mut found: impl FnMut(&str)) -> Result<()> {
    for entry in walkdir::WalkDir::new(path).sort_by_file_name() {
        let entry = entry.with_context(|| format!("reading {}", path.display()))?;
        let relative = entry.path().strip_prefix(path)?.to_string_lossy().into_owned();
        let kind = entry.file_type();
        if kind.is_symlink() {
            let target = fs::read_link(entry.path()).with_context(|| format!("reading {}", path.display()))?;
            found(&format!("link {relative} {}", target.display()));
            // A linked file of another directory counts by its content.
            if target.starts_with("..") && entry.path().is_file() {
                found(&file_digest(entry.path())?);
            }
        } else if kind.is_file() {
            found(&format!("file {relative} {}", is_executable(entry.path())?));
            found(&file_digest(entry.path())?);
        } else {
            found(&format!("directory {relative}"));
        }
    }
    Ok(())
}

/// Whether a file is executable by its owner, the only mode bit that git also records.
pub fn is_executable(path: &Path) -> Result<bool> {
    use std::os::unix::fs::PermissionsExt;
    let metadata = fs::metadata(path).with_context(|| format!("reading {}", path.display()))?;
    Ok(metadata.permissions().mode() & 0o100 != 0)
}

/// The SHA-256 of a file in hexadecimal.
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
    fn a_key_detects_changed_inputs() {
        let directory = tempfile::tempdir().unwrap();
        let (file, below) = (directory.path().join("file"), directory.path().join("directory"));
        fs::create_dir(&below).unwrap();
        fs::write(&file, "1").unwrap();
        fs::write(below.join("a"), "1").unwrap();
        let made = || Key::of(Stage::DISK).file("f", &file).unwrap().directory("d", &below).unwrap().finish();
        let key = made();
        key.check().unwrap();
        assert_eq!(key.of_copy(), key);
        type Change = fn(&Path);
        let changes: [(&str, Change); 4] = [
            ("file", |above| fs::write(above.join("file"), "2").unwrap()),
            ("directory", |above| fs::write(above.join("directory/a"), "2").unwrap()),
            ("directory", |above| fs::write(above.join("directory/b"), "").unwrap()),
            ("file", |above| fs::remove_file(above.join("file")).unwrap()),
        ];
        for (what, change) in changes {
            let key = made();
            change(directory.path());
            let error = format!("{:#}", key.check().unwrap_err());
            key.of_copy().check().unwrap();
            assert!(error.contains(&directory.path().join(what).display().to_string()), "{error}");
        }
    }

    #[test]
    fn directories_count_by_names_contents_and_modes() {
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
