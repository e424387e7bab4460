//! Makes a root tree from locked packages with mmdebstrap. It is given an
//! archive that holds exactly the locked packages, so no other can come in.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::fetch;
use super::lock::{Lock, Package};
use crate::cache::{Cache, Key, KeyBuilder, Stage};
use crate::process::Tool;
use crate::progress::Progress;

/// The form in which the tree is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Tar,
    Directory,
}

/// Adds the inputs of a tree of these packages to a key: the packages, and the release of this host's mmdebstrap. Its
/// defaults and clean-up shape the tree.
///
/// # Errors
/// When the host's mmdebstrap does not say which release it is.
pub fn add_to_key(key: KeyBuilder, lock: &Lock, progress: &Progress) -> Result<KeyBuilder> {
    add_by(Tool::on_host("mmdebstrap"), key, lock, progress)
}

fn add_by(mmdebstrap: Tool, key: KeyBuilder, lock: &Lock, progress: &Progress) -> Result<KeyBuilder> {
    let said = mmdebstrap.arg("--version").output(progress).context("asking mmdebstrap which release it is")?;
    let key = key.text("mmdebstrap", String::from_utf8_lossy(&said).trim()).text("epoch", lock.epoch().to_string());
    let packages = lock.packages.iter();
    Ok(packages.fold(key, |key, package| key.text("package", format!("{} {}", package.name, package.sha256))))
}

/// The packages of an image as a tar archive, made or found made.
pub fn archive(lock: &Lock, cache: &Cache, progress: &Progress) -> Result<PathBuf> {
    let key = add_to_key(Key::of(Stage::DEBIAN), lock, progress)?.finish();
    let place = cache
        .stage(&key, progress, |directory| bootstrap(lock, Form::Tar, &directory.join("root.tar"), cache, progress))?;
    Ok(place.join("root.tar"))
}

/// Makes the tree at `place`, which must not exist yet.
///
/// # Errors
/// When a package is not in the cache, or mmdebstrap fails; `place` may then exist in part.
pub fn bootstrap(lock: &Lock, form: Form, place: &Path, cache: &Cache, progress: &Progress) -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        bail!("making a Debian root tree takes root: run the command with sudo");
    }
    let work = cache.work()?;
    let archive = work.path().join("archive");
    lay_out_archive(lock, &archive, cache, progress).context("laying out the locked packages as an archive")?;
    let temporary = work.path().join("tmp");
    fs::create_dir(&temporary).context("making a directory for mmdebstrap")?;
    let names: Vec<&str> = lock.packages.iter().map(|package| package.name.as_str()).collect();
    let format = match form {
        Form::Tar => "tar",
        Form::Directory => "directory",
    };
    Tool::on_host("mmdebstrap")
        .env("SOURCE_DATE_EPOCH", lock.epoch().to_string())
        .env("TMPDIR", &temporary)
        .env_remove("APT_CONFIG")
        .args(["--mode=root", "--variant=essential", "--architectures=amd64"])
        .arg(format!("--format={format}"))
        // Nothing here has to survive a power cut, and manuals are not for machines.
        .args(["--dpkgopt=force-unsafe-io", "--dpkgopt=path-exclude=/usr/share/man/*"])
        .args(["--dpkgopt=path-exclude=/usr/share/locale/*", "--dpkgopt=path-exclude=/usr/share/info/*"])
        .args(["--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-include=/usr/share/doc/*/copyright"])
        .arg(format!("--include={}", names.join(",")))
        .arg("")
        .arg(place)
        .arg(format!("deb [trusted=yes] copy://{} ./", archive.display()))
        .run(progress)?;
    Ok(())
}

/// A flat archive: the package files and one index of them (Debian wiki, "RepositoryFormat").
fn lay_out_archive(lock: &Lock, directory: &Path, cache: &Cache, progress: &Progress) -> Result<()> {
    fs::create_dir(directory)?;
    let mut index = String::new();
    for package in &lock.packages {
        let Package { name, size, sha256, .. } = package;
        let file = fetch::cached(cache, package);
        let stanza = Tool::on_host("dpkg-deb").arg("--field").arg(&file).output(progress);
        let stanza = stanza.with_context(|| format!("reading the package {name}"))?;
        let stanza = String::from_utf8(stanza).with_context(|| format!("reading the package {name}"))?;
        let _ = writeln!(index, "{}\nFilename: ./{sha256}.deb\nSize: {size}\nSHA256: {sha256}\n", stanza.trim_end());
        let place = directory.join(format!("{sha256}.deb"));
        fs::hard_link(&file, &place).with_context(|| format!("laying out the package {name}"))?;
    }
    Ok(fs::write(directory.join("Packages"), index)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_release_of_mmdebstrap_makes_another_tree() {
        let lock: Lock = toml::from_str("suite = \"trixie\"\nrequest = \"\"\nindexes = []\npackages = []\n").unwrap();
        let key = |release: &str| {
            let tool = Tool::on_host("sh").args(["-c", &format!("echo mmdebstrap {release}")]);
            add_by(tool, Key::of(Stage::DEBIAN), &lock, &Progress::silent()).unwrap().finish()
        };
        assert_eq!(key("1.5.7"), key("1.5.7"));
        assert_ne!(key("1.5.7"), key("1.5.8"));
        let silent = add_by(Tool::on_host("false"), Key::of(Stage::DEBIAN), &lock, &Progress::silent());
        assert!(silent.is_err(), "a tree of an unknown release would be kept");
    }
}
