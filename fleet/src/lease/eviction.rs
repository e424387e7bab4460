//! Which files give way where room is short. Pure: how much there is to be, and what may go at all, others say.

use std::path::PathBuf;
use std::time::SystemTime;

/// A file that may go, in the order in which they do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EvictionCandidate {
    /// Whether it is of another owner than what comes.
    pub(super) is_of_another: bool,
    /// When it was kept.
    pub(super) modified: SystemTime,
    pub(super) path: PathBuf,
    /// What it has, in bytes.
    pub(super) bytes: u64,
}

/// Those of some files, in their order, that make enough room together, which `is_enough` says; none where all of them do not, or none has
/// to go. Each is needed: what is too small to help stays, and so does what is younger where the older ones do.
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

    /// What goes, by the names of its files, of files of these sizes, where so many bytes are wanted.
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
    fn what_gives_way_is_enough_together_and_none_of_it_is_too_much() {
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
