//! Tests of the mark: it shows which leader is the first, and is created again.

use super::*;

/// If the answer to the mark or the Lease was lost, there may have been another leader.
#[tokio::test(start_paused = true)]
async fn lost_answers_make_no_leader_the_first() {
    // Three calls: read the Lease, create the mark, create the Lease.
    for (call, fault) in [(1, Fault::NotDone), (1, Fault::Done), (2, Fault::NotDone), (2, Fault::Done)] {
        let (api, clock, log) = (InMemory::default(), Clock::of_tests(), Log::default());
        api.fails_at(call, fault);
        let one = starts(api.clone(), &clock, &log, "one", LONG);
        sleep(seconds(60)).await;
        assert!(log.first("one").unwrap() >= MARGIN, "{fault:?} at {call}: {:?}", log.first("one"));
        // A mark that could not be created is created later.
        assert_eq!(api.names("configmaps"), [lease::MARK], "{fault:?} at {call}");
        one.abort();
    }
}

/// Another candidate that found the mark has created the Lease first.
#[tokio::test(start_paused = true)]
async fn the_mark_without_the_lease_does_not_elect() {
    let (api, clock, log) = (InMemory::default(), Clock::of_tests(), Log::default());
    let cut = Cut::of(&api);
    *cut.raced.lock().unwrap() = Some(lease::new(lease::UNKNOWN, clock.time().0));
    let one = starts(cut, &clock, &log, "one", LONG);
    sleep(seconds(60)).await;
    assert!(log.first("one").unwrap() >= LEASE + MARGIN, "{:?}", log.first("one"));
    one.abort();
}

/// Lease and mark are deleted while a leader has no connection: a candidate that has seen the Lease waits anyway.
#[tokio::test(start_paused = true)]
async fn a_seen_lease_prevents_a_first_leader() {
    let (api, clock, log) = (InMemory::default(), Clock::of_tests(), Log::default());
    let cut = Cut::of(&api);
    let one = starts(cut.clone(), &clock, &log, "one", LONG);
    sleep(seconds(10)).await;
    let two = starts(api.clone(), &clock, &log, "two", LONG);
    sleep(seconds(5)).await;
    cut.cut(true);
    api.remove::<Lease>(Some(SYSTEM), NAME);
    api.remove::<ConfigMap>(Some(SYSTEM), lease::MARK);
    let since = clock.now();
    sleep(seconds(60)).await;
    log.is_sound("both removed");
    assert!(one.is_finished() && log.first("two").unwrap() >= since + LEASE + MARGIN, "{:?}", log.first("two"));
    assert_eq!(api.names("configmaps"), [lease::MARK]);
    two.abort();
}

/// A leader creates a deleted mark again, so that the next leader is not the first.
#[tokio::test(start_paused = true)]
async fn a_leader_recreates_a_deleted_mark() {
    let (api, clock, log) = (InMemory::default(), Clock::of_tests(), Log::default());
    let cut = Cut::of(&api);
    let one = starts(cut.clone(), &clock, &log, "one", LONG);
    sleep(seconds(10)).await;
    api.remove::<ConfigMap>(Some(SYSTEM), lease::MARK);
    sleep(MARKING).await;
    assert_eq!(api.names("configmaps"), [lease::MARK]);
    assert!(!one.is_finished(), "it leads on");
    cut.cut(true);
    api.remove::<Lease>(Some(SYSTEM), NAME);
    let since = clock.now();
    let two = starts(api.clone(), &clock, &log, "two", LONG);
    sleep(seconds(60)).await;
    log.is_sound("removed one after the other");
    assert!(log.first("two").unwrap() >= since + LEASE + MARGIN, "{:?}", log.first("two"));
    two.abort();
}

/// A candidate that takes the Lease creates a missing mark, even if it found one before.
#[tokio::test(start_paused = true)]
async fn taking_the_lease_recreates_a_deleted_mark() {
    let (api, clock, log) = (InMemory::default(), Clock::of_tests(), Log::default());
    let one = starts(api.clone(), &clock, &log, "one", seconds(20));
    sleep(seconds(3)).await;
    let two = starts(api.clone(), &clock, &log, "two", LONG);
    sleep(seconds(12)).await;
    api.remove::<ConfigMap>(Some(SYSTEM), lease::MARK);
    assert!(one.await.unwrap());
    sleep(INTERVAL * 2).await;
    assert!(log.first("two").is_some());
    assert_eq!(api.names("configmaps"), [lease::MARK]);
    two.abort();
}

/// Its memory is lost, and its former term may not be over by the clock.
#[tokio::test(start_paused = true)]
async fn a_former_leader_is_never_the_first() {
    for (has_led, wait) in [(false, Duration::ZERO), (true, LEASE + MARGIN)] {
        let (api, clock) = (InMemory::default(), Clock::of_tests());
        let candidate = Candidate::new(Arc::new(api), clock.clone(), "one", Duration::ZERO).having_led(has_led);
        let begun = clock.now();
        candidate.lead(|_| std::future::ready(())).await.unwrap();
        let after = clock.now() - begun;
        assert!(after >= wait && after < wait + seconds(5), "{has_led}: {after:?}");
    }
}

/// During an upgrade of the control cluster: the rights come later, with the objects of the leader's version.
#[tokio::test(start_paused = true)]
async fn a_candidate_without_rights_marks_later() {
    let (api, clock, log) = (InMemory::default(), Clock::of_tests(), Log::default());
    let cut = Cut::of(&api);
    cut.lacks_right(true);
    let one = starts(cut.clone(), &clock, &log, "one", LONG);
    sleep(seconds(60)).await;
    assert!(log.first("one").unwrap() >= LEASE + MARGIN, "{:?}", log.first("one"));
    assert!(api.names("configmaps").is_empty());
    cut.lacks_right(false);
    sleep(MARKING + INTERVAL).await;
    assert_eq!(api.names("configmaps"), [lease::MARK]);
    assert!(!one.is_finished(), "it leads on");
    one.abort();
}

/// A candidate that takes an existing Lease, or cannot be the first, leads without the mark.
#[tokio::test(start_paused = true)]
async fn a_webhook_outage_prevents_the_mark_only() {
    for what in ["none", "silent", "released"] {
        let (api, clock, log) = (InMemory::default(), Clock::of_tests(), Log::default());
        let before = lease::new("before", clock.time().0);
        let there = match what {
            "silent" => Some(before),
            "released" => Some(lease::released(&before)),
            _ => None,
        };
        if let Some(there) = there {
            api.put(&there);
        }
        let cut = Cut::of(&api);
        cut.hook_is_down(true);
        let one = starts(cut.clone(), &clock, &log, "one", LONG);
        sleep(seconds(60)).await;
        let first = log.first("one").unwrap_or_else(|| panic!("{what}: nobody leads"));
        let waits = if what == "released" { Duration::ZERO } else { LEASE + MARGIN };
        assert!(first >= waits && first < waits + seconds(5), "{what}: {first:?}");
        assert!(api.names("configmaps").is_empty(), "{what}");
        cut.hook_is_down(false);
        sleep(MARKING + INTERVAL).await;
        assert_eq!(api.names("configmaps"), [lease::MARK], "{what}");
        assert!(!one.is_finished(), "{what}: it leads on");
        one.abort();
    }
}

/// The mark costs another answer: the term counts from the request that takes the Lease.
#[tokio::test(start_paused = true)]
async fn a_slow_api_server_does_not_delay_renewals() {
    let (api, clock, log) = (InMemory::default(), Clock::of_tests(), Log::default());
    api.put(&lease::released(&lease::new("before", clock.time().0)));
    let one = starts(Cut { takes: seconds(3), ..Cut::of(&api) }, &clock, &log, "one", LONG);
    sleep(seconds(60)).await;
    assert!(log.first("one").is_some() && !one.is_finished(), "it leads on");
    one.abort();
}

/// A version without marks leads, and the Lease is deleted after a candidate has seen it.
#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_not_a_missing_one() {
    let (api, clock, log) = (InMemory::default(), Clock::of_tests(), Log::default());
    api.put(&lease::new("an earlier version", clock.time().0));
    let one = starts(api.clone(), &clock, &log, "one", LONG);
    sleep(seconds(5)).await;
    api.remove::<Lease>(Some(SYSTEM), NAME);
    let since = clock.now();
    sleep(seconds(60)).await;
    assert!(log.first("one").unwrap() >= since + LEASE + MARGIN, "{:?}", log.first("one"));
    one.abort();
}

/// A controller of another build also leaves a missing Lease to others.
#[tokio::test(start_paused = true)]
async fn another_build_is_never_the_first() {
    let (api, clock, log) = (InMemory::default(), Clock::of_tests(), Log::default());
    let newer = starts_of((api.clone(), "another"), &clock, &log, "newer", LONG);
    sleep(seconds(30)).await;
    assert_eq!(log.first("newer"), None);
    sleep(seconds(60)).await;
    assert!(log.first("newer").unwrap() >= seconds(60) + MARGIN, "{:?}", log.first("newer"));
    newer.abort();
}
