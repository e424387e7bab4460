//! The room on the disk that the cache is on: a build asks for it before it begins, since a full disk gives errors of all kinds
//! in the middle. Knows of what is built only how many components are missing.

use anyhow::{Context, Result, ensure};
use nix::sys::statvfs::statvfs;

use super::compiled::GO;
use super::{Cache, size_on_disk};

/// An image takes so many bytes without its components: trees, kernel, disks.
const IMAGE: u64 = 4 << 30;
/// What Go compiles of a component takes so many bytes, on average: a first build of the control plane's eight leaves 11 GB.
const COMPONENT: u64 = 1280 << 20;

impl Cache {
    /// Asks for the room that a build takes which is to have so many components built with Go.
    ///
    /// # Errors
    /// When it is not there, or it is not known whether it is.
    pub fn ask_for_room(&self, components: usize) -> Result<()> {
        if components == 0 {
            return Ok(());
        }
        let room = statvfs(&self.root).with_context(|| format!("measuring the room of {}", self.root.display()))?;
        // The kinds of numbers differ between systems.
        #[allow(clippy::useless_conversion)]
        let free = u64::from(room.blocks_available()) * u64::from(room.fragment_size());
        let wanted = wanted(components, size_on_disk(&self.root.join(GO)));
        ensure!(
            free >= wanted,
            "{} MiB are free in {}, and to build {components} components takes {} MiB: make room there, or have the cache on \
             another disk (XDG_CACHE_HOME)",
            free >> 20,
            self.root.display(),
            wanted >> 20
        );
        Ok(())
    }
}

/// The bytes that are to be free. `compiled` are there already, of the same or of much the same.
fn wanted(components: usize, compiled: u64) -> u64 {
    IMAGE + (COMPONENT * components as u64).saturating_sub(compiled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_decides_and_what_a_build_before_has_compiled_counts() {
        assert_eq!(wanted(1, 0), IMAGE + COMPONENT);
        assert_eq!(wanted(8, 0), 14 << 30);
        assert_eq!(wanted(9, 6 * COMPONENT), wanted(3, 0));
        // All of one image's does not make room for another image.
        assert_eq!(wanted(5, 9 * COMPONENT), IMAGE);
    }

    #[test]
    fn a_build_with_nothing_to_compile_asks_for_nothing_and_one_that_no_disk_holds_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path()).unwrap();
        cache.ask_for_room(0).unwrap();
        let error = cache.ask_for_room(1 << 30).unwrap_err().to_string();
        assert!(error.contains(&format!(" MiB are free in {}, and ", cache.root().display())), "{error}");
        std::fs::remove_dir_all(directory.path()).unwrap();
        assert!(cache.ask_for_room(1).unwrap_err().to_string().starts_with("measuring the room of "));
    }
}
