//! For the tests: of all points at which something goes wrong, those that are tried. `make test-long` tries each, everybody else a part
//! that is drawn each time anew.

/// One in so many points is tried, if this does not say another number: 1 is all.
const EACH: &str = "KAAS_TEST_CONTROLLER_EACH";
/// What is drawn follows from this number alone.
const SEED: &str = "KAAS_TEST_CONTROLLER_SEED";
/// Of these points those that are tried.
pub(super) fn drawn<P>(what: &str, points: Vec<P>) -> Vec<P> {
    testbed::drawn(what, points, EACH, SEED)
}
