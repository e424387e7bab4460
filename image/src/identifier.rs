//! The build identifier: half of a SHA-256, as 32 hexadecimal digits, which VMs and OVAs of the same image share. It
//! depends on the image's content only: equal inputs have equal identifiers on every host.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use contract::image::BUILD_DIGITS;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::cache::{Cache, Key, Parts, Stage, file_digest, hex};
use crate::initial_root;
use crate::progress::Progress;
use crate::tree::Tree;

pub struct Content<'c> {
    /// Its root, without the description, which will contain the identifier.
    pub tree: &'c Tree,
    /// The initial root. It is made from the root without the description, so it can be an input.
    pub initial: &'c Tree,
    pub vmlinuz: &'c Path,
    /// The EFI program that the firmware starts, which contains kernel and initial root.
    pub stub: &'c Path,
    pub parameters: &'c [String],
    /// The description, without the identifier.
    pub facts: &'c Value,
    /// The time of all files, in seconds since 1970.
    pub epoch: u64,
}

/// The identifier of an image with this content, from the cache if it was computed before.
pub fn of(content: &Content<'_>, cache: &Cache, progress: &Progress) -> Result<String> {
    let &Content { tree, initial, vmlinuz, stub, parameters, facts, epoch } = content;
    let (parameters, facts) = (parameters.join(" "), facts.to_string());
    let key = tree.add_to_key(Key::of(Stage::IDENTIFIER), cache)?;
    let key = initial.add_to_key(key.text("initial root", ""), cache)?.file("stub", stub)?;
    let key = key.text("kernel", cache.name_of(vmlinuz)?).text("parameters", &parameters).text("facts", &facts);
    let key = key.text("epoch", epoch.to_string()).finish();
    let place = cache.stage(&key, progress, |directory| {
        let mut root = Sum(Sha256::new());
        tree.write_tar(&mut root, epoch).context("reading the image's root")?;
        let initial = initial_root::archive(initial, epoch)?;
        let whole = Parts::default()
            .text("root", hex(&root.0.finalize()))
            .text("initial root", hex(&Sha256::digest(initial)))
            .text("kernel", file_digest(vmlinuz)?)
            .text("stub", file_digest(stub)?)
            .text("parameters", &parameters)
            .text("facts", &facts)
            .finish();
        fs::write(directory.join("identifier"), &whole[..BUILD_DIGITS]).context("noting the build identifier")
    })?;
    let build = fs::read_to_string(place.join("identifier")).context("reading the build identifier")?;
    if build.len() != BUILD_DIGITS {
        bail!("the cache gave the build identifier {build:?}");
    }
    Ok(build)
}

/// Computes a digest of written bytes.
struct Sum(Sha256);

impl Write for Sum {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The identifier of an image in which each part has the content `usual`, except `other`.
    fn identify(directory: &Path, other: &str) -> String {
        let content = |part: &str| if part == other { "other" } else { "usual" };
        let (vmlinuz, stub) = (directory.join("vmlinuz"), directory.join("stub"));
        fs::write(&vmlinuz, content("kernel")).unwrap();
        fs::write(&stub, content("stub")).unwrap();
        let (mut tree, mut initial) = (Tree::default(), Tree::default());
        tree.text("usr/lib/file", content("root"));
        initial.text("init", content("initial root"));
        let content = Content {
            tree: &tree,
            initial: &initial,
            vmlinuz: &vmlinuz,
            stub: &stub,
            parameters: &[content("parameters").to_owned()],
            facts: &serde_json::json!({ "version": content("facts") }),
            epoch: if other == "epoch" { 8 } else { 7 },
        };
        of(&content, &Cache::at(&directory.join("cache")).unwrap(), &Progress::silent()).unwrap()
    }

    #[test]
    fn equal_content_has_the_same_identifier() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = identify(here.path(), "");
        assert!(first.len() == 32 && first.bytes().all(|byte| byte.is_ascii_hexdigit()), "{first}");
        assert_eq!(first, identify(there.path(), ""));
        let mut all = vec![first];
        for part in ["root", "initial root", "kernel", "stub", "parameters", "facts", "epoch"] {
            let identifier = identify(here.path(), part);
            assert!(!all.contains(&identifier), "{part} does not count");
            all.push(identifier);
        }
    }
}
