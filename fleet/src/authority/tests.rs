//! Holds in a directory: taken once, lost to the higher number, never believed for long.

use std::time::Duration;

use super::*;
use crate::authority::Folder;

fn folder() -> (tempfile::TempDir, Folder) {
    let directory = tempfile::tempdir().unwrap();
    let folder = Folder::at(directory.path().join("authority"));
    (directory, folder)
}

async fn take(store: &Folder, over: TakeOver) -> anyhow::Result<Hold<'_>> {
    Hold::take_with(store, "a test", over, &|_| {}, Duration::from_secs(10), Duration::ZERO).await
}

/// Somebody on another machine, who cannot be asked whether he lives.
async fn another(store: &Folder, number: u64) {
    let again = number > 1 && !store.numbers().await.unwrap().contains(&(number - 1));
    if again {
        assert!(store.make(number - 1).await.unwrap());
    }
    assert!(store.make(number).await.unwrap());
    let holder =
        Holder { boot: "another machine's".to_owned(), who: "eve@elsewhere".to_owned(), ..Holder::this("x", 1) };
    store.write(number, HOLDER, &serde_json::to_string(&holder).unwrap()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_command_holds_it_until_it_gives_it_back() {
    let (_directory, folder) = folder();
    assert_eq!(standing(&folder).await.unwrap(), Standing::Free);
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
    let hold = Hold::take_with(&folder, "t", TakeOver::FromTheDead, &|_| {}, Duration::ZERO, Duration::ZERO).await;
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
    // A store without any number has lost this one as well.
    assert!(hold.confirm().await.unwrap_err().downcast_ref::<Lost>().is_some());
}
