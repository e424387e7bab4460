//! Who is the first of all, by the mark, and by whom it is made again.

use super::*;

/// Where the answer to the mark or to the Lease is lost, somebody may have led.
#[tokio::test(start_paused = true)]
async fn the_first_one_begins_at_once_only_where_it_knows_that_it_is() {
    // The Lease is looked for, then the mark is made, then the Lease.
    for (call, fault) in [(1, Fault::NotDone), (1, Fault::Done), (2, Fault::NotDone), (2, Fault::Done)] {
        let (api, clock, log) = (InMemory::default(), Clock::of_tests(), Log::default());
        api.fails_at(call, fault);
        let one = starts(api.clone(), &clock, &log, "one", LONG);
        sleep(seconds(60)).await;
        assert!(log.first("one").unwrap() >= MARGIN, "{fault:?} at {call}: {:?}", log.first("one"));
        // A mark that was not made is made the next time.
        assert_eq!(api.names("configmaps"), [lease::MARK], "{fault:?} at {call}");
        one.abort();
    }
}

/// Who has made the mark finds that another one, which has found it, has made the Lease before it.
#[tokio::test(start_paused = true)]
async fn who_has_made_the_mark_follows_who_has_made_the_lease() {
    let (api, clock, log) = (InMemory::default(), Clock::of_tests(), Log::default());
    let cut = Cut::of(&api);
    *cut.raced.lock().unwrap() = Some(lease::new(lease::UNKNOWN, clock.time().0));
    let one = starts(cut, &clock, &log, "one", LONG);
    sleep(seconds(60)).await;
    assert!(log.first("one").unwrap() >= LEASE + MARGIN, "{:?}", log.first("one"));
    one.abort();
}

/// Whoever removes Lease and mark while a leader cannot find out: who has seen that one waits all the same.
#[tokio::test(start_paused = true)]
async fn who_has_seen_the_lease_is_not_the_first_where_lease_and_mark_are_removed() {
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

/// A leader makes the mark again that somebody has removed: who comes first after that one is not the first of all.
#[tokio::test(start_paused = true)]
async fn a_mark_that_was_removed_is_there_again_before_the_lease_is_removed() {
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

/// Who takes the Lease makes the mark that is not there, also where it has found it before.
#[tokio::test(start_paused = true)]
async fn who_takes_the_lease_makes_the_mark_where_it_was_removed() {
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

/// Its memory is gone, and its term of before may not be over by the clock.
#[tokio::test(start_paused = true)]
async fn who_has_led_is_not_the_first_where_nothing_is_left_of_that() {
    for (has_led, wait) in [(false, Duration::ZERO), (true, LEASE + MARGIN)] {
        let (api, clock) = (InMemory::default(), Clock::of_tests());
        let candidate = Candidate::new(Arc::new(api), clock.clone(), "one", Duration::ZERO).having_led(has_led);
        let begun = clock.now();
        candidate.lead(|_| std::future::ready(())).await.unwrap();
        let after = clock.now() - begun;
        assert!(after >= wait && after < wait + seconds(5), "{has_led}: {after:?}");
    }
}

/// As while images are swapped: the rights of the version that leads come with its kinds, later.
#[tokio::test(start_paused = true)]
async fn who_may_make_no_mark_leads_as_one_that_follows_and_makes_it_once_it_may() {
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

/// Whatever the Lease is, somebody leads: who takes one that is there, or may not be the first, needs no mark for that.
#[tokio::test(start_paused = true)]
async fn a_webhook_that_is_down_keeps_the_mark_from_being_made_and_nobody_from_leading() {
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

/// The mark that is looked for before is an answer more: the term counts from the request that takes the Lease.
#[tokio::test(start_paused = true)]
async fn who_takes_the_lease_from_a_slow_api_server_renews_it_in_time() {
    let (api, clock, log) = (InMemory::default(), Clock::of_tests(), Log::default());
    api.put(&lease::released(&lease::new("before", clock.time().0)));
    let one = starts(Cut { takes: seconds(3), ..Cut::of(&api) }, &clock, &log, "one", LONG);
    sleep(seconds(60)).await;
    assert!(log.first("one").is_some() && !one.is_finished(), "it leads on");
    one.abort();
}

/// A version that knows of no mark leads, and the Lease is removed once somebody has seen it.
#[tokio::test(start_paused = true)]
async fn a_removed_lease_is_not_taken_for_one_that_was_never_there() {
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

/// One of another build leaves the Lease to others where there is none, too.
#[tokio::test(start_paused = true)]
async fn another_build_is_not_the_first_of_all() {
    let (api, clock, log) = (InMemory::default(), Clock::of_tests(), Log::default());
    let newer = starts_of((api.clone(), "another"), &clock, &log, "newer", LONG);
    sleep(seconds(30)).await;
    assert_eq!(log.first("newer"), None);
    sleep(seconds(60)).await;
    assert!(log.first("newer").unwrap() >= seconds(60) + MARGIN, "{:?}", log.first("newer"));
    newer.abort();
}
