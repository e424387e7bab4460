//! Draws the points of failure that a test tries. `make test-long` tries all, and one in seven of upgrades and of deaths of
//! pools. Other runs try a random part, different each time.

/// The variable with the inverse of the share: 1 tries all points.
const EACH: &str = "KAAS_TEST_CONTROLLER_EACH";
/// The variable with the seed of the draw.
const SEED: &str = "KAAS_TEST_CONTROLLER_SEED";
/// The points to try.
pub(super) fn drawn<P>(what: &str, points: Vec<P>) -> Vec<P> {
    testbed::drawn(what, points, EACH, SEED)
}

/// As [`drawn`], where each point is a whole upgrade: by default a seventh as many. Most of its calls only check the lease.
pub(super) fn drawn_seldom<P>(what: &str, points: Vec<P>) -> Vec<P> {
    testbed::drawn_seldom(what, points, EACH, SEED, 7)
}
