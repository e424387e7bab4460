//! Holds in a directory: taken once, lost to the higher number, never believed for long.

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

/// Somebody on another machine, who cannot be asked whether he lives.
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
async fn one_command_holds_it_until_it_gives_it_back() {
    let (_directory, folder) = folder();
    assert_eq!(standing(&folder).await.unwrap(), LeaseState::Free);
    let first = take(&folder, TakeOver::FromTheDead).await.unwrap();
    let refused = take(&folder, TakeOver::FromTheDead).await.err().unwrap().to_string();
    assert!(refused.contains("a test") && refused.contains("is at work on this deployment"), "{refused}");
    first.confirm().await.unwrap();
    first.release().await;
    assert_eq!(take(&folder, TakeOver::FromTheDead).await.unwrap().number(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_command_that_was_taken_over_from_finds_out_and_names_the_other() {
    let (_directory, folder) = folder();
    let first = take(&folder, TakeOver::FromTheDead).await.unwrap();
    let second = take(&folder, TakeOver::FromAnyone).await.unwrap();
    let lost = first.confirm().await.unwrap_err();
    assert!(lost.downcast_ref::<Lost>().is_some() && lost.to_string().contains("a test"), "{lost}");
    second.confirm().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn from_another_machine_it_is_taken_by_an_explicit_word_after_the_wait() {
    let (_directory, folder) = folder();
    another(&folder, 1).await;
    let refused = take(&folder, TakeOver::FromTheDead).await.err().unwrap().to_string();
    assert!(refused.contains("eve@elsewhere"), "{refused}");
    let begun = tokio::time::Instant::now();
    take(&folder, TakeOver::FromAnyone).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn who_is_overtaken_during_the_wait_does_not_begin() {
    let (_directory, folder) = folder();
    another(&folder, 1).await;
    let (taken, ()) = tokio::join!(take(&folder, TakeOver::FromAnyone), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        another(&folder, 3).await;
    });
    assert!(taken.err().unwrap().to_string().contains("eve@elsewhere"));
}

#[tokio::test]
async fn a_confirmation_is_not_believed_after_its_window() {
    let (_directory, folder) = folder();
    let hold = Lease::take_with(&folder, "t", TakeOver::FromTheDead, &|_| {}, Duration::ZERO, Duration::ZERO).await;
    assert!(!hold.unwrap().is_fresh());
    let hold = take(&folder, TakeOver::FromAnyone).await;
    assert!(hold.unwrap().is_fresh());
}

#[tokio::test]
async fn when_nobody_can_say_nothing_is_confirmed() {
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

/// Removes old holds as a command does, those below a number.
pub(super) async fn remove_old(hold: &Lease<'_>, to: u64) {
    for number in hold.old().iter().filter(|number| **number < to) {
        if hold.remove(*number).await.is_err() {
            return;
        }
    }
}

/// A hold whose confirmation is an old one at once, as a frozen command's is when it wakes up.
pub(super) async fn frozen(store: &DirectoryStore) -> Lease<'_> {
    let over = TakeOver::FromAnyone;
    Lease::take_with(store, "a test", over, &|_| {}, Duration::ZERO, Duration::ZERO).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn old_holds_are_removed_and_a_frozen_one_whose_directory_is_gone_is_lost() {
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
async fn what_is_needed_stays_with_all_that_came_after_it() {
    let (_directory, folder) = folder();
    for _ in 1..=30 {
        frozen(&folder).await.release().await;
    }
    let hold = frozen(&folder).await;
    remove_old(&hold, 5).await;
    assert_eq!(sorted(&folder).await.unwrap(), (5..=31).collect::<Vec<_>>());
    // What cannot be removed ends the pruning, and nothing else.
    remove_old(&hold, u64::MAX).await;
    assert_eq!(sorted(&folder).await.unwrap(), (5..=31).collect::<Vec<_>>());
    hold.confirm().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_cannot_be_read_counts_as_alive_and_the_words_say_why() {
    let (_directory, folder) = folder();
    for cut in [None, Some(""), Some("{\"who\":\"eve@el")] {
        let number = folder.numbers().await.unwrap().into_iter().max().unwrap_or_default() + 1;
        assert!(folder.make(number).await.unwrap());
        if let Some(cut) = cut {
            folder.write(number, HOLDER, cut).await.unwrap();
        }
        let refused = take(&folder, TakeOver::FromTheDead).await.err().unwrap().to_string();
        let said = format!(
            "a command without a name (hold {number}) is at work on this deployment: it has just begun, or was killed \
             before it had said its name"
        );
        assert_eq!(refused, said);
        assert!(standing(&folder).await.unwrap().holder().unwrap().contains("without a name"));
        let hold = take(&folder, TakeOver::FromAnyone).await.unwrap();
        hold.release().await;
    }
}

#[tokio::test(start_paused = true)]
async fn that_it_lives_is_shown_beside_the_name_which_no_cut_write_takes_away() {
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

/// What `cp -a` makes of a hold.
fn copy(place: &std::path::Path, from: &str, to: &str) {
    std::fs::create_dir(place.join(to)).unwrap();
    for entry in std::fs::read_dir(place.join(from)).unwrap().map(Result::unwrap) {
        std::fs::copy(entry.path(), place.join(to).join(entry.file_name())).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_takes_over_beyond_a_gap_that_a_copy_has_made() {
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
        assert!(error.contains("after hold 7 comes") && error.contains(&format!("Look at {named}")), "{error}");
        assert!(standing(&folder).await.is_err());
        hold.confirm().await.unwrap();
        // Moved away, it is in nobody's way, and the hold is lost to who takes over.
        std::fs::rename(place.join(to), directory.path().join("copy")).unwrap();
        assert_eq!(take(&folder, TakeOver::FromAnyone).await.unwrap().number(), 8);
        assert!(hold.confirm().await.unwrap_err().is::<Lost>());
    }
}

#[tokio::test(start_paused = true)]
async fn the_odd_one_is_named_also_where_it_is_the_lowest_and_no_number_follows_the_last() {
    let (directory, folder) = folder();
    let place = directory.path().join("authority");
    std::fs::create_dir_all(&place).unwrap();
    for _ in 1..=3 {
        take(&folder, TakeOver::FromTheDead).await.unwrap().release().await;
    }
    std::fs::rename(place.join("000002"), directory.path().join("away")).unwrap();
    let error = format!("{:#}", standing(&folder).await.unwrap_err());
    assert!(error.contains("after hold 1 comes hold 3"), "{error}");
    std::fs::rename(place.join("000001"), place.join("18446744073709551615")).unwrap();
    std::fs::remove_dir_all(place.join("000003")).unwrap();
    let error = format!("{:#}", take(&folder, TakeOver::FromAnyone).await.err().unwrap());
    assert!(error.contains("no number follows 18446744073709551615"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn only_what_is_named_as_a_hold_is_one() {
    let (directory, folder) = folder();
    take(&folder, TakeOver::FromTheDead).await.unwrap().release().await;
    for name in ["7", "+7", "0000001", "000002.bak"] {
        std::fs::create_dir(directory.path().join("authority").join(name)).unwrap();
    }
    assert_eq!(folder.numbers().await.unwrap(), [1]);
    assert_eq!(take(&folder, TakeOver::FromTheDead).await.unwrap().number(), 2);
}
