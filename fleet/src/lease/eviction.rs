//! Selects the files to remove if room is short. Pure: the caller says how much room is needed and which files may be
//! removed.

use std::path::PathBuf;
use std::time::SystemTime;

/// A file that may be removed. The order is that of the removal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EvictionCandidate {
    /// Whether it belongs to another owner than the new file.
    pub(super) is_of_another: bool,
    /// When it was stored.
    pub(super) modified: SystemTime,
    pub(super) path: PathBuf,
    /// Its size in bytes.
    pub(super) bytes: u64,
}

/// The files whose removal satisfies `is_enough`, in their order. Empty if no removal is needed, or if removing all of
/// them would not be enough. Each one is needed: a file that is too small to help stays, and a newer file stays if
/// older ones are enough.
pub(super) fn select_for_eviction(
    old: &[EvictionCandidate],
    is_enough: impl Fn(&[&EvictionCandidate]) -> bool,
) -> Vec<&EvictionCandidate> {
    let mut going: Vec<&EvictionCandidate> = Vec::new();
    let mut rest = old.iter();
    while !is_enough(&going) {
        let Some(file) = rest.next() else { return Vec::new() };
        going.push(file);
    }
    for at in (0..going.len()).rev() {
        let file = going.remove(at);
        if !is_enough(&going) {
            going.insert(at, file);
        }
    }
    going
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The positions of the removed files, for files of these sizes and a need for `wanted` bytes.
    fn going(files: &[u64], wanted: u64) -> Vec<usize> {
        let old = |(place, bytes): (usize, &u64)| EvictionCandidate {
            is_of_another: true,
            modified: SystemTime::UNIX_EPOCH,
            path: place.to_string().into(),
            bytes: *bytes,
        };
        let old: Vec<EvictionCandidate> = files.iter().enumerate().map(old).collect();
        let is_enough = |going: &[&EvictionCandidate]| going.iter().map(|file| file.bytes).sum::<u64>() >= wanted;
        let going = select_for_eviction(&old, is_enough);
        going.iter().map(|file| file.path.to_str().unwrap().parse().unwrap()).collect()
    }

    #[test]
    fn eviction_removes_enough_files_and_no_more() {
        let none: [usize; 0] = [];
        assert_eq!(going(&[5, 5], 0), none, "there is room");
        assert_eq!(going(&[5, 5], 11), none, "it would be for nothing");
        assert_eq!(going(&[], 1), none);
        assert_eq!(going(&[5, 5, 5], 5), [0], "the oldest");
        assert_eq!(going(&[5, 5, 5], 6), [0, 1]);
        assert_eq!(going(&[0, 1, 9, 1], 9), [2], "what is too small does not help");
        assert_eq!(going(&[4, 1, 5, 9], 9), [0, 2], "the older ones do");
    }
}
