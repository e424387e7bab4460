//! The Go that components are built with: the toolchain module of the module
//! proxy, pinned by version and sum. The host's own `go`, of any version,
//! fetches it and does nothing else.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::cache::{Cache, Key, Stage, hex};
use crate::document::Table;
use crate::process::{Tool, is_installed};
use crate::progress::Progress;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pin {
    /// Its version, such as `1.26.8`.
    pub version: String,
    /// The sum of its module as go.sum has it, such as `h1:…=`.
    pub sum: String,
}

impl Pin {
    /// Reads the table `[go]`.
    pub fn read(table: &Table<'_, '_>) -> Option<Self> {
        let version = table.required("version", "a version of Go, such as 1.26.8", |text| {
            let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            if text.split('.').count() != 3 || !text.split('.').all(is_number) {
                return Err(format!("`{text}` is no version of Go: give one such as 1.26.8"));
            }
            Ok(text.to_owned())
        });
        let sum = table.required("sum", "the sum of Go's toolchain module, h1:…", |text| {
            let digest = text.strip_prefix("h1:").and_then(|sum| STANDARD.decode(sum).ok());
            if digest.is_none_or(|digest| digest.len() != 32) {
                return Err("is no sum of a Go module: give h1: and 44 characters of base64".to_owned());
            }
            Ok(text.to_owned())
        });
        Some(Self { version: version?, sum: sum? })
    }

    fn module_version(&self) -> String {
        format!("v0.0.1-go{}.linux-amd64", self.version)
    }
}

/// Flags of go in the environment or in the user's settings could change what is built. An empty variable would let
/// those of the settings in; this one is given anyhow.
pub(super) const FLAGS: &str = "-trimpath";

/// The path of the toolchain modules.
const MODULE: &str = "golang.org/toolchain";

/// A Go that can be run.
#[derive(Clone, Debug)]
pub struct Toolchain {
    root: PathBuf,
}

/// The pinned Go, from the cache or fetched now.
///
/// # Errors
/// When there is no `go` to fetch it with, it cannot be fetched, or it has another sum.
pub fn ensure(pin: &Pin, cache: &Cache, progress: &Progress) -> Result<Toolchain> {
    ensure_by("go", pin, cache, progress)
}

fn ensure_by(bootstrap: &str, pin: &Pin, cache: &Cache, progress: &Progress) -> Result<Toolchain> {
    let key = Key::of(Stage::GO).text("version", &pin.version).text("sum", &pin.sum).finish();
    let place = cache.stage(&key, progress, |directory| {
        if !is_installed(bootstrap) {
            bail!("this host has no go, of any version, to fetch Go {} with: install golang-go", pin.version);
        }
        let module =
            download(bootstrap, pin, cache, progress).with_context(|| format!("fetching Go {}", pin.version))?;
        let sum = copy(&module, &format!("{MODULE}@{}", pin.module_version()), &directory.join("go"))?;
        if sum != pin.sum {
            bail!("Go {} from the module proxy has the sum {sum}, not {} as pinned", pin.version, pin.sum);
        }
        Ok(())
    })?;
    Ok(Toolchain { root: place.join("go") })
}

/// Has the module fetched by the host's go, from where this user's modules come from, and returns its directory.
fn download(bootstrap: &str, pin: &Pin, cache: &Cache, progress: &Progress) -> Result<PathBuf> {
    let work = cache.work()?;
    let said = Tool::as_caller(bootstrap)
        // No module and no workspace of this user plays a part.
        .current_dir(work.path())
        .env("GOTOOLCHAIN", "local")
        .env("GOWORK", "off")
        .env("GO111MODULE", "on")
        .env("GOFLAGS", FLAGS)
        .args(["mod", "download", "-json"])
        .arg(format!("{MODULE}@{}", pin.module_version()))
        .output(progress)?;
    let said: Value = serde_json::from_slice(&said).context("understanding what go mod download says")?;
    let directory = said["Dir"].as_str().context("go mod download named no directory")?;
    Ok(PathBuf::from(directory))
}

/// Copies a toolchain module and makes it a Go that can be run. Returns the sum of what was copied: that the module
/// cache has not changed since it was filled is not taken on trust. `name` is what the sum has in front of each path.
fn copy(module: &Path, name: &str, to: &Path) -> Result<String> {
    let mut sums = Vec::new();
    for entry in walkdir::WalkDir::new(module).sort_by_file_name() {
        let entry = entry.with_context(|| format!("reading {}", module.display()))?;
        let path = entry.path().strip_prefix(module)?;
        let place = to.join(path);
        if entry.file_type().is_dir() {
            fs::create_dir(&place).with_context(|| format!("making {}", place.display()))?;
            continue;
        }
        let renamed = entry.path().with_file_name("_go.mod");
        if entry.file_name() == "go.mod" && renamed.is_file() {
            // Made by a go that ran this toolchain; not part of the module.
            continue;
        }
        let content = fs::read(entry.path()).with_context(|| format!("reading {}", entry.path().display()))?;
        sums.push((format!("{name}/{}", path.display()), hex(&Sha256::digest(&content))));
        write(&place, &content, path.starts_with("bin") || path.starts_with("pkg/tool"))?;
        if entry.file_name() == "_go.mod" {
            // The archive of a module cannot hold another module's file under its own name.
            write(&place.with_file_name("go.mod"), &content, false)?;
        }
    }
    // The `Hash1` of golang.org/x/mod/sumdb/dirhash: a digest over the files' digests in the order of their names.
    sums.sort();
    let list = sums.iter().map(|(path, digest)| format!("{digest}  {path}\n")).collect::<String>();
    Ok(format!("h1:{}", STANDARD.encode(Sha256::digest(list))))
}

/// Writes a file; module archives carry no execute bits.
fn write(place: &Path, content: &[u8], executable: bool) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::write(place, content).with_context(|| format!("writing {}", place.display()))?;
    let mode = fs::Permissions::from_mode(if executable { 0o755 } else { 0o644 });
    fs::set_permissions(place, mode).with_context(|| format!("writing {}", place.display()))
}

impl Toolchain {
    /// Its directory, which is what `go env GOROOT` says.
    pub fn root(&self) -> &Path {
        &self.root
    }

    #[cfg(test)]
    pub(super) fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::go;
    use std::os::unix::fs::PermissionsExt;

    /// A module cache with a tiny toolchain, and a `go` that names it as the real one does.
    fn host(directory: &Path) -> (Pin, String) {
        let pin = Pin { version: "1.99.1".to_owned(), sum: String::new() };
        let module = directory.join("module");
        let write = |path: &str, text: &str| {
            let path = module.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("VERSION", "go1.99.1\n");
        write("bin/go", "#!/bin/sh\necho \"$GOROOT $GOTOOLCHAIN $GOFLAGS\"\n");
        write("pkg/tool/linux_amd64/compile", "#!/bin/sh\n");
        write("src/_go.mod", "module std\n");
        let go = directory.join("bootstrap-go");
        let says = format!(
            "#!/bin/sh\n[ \"$*\" = 'mod download -json {MODULE}@v0.0.1-go1.99.1.linux-amd64' ] || exit 2\n\
             [ \"$GOTOOLCHAIN $GOFLAGS $(ls)\" = 'local -trimpath ' ] || exit 3\n\
             [ -d {0} ] || {{ echo '{{ \"Error\": \"the proxy is out of reach\" }}'; exit 1; }}\n\
             echo '{{ \"Path\": \"{MODULE}\", \"Dir\": \"{0}\" }}'\n",
            module.display()
        );
        fs::write(&go, says).unwrap();
        fs::set_permissions(&go, fs::Permissions::from_mode(0o755)).unwrap();
        (pin, go.display().to_string())
    }

    /// As `go mod download` says it of a module with just these files.
    const SUM: &str = "h1:jPicNE/kjIuSKoxCeVJ0SCBPHf91TjmcthfZG7fGftE=";

    #[test]
    fn the_pinned_toolchain_is_fetched_and_checked() {
        let directory = tempfile::tempdir().unwrap();
        let (cache, progress) = (Cache::at(&directory.path().join("cache")).unwrap(), Progress::silent());
        let (pin, go) = host(directory.path());
        let right = Pin { sum: SUM.to_owned(), ..pin.clone() };
        let toolchain = ensure_by(&go, &right, &cache, &progress).unwrap();
        let said = String::from_utf8(go::command(&toolchain).output(&progress).unwrap()).unwrap();
        assert_eq!(said, format!("{} local -trimpath\n", toolchain.root.display()));
        let mode = |path: &str| fs::metadata(toolchain.root.join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("pkg/tool/linux_amd64/compile"), mode("VERSION")), (0o755, 0o644));
        assert_eq!(fs::read_to_string(toolchain.root.join("src/go.mod")).unwrap(), "module std\n");

        // Nothing is fetched twice, and what another go made of the module does not count.
        fs::write(directory.path().join("module/src/go.mod"), "module std\n").unwrap();
        ensure_by("/no/go", &right, &cache, &progress).unwrap();
        let another = Cache::at(&directory.path().join("another")).unwrap();
        ensure_by(&go, &right, &another, &progress).unwrap();

        let wrong = Pin { sum: format!("h1:{}", STANDARD.encode([7; 32])), ..pin };
        let error = format!("{:#}", ensure_by(&go, &wrong, &cache, &progress).unwrap_err());
        let expected = format!("Go 1.99.1 from the module proxy has the sum {SUM}, not {} as pinned", wrong.sum);
        assert_eq!(error, format!("stage go: {expected}"));
        fs::write(directory.path().join("module/bin/go"), "changed").unwrap();
        let changed = Cache::at(&directory.path().join("third")).unwrap();
        let error = ensure_by(&go, &right, &changed, &progress).unwrap_err();
        assert!(format!("{error:#}").contains("has the sum h1:"), "{error:#}");
    }

    #[test]
    fn missing_go_and_unreachable_proxies_are_reported() {
        let directory = tempfile::tempdir().unwrap();
        let (cache, progress) = (Cache::at(&directory.path().join("cache")).unwrap(), Progress::silent());
        let (pin, go) = host(directory.path());
        let error = ensure_by("/no/go", &pin, &cache, &progress).unwrap_err();
        let expected = "stage go: this host has no go, of any version, to fetch Go 1.99.1 with: install golang-go";
        assert_eq!(format!("{error:#}"), expected);
        fs::remove_dir_all(directory.path().join("module")).unwrap();
        let error = format!("{:#}", ensure_by(&go, &pin, &cache, &progress).unwrap_err());
        assert!(error.starts_with("stage go: fetching Go 1.99.1: ") && error.contains("out of reach"), "{error}");
    }
}
