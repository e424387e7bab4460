//! Checks the free space for a build before it begins: a full disk causes all kinds of errors in the middle. Knows
//! only the number of missing components.

use anyhow::{Context, Result, ensure};
use nix::sys::statvfs::statvfs;

use super::compiled::GO;
use super::{Cache, size_on_disk};

/// Bytes for an image without its components: trees, kernel, disks.
const IMAGE: u64 = 4 << 30;
/// Bytes of go's output for a component, on average: a first build of the control plane's eight leaves 11 GB.
const COMPONENT: u64 = 1280 << 20;

impl Cache {
    /// Checks the free space for a build that compiles this number of components with Go. Fails if it is unknown.
    pub fn ask_for_room(&self, components: usize) -> Result<()> {
        if components == 0 {
            return Ok(());
        }
        let room = statvfs(&self.root).with_context(|| format!("measuring the room of {}", self.root.display()))?;
        // The integer types differ between systems.
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

/// The bytes that must be free. `compiled` bytes of go's output already exist, for the same or similar components.
fn wanted(components: usize, compiled: u64) -> u64 {
    IMAGE + (COMPONENT * components as u64).saturating_sub(compiled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_output_of_go_reduces_the_need() {
        assert_eq!(wanted(1, 0), IMAGE + COMPONENT);
        assert_eq!(wanted(8, 0), 14 << 30);
        assert_eq!(wanted(9, 6 * COMPONENT), wanted(3, 0));
        // Output for another image does not reduce the space for this image.
        assert_eq!(wanted(5, 9 * COMPONENT), IMAGE);
    }

    #[test]
    fn builds_with_nothing_to_compile_need_no_space() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path()).unwrap();
        cache.ask_for_room(0).unwrap();
        let error = cache.ask_for_room(1 << 30).unwrap_err().to_string();
        assert!(error.contains(&format!(" MiB are free in {}, and ", cache.root().display())), "{error}");
        std::fs::remove_dir_all(directory.path()).unwrap();
        assert!(cache.ask_for_room(1).unwrap_err().to_string().starts_with("measuring the room of "));
    }
}
