//! The choice of points of failure that one run of the tests tries. The module knows nothing of the failures.

use std::hash::{BuildHasher, Hasher, RandomState};

/// The default: one in this number of points is tried.
const USUAL: usize = 40;

/// The points that are tried: one in the number of the variable `each` (1 means all). The number of the variable `seed`
/// selects them. Without it, a random one does. The seed is printed.
pub fn drawn<P>(what: &str, points: Vec<P>, each: &str, seed: &str) -> Vec<P> {
    drawn_seldom(what, points, each, seed, 1)
}

/// As [`drawn`], for points that take long. Without the variable `each`, their number is divided by `fewer`.
pub fn drawn_seldom<P>(what: &str, points: Vec<P>, each: &str, seed: &str, fewer: usize) -> Vec<P> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let one_in = number(each).map_or(USUAL * fewer, |each| usize::try_from(each.max(1)).expect("a number"));
    let drawn_by = number(seed).unwrap_or_else(|| RandomState::new().build_hasher().finish() % 1_000_000);
    let all = points.len();
    let tried = part(points, all.div_ceil(one_in), drawn_by);
    println!("{what}: {} of {all} points, {seed}={drawn_by}", tried.len());
    tried
}

/// `many` of the points, in their order.
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

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn seeds_draw_their_parts_and_together_all_points() {
        let of = |seed| part((0..1000).collect(), 100, seed);
        assert_eq!(of(1), of(1));
        assert!(of(1) != of(2) && of(1).len() == 100 && of(1).is_sorted());
        let mut seen: Vec<i32> = (0..200).flat_map(of).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 1000);
        assert_eq!(part((0..7).collect(), 7, 3), (0..7).collect::<Vec<_>>());
    }

    #[test]
    fn a_full_draw_returns_all_points() {
        let points: Vec<u32> = (0..400).collect();
        let drawn = part(points.clone(), 10, 7);
        assert_eq!((drawn.len(), &drawn), (10, &part(points.clone(), 10, 7)));
        assert!(drawn.is_sorted(), "{drawn:?}");
        assert_ne!(drawn, part(points.clone(), 10, 8));
        assert_eq!(part(points.clone(), 400, 7), points);
    }
}
