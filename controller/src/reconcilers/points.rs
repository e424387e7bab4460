//! For the tests: of all points at which something goes wrong, those that are tried. `make test-long` tries each, of upgrades and of deaths
//! that pools live through one in seven, everybody else a part that is drawn each time anew. None is left out for good.

/// One in so many points is tried, if this does not say another number: 1 is all.
const EACH: &str = "KAAS_TEST_CONTROLLER_EACH";
/// What is drawn follows from this number alone.
const SEED: &str = "KAAS_TEST_CONTROLLER_SEED";
/// Of these points those that are tried.
pub(super) fn drawn<P>(what: &str, points: Vec<P>) -> Vec<P> {
    testbed::drawn(what, points, EACH, SEED)
}

/// The same of a whole upgrade at each point: a seventh of as many, where no number is said. Most of its calls ask whether this controller
/// may go on.
pub(super) fn drawn_seldom<P>(what: &str, points: Vec<P>) -> Vec<P> {
    testbed::drawn_seldom(what, points, EACH, SEED, 7)
}
