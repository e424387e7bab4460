//! Leases in a directory: acquired once, lost to the higher number, and valid only for a short time.

use std::time::Duration;

use super::*;
use crate::lease::{DirectoryStore, standing};

pub(super) fn folder() -> (tempfile::TempDir, DirectoryStore) {
    let directory = tempfile::tempdir().unwrap();
    let folder = DirectoryStore::at(directory.path().join("authority"));
    (directory, folder)
}

pub(super) async fn take(store: &DirectoryStore, over: TakeOver) -> anyhow::Result<Lease<'_>> {
    Lease::take_with(store, "a test", over, &|_| {}, Duration::from_secs(10), Duration::ZERO).await
}

/// A holder on another machine, whose process cannot be checked.
async fn another(store: &DirectoryStore, number: u64) {
    let again = number > 1 && !store.numbers().await.unwrap().contains(&(number - 1));
    if again {
        assert!(store.make(number - 1).await.unwrap());
    }
    assert!(store.make(number).await.unwrap());
    let holder = Holder { who: "eve@elsewhere".to_owned(), process: None, ..Holder::this("x", 1) };
    store.write(number, HOLDER, &serde_json::to_string(&holder).unwrap()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn dry_run_lease_permits_no_change() {
    let hold = Lease::unacquired();
    assert!(hold.confirm().await.is_err_and(|error| !error.is::<Lost>()));
    assert!(!hold.is_fresh() && crate::engine::may(&hold).await.is_err());
    hold.renew().await.expect("a wait continues");
    assert_eq!(hold.rest(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn one_command_holds_the_lease_until_release() {
    let (_directory, folder) = folder();
    assert_eq!(standing(&folder).await.unwrap(), LeaseState::Free);
    let first = take(&folder, TakeOver::FromTheDead).await.unwrap();
    let refused = take(&folder, TakeOver::FromTheDead).await.err().unwrap().to_string();
    assert!(refused.contains("a test") && refused.contains("holds the lease of this deployment"), "{refused}");
    first.confirm().await.unwrap();
    first.release().await;
    assert_eq!(take(&folder, TakeOver::FromTheDead).await.unwrap().number(), 2);
}

#[tokio::test(start_paused = true)]
async fn former_holder_learns_the_name_of_its_successor() {
    let (_directory, folder) = folder();
    let first = take(&folder, TakeOver::FromTheDead).await.unwrap();
    let second = take(&folder, TakeOver::FromAnyone).await.unwrap();
    let lost = first.confirm().await.unwrap_err();
    assert!(lost.downcast_ref::<Lost>().is_some() && lost.to_string().contains("a test"), "{lost}");
    second.confirm().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn takeover_from_another_machine_is_explicit_and_waits() {
    let (_directory, folder) = folder();
    another(&folder, 1).await;
    let refused = take(&folder, TakeOver::FromTheDead).await.err().unwrap().to_string();
    assert!(refused.contains("eve@elsewhere"), "{refused}");
    let begun = tokio::time::Instant::now();
    take(&folder, TakeOver::FromAnyone).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn takeover_fails_if_another_command_takes_over() {
    let (_directory, folder) = folder();
    another(&folder, 1).await;
    let (taken, ()) = tokio::join!(take(&folder, TakeOver::FromAnyone), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        another(&folder, 3).await;
    });
    assert!(taken.err().unwrap().to_string().contains("eve@elsewhere"));
}

#[tokio::test]
async fn confirmation_expires_after_its_window() {
    let (_directory, folder) = folder();
    let hold = Lease::take_with(&folder, "t", TakeOver::FromTheDead, &|_| {}, Duration::ZERO, Duration::ZERO).await;
    assert!(!hold.unwrap().is_fresh());
    let hold = take(&folder, TakeOver::FromAnyone).await;
    assert!(hold.unwrap().is_fresh());
}

#[tokio::test]
async fn unreadable_store_confirms_nothing() {
    let (directory, folder) = folder();
    let hold = take(&folder, TakeOver::FromTheDead).await.unwrap();
    let place = directory.path().join("authority");
    std::fs::remove_dir_all(&place).unwrap();
    std::fs::write(&place, "").unwrap();
    let error = hold.confirm().await.unwrap_err();
    assert!(error.downcast_ref::<Lost>().is_none(), "{error:#}");
    std::fs::remove_file(&place).unwrap();
    assert!(hold.store().write(1, SEEN, "1").await.is_err(), "what was removed is not made again");
    assert!(!folder.exists(1).await.unwrap());
}

/// Removes old leases below a number, as a command does.
pub(super) async fn remove_old(hold: &Lease<'_>, to: u64) {
    for number in hold.old().iter().filter(|number| **number < to) {
        if hold.remove(*number).await.is_err() {
            return;
        }
    }
}

/// A lease whose confirmation is too old at once, as that of a frozen command that wakes up.
pub(super) async fn frozen(store: &DirectoryStore) -> Lease<'_> {
    let over = TakeOver::FromAnyone;
    Lease::take_with(store, "a test", over, &|_| {}, Duration::ZERO, Duration::ZERO).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn removed_old_lease_is_lost() {
    let (_directory, folder) = folder();
    let first = frozen(&folder).await;
    for number in 2..=60 {
        let hold = frozen(&folder).await;
        assert_eq!((hold.number(), !hold.old().is_empty()), (number, number > KEPT as u64));
        remove_old(&hold, u64::MAX).await;
        hold.release().await;
        let lost = first.confirm().await.unwrap_err();
        assert!(lost.is::<Lost>(), "{number}: {lost:#}");
    }
    let numbers = sorted(&folder).await.unwrap();
    assert_eq!(numbers, (41..=60).collect::<Vec<_>>());
    assert!(!folder.exists(2).await.unwrap(), "its successor is gone as well");
    assert_eq!(take(&folder, TakeOver::FromTheDead).await.unwrap().number(), 61, "no number comes again");
}

#[tokio::test(start_paused = true)]
async fn pruning_keeps_a_needed_lease_and_later_ones() {
    let (_directory, folder) = folder();
    for _ in 1..=30 {
        frozen(&folder).await.release().await;
    }
    let hold = frozen(&folder).await;
    remove_old(&hold, 5).await;
    assert_eq!(sorted(&folder).await.unwrap(), (5..=31).collect::<Vec<_>>());
    // A failed removal ends the pruning and nothing else.
    remove_old(&hold, u64::MAX).await;
    assert_eq!(sorted(&folder).await.unwrap(), (5..=31).collect::<Vec<_>>());
    hold.confirm().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn unreadable_holder_counts_as_alive() {
    let (_directory, folder) = folder();
    for cut in [None, Some(""), Some("{\"who\":\"eve@el")] {
        let number = folder.numbers().await.unwrap().into_iter().max().unwrap_or_default() + 1;
        assert!(folder.make(number).await.unwrap());
        if let Some(cut) = cut {
            folder.write(number, HOLDER, cut).await.unwrap();
        }
        let refused = take(&folder, TakeOver::FromTheDead).await.err().unwrap().to_string();
        let said = format!(
            "a command without a name (lease {number}) holds the lease of this deployment: it has just started, or was \
             killed before it wrote its name"
        );
        assert_eq!(refused, said);
        assert!(standing(&folder).await.unwrap().holder().unwrap().contains("without a name"));
        let hold = take(&folder, TakeOver::FromAnyone).await.unwrap();
        hold.release().await;
    }
}

#[tokio::test(start_paused = true)]
async fn cut_write_of_seen_keeps_the_holder() {
    let (_directory, folder) = folder();
    let hold = take(&folder, TakeOver::FromTheDead).await.unwrap();
    let since = holder(&folder, 1).await.unwrap().unwrap().seen;
    hold.state().shown = Duration::ZERO;
    hold.confirm().await.unwrap();
    assert!(folder.read(1, SEEN).await.unwrap().is_some());
    folder.write(1, SEEN, &(since + 100).to_string()).await.unwrap();
    assert_eq!(holder(&folder, 1).await.unwrap().unwrap().seen, since + 100);
    for cut in ["", "17"] {
        folder.write(1, SEEN, cut).await.unwrap();
        assert_eq!(holder(&folder, 1).await.unwrap().unwrap().seen, since);
    }
}

/// The result of `cp -a` on a lease.
fn copy(place: &std::path::Path, from: &str, to: &str) {
    std::fs::create_dir(place.join(to)).unwrap();
    for entry in std::fs::read_dir(place.join(from)).unwrap().map(Result::unwrap) {
        std::fs::copy(entry.path(), place.join(to).join(entry.file_name())).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn takeover_fails_at_a_gap_from_a_copy() {
    for (to, named) in [("20260611", "20260611"), ("18446744073709551615", "18446744073709551615")] {
        let (directory, folder) = folder();
        let place = directory.path().join("authority");
        for _ in 1..=6 {
            take(&folder, TakeOver::FromTheDead).await.unwrap().release().await;
        }
        let hold = take(&folder, TakeOver::FromTheDead).await.unwrap();
        copy(&place, "000007", to);
        let Err(error) = take(&folder, TakeOver::FromAnyone).await else { panic!("two may go on") };
        let error = format!("{error:#}");
        assert!(error.contains("after lease 7 comes") && error.contains(&format!("Look at {named}")), "{error}");
        assert!(standing(&folder).await.is_err());
        hold.confirm().await.unwrap();
        // After the copy is moved away, another command can take over and the lease is lost.
        std::fs::rename(place.join(to), directory.path().join("copy")).unwrap();
        assert_eq!(take(&folder, TakeOver::FromAnyone).await.unwrap().number(), 8);
        assert!(hold.confirm().await.unwrap_err().is::<Lost>());
    }
}

#[tokio::test(start_paused = true)]
async fn gap_error_names_the_odd_number() {
    let (directory, folder) = folder();
    let place = directory.path().join("authority");
    std::fs::create_dir_all(&place).unwrap();
    for _ in 1..=3 {
        take(&folder, TakeOver::FromTheDead).await.unwrap().release().await;
    }
    std::fs::rename(place.join("000002"), directory.path().join("away")).unwrap();
    let error = format!("{:#}", standing(&folder).await.unwrap_err());
    assert!(error.contains("after lease 1 comes lease 3"), "{error}");
    std::fs::rename(place.join("000001"), place.join("18446744073709551615")).unwrap();
    std::fs::remove_dir_all(place.join("000003")).unwrap();
    let error = format!("{:#}", take(&folder, TakeOver::FromAnyone).await.err().unwrap());
    assert!(error.contains("no number follows 18446744073709551615"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn other_directory_names_are_not_leases() {
    let (directory, folder) = folder();
    take(&folder, TakeOver::FromTheDead).await.unwrap().release().await;
    for name in ["7", "+7", "0000001", "000002.bak"] {
        std::fs::create_dir(directory.path().join("authority").join(name)).unwrap();
    }
    assert_eq!(folder.numbers().await.unwrap(), [1]);
    assert_eq!(take(&folder, TakeOver::FromTheDead).await.unwrap().number(), 2);
}
