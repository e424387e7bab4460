//! For the tests: of all points at which something goes wrong, those that are tried. `make test-long` tries each, everybody else a part
//! that is drawn each time anew.

use std::hash::{BuildHasher, Hasher, RandomState};

/// One in so many points is tried, if this does not say another number: 1 is all.
const EACH: &str = "KAAS_TEST_CONTROLLER_EACH";
/// What is drawn follows from this number alone.
const SEED: &str = "KAAS_TEST_CONTROLLER_SEED";
/// What takes some seconds.
const USUAL: usize = 40;

/// Of these points those that are tried.
pub(super) fn drawn<P>(what: &str, points: Vec<P>) -> Vec<P> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let each = number(EACH).map_or(USUAL, |each| usize::try_from(each.max(1)).expect("a number"));
    let seed = number(SEED).unwrap_or_else(|| RandomState::new().build_hasher().finish() % 1_000_000);
    let all = points.len();
    let tried = part(points, all.div_ceil(each), seed);
    println!("{what}: {} of {all} points, {SEED}={seed}", tried.len());
    tried
}

/// So many of them, in their order.
fn part<P>(points: Vec<P>, many: usize, seed: u64) -> Vec<P> {
    let mut state = seed;
    // Vigna's splitmix64, as in the xoshiro paper (Blackman and Vigna, 2021).
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let mut keyed: Vec<(u64, usize, P)> =
        points.into_iter().enumerate().map(|(at, point)| (next(), at, point)).collect();
    keyed.sort_by_key(|(key, at, _)| (*key, *at));
    keyed.truncate(many);
    keyed.sort_by_key(|(_, at, _)| *at);
    keyed.into_iter().map(|(_, _, point)| point).collect()
}

#[test]
fn a_part_is_drawn_by_its_seed_and_all_are_when_that_is_asked_for() {
    let points: Vec<u32> = (0..400).collect();
    let drawn = part(points.clone(), 10, 7);
    assert_eq!((drawn.len(), &drawn), (10, &part(points.clone(), 10, 7)));
    assert!(drawn.is_sorted(), "{drawn:?}");
    assert_ne!(drawn, part(points.clone(), 10, 8));
    assert_eq!(part(points.clone(), 400, 7), points);
}
