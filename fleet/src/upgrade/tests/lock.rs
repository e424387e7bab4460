use std::time::{Duration, SystemTime};

use super::*;
use crate::upgrade::Mode;
use crate::upgrade::tests::fake::{Ill, World, lease_of};

/// What only a test that hangs takes.
const HANGS: Duration = Duration::from_secs(600);

/// Waits for what another thread does.
fn until(what: &str, condition: impl Fn() -> bool) {
    let started = std::time::Instant::now();
    while !condition() {
        assert!(started.elapsed() < HANGS, "waiting for {what} in vain");
        std::thread::yield_now();
    }
}

fn world() -> World {
    World::of(3, Mode::Rolling, Ill::Well)
}

#[test]
fn the_object_is_read_as_it_was_written() {
    let renewed = SystemTime::UNIX_EPOCH + Duration::from_micros(1_795_276_800_123_456);
    for (holder, version) in [(Some("a.b".to_owned()), None), (None, Some("7".to_owned()))] {
        let lease = Lease { holder, duration: DURATION, renewed, version };
        assert_eq!(Lease::from_object(&lease.to_object()).unwrap(), lease);
    }
    let object = lease_of("a", Duration::ZERO).to_object();
    assert_eq!(object["spec"]["leaseDurationSeconds"], 60);
}

#[test]
fn one_that_is_held_is_refused_and_one_that_has_ended_is_taken() {
    let world = world();
    take(&world, "one", Duration::ZERO).unwrap();
    take(&world, "one", Duration::ZERO).unwrap();
    let error = take(&world, "two", Duration::ZERO).unwrap_err().to_string();
    assert!(error.contains("one, is at work") && error.contains("ends in"), "{error}");
    world.put_lease(lease_of("one", Duration::from_secs(61)));
    take(&world, "two", Duration::ZERO).unwrap();
    assert_eq!(world.lease().unwrap().unwrap().holder.as_deref(), Some("two"));
}

#[test]
fn one_that_is_renewed_by_a_clock_that_is_behind_is_not_taken() {
    let world = world();
    world.put_lease(lease_of("one", Duration::from_secs(90)));
    let renewed_meanwhile = || {
        let version = world.lease().unwrap().unwrap().version;
        world.write_lease(&Lease { version, ..lease_of("one", Duration::from_secs(80)) }).unwrap();
    };
    let error = take_watching(&world, "two", renewed_meanwhile).unwrap_err().to_string();
    assert!(error.contains("its clock may be wrong"), "{error}");
}

#[test]
fn a_keeper_renews_notices_that_it_lost_and_gives_back() {
    let world = world();
    take(&world, "one", Duration::ZERO).unwrap();
    std::thread::scope(|scope| {
        let keeper = Keeper::start(scope, &world, "one".into(), Duration::from_millis(1)).unwrap();
        let first = world.lease().unwrap();
        until("a renewal", || world.lease().unwrap() != first);
        keeper.check().unwrap();
        keeper.end();
    });
    assert_eq!(world.lease().unwrap().unwrap().holder, None);

    take(&world, "one", Duration::ZERO).unwrap();
    std::thread::scope(|scope| {
        let keeper = Keeper::start(scope, &world, "one".into(), Duration::from_millis(1)).unwrap();
        world.put_lease(Lease { version: Some("99".into()), ..lease_of("two", Duration::ZERO) });
        until("the loss", || keeper.check().is_err());
        keeper.end();
    });
    assert_eq!(world.lease().unwrap().unwrap().holder.as_deref(), Some("two"));
}
