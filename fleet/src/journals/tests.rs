//! What of several commands' journals goes, and what never does.

use std::collections::BTreeSet;

use super::*;
use crate::lease::{DirectoryStore, Store, TakeOver, sorted};

fn folder() -> (tempfile::TempDir, DirectoryStore) {
    let directory = tempfile::tempdir().unwrap();
    let folder = DirectoryStore::at(directory.path().join("authority"));
    (directory, folder)
}

async fn take(store: &DirectoryStore) -> Lease<'_> {
    Lease::acquire(store, "a test", TakeOver::FromTheDead, &|_| {}).await.unwrap()
}

/// A command that begins with this file, after what is too much has gone.
async fn command(store: &DirectoryStore, file: Option<(&str, &str)>) {
    let hold = take(store).await;
    prune(&hold, &watch::channel(false).1).await.unwrap();
    if let Some((file, text)) = file {
        store.write(hold.number(), file, text).await.unwrap();
    }
    hold.release().await;
}

const NOTE: (&str, &str) = ("deploy-000003.json", "{\"cluster\":\"control\"}");
const HALF: (&str, &str) = ("deploy-000001.json", "{\"cluster\":\"con");

async fn note(store: &DirectoryStore) -> (u64, String) {
    let note = deployment::last(store).await.unwrap().unwrap();
    (note.hold, note.text)
}

#[tokio::test(start_paused = true)]
async fn what_was_noted_of_a_cluster_outlives_any_number_of_its_upgrades() {
    let (_directory, folder) = folder();
    command(&folder, Some(NOTE)).await;
    for upgrade in 1..=50_u64 {
        let lines = format!("{{\"upgrade\":{upgrade}}}\n");
        command(&folder, Some((upgrade::FILE, &beginning(&lines).unwrap()))).await;
        let (hold, text) = note(&folder).await;
        assert_eq!(text, NOTE.1, "after {upgrade} upgrades");
        assert!(hold > upgrade.saturating_sub(20), "{upgrade}: it is in hold {hold}");
        assert_eq!(upgrade::last(&folder).await.unwrap().unwrap().1, lines);
        assert!(sorted(&folder).await.unwrap().len() <= 21);
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_asked_to_end_clears_nothing_away_any_more_and_the_next_one_does() {
    let (_directory, folder) = folder();
    for _ in 1..=30 {
        take(&folder).await.release().await;
    }
    let (_cancel, cancelled) = watch::channel(true);
    let hold = take(&folder).await;
    prune(&hold, &cancelled).await.unwrap();
    hold.release().await;
    assert_eq!(sorted(&folder).await.unwrap(), (1..=31).collect::<Vec<_>>());
    command(&folder, None).await;
    assert_eq!(sorted(&folder).await.unwrap(), (13..=32).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_outlives_any_number_of_the_clusters_own_commands() {
    let (_directory, folder) = folder();
    let hold = take(&folder).await;
    folder.write(hold.number(), upgrade::FILE, &beginning("{\"a\":1}\n").unwrap()).await.unwrap();
    folder.write(hold.number(), &upgrade::added(1, 1), "{\"a\":2}\n").await.unwrap();
    hold.release().await;
    for _ in 1..=50 {
        command(&folder, Some(NOTE)).await;
        assert_eq!(upgrade::last(&folder).await.unwrap().unwrap().1, "{\"a\":1}\n{\"a\":2}\n");
        assert!(sorted(&folder).await.unwrap().len() <= 21);
    }
}

/// Who goes on with it writes the file of its copy anew, and is killed at that.
#[tokio::test(start_paused = true)]
async fn an_upgrades_journal_that_was_copied_outlives_who_is_cut_off_while_writing_it_again() {
    let (_directory, folder) = folder();
    let lines = "{\"a\":1}\n";
    let whole = beginning(lines).unwrap();
    command(&folder, Some((upgrade::FILE, &whole))).await;
    for _ in 2..=20 {
        command(&folder, None).await;
    }
    for hold in 21..=23 {
        command(&folder, Some((upgrade::FILE, &whole[..5]))).await;
        assert_eq!(upgrade::last(&folder).await.unwrap(), Some((1, lines.to_owned())), "hold {hold}");
    }
    // Once it was written whole in a later one, the old one goes.
    command(&folder, Some((upgrade::FILE, &whole))).await;
    command(&folder, None).await;
    assert_eq!(upgrade::last(&folder).await.unwrap(), Some((24, lines.to_owned())));
    assert_eq!(sorted(&folder).await.unwrap(), (6..=25).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_note_that_was_cut_takes_away_none_before_it() {
    let (_directory, folder) = folder();
    command(&folder, Some(NOTE)).await;
    command(&folder, Some(HALF)).await;
    for _ in 1..=50 {
        command(&folder, None).await;
        assert_eq!(note(&folder).await.1, NOTE.1);
    }
    assert_eq!(sorted(&folder).await.unwrap().len(), 20);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_or_is_nobodys_here_stays_and_so_does_all_above_it() {
    for (file, text) in [
        ("tenants-000001.json", "{}"),
        ("deploy-.json", "{}"),
        ("notes.txt", ""),
        // Of a later version, or damaged.
        (upgrade::FILE, "{\"form\":9,\"entries\":0}\n"),
        ("deploy-000001.json", "{\"cluster\": what"),
    ] {
        let (_directory, folder) = folder();
        command(&folder, None).await;
        command(&folder, Some((file, text))).await;
        for _ in 1..=30 {
            command(&folder, None).await;
        }
        assert_eq!(sorted(&folder).await.unwrap(), (2..=32).collect::<Vec<_>>(), "{file}");
        assert_eq!(folder.read(2, file).await.unwrap().as_deref(), Some(text));
    }
}

#[tokio::test(start_paused = true)]
async fn workers_journals_stay_until_a_later_hold_has_begun_with_them() {
    let (_directory, folder) = folder();
    command(&folder, Some((workers::POOL, &beginning("{}\n").unwrap()))).await;
    for _ in 1..=30 {
        command(&folder, Some((workers::POOL, "{\"form\":3,\"entr"))).await;
    }
    assert_eq!(sorted(&folder).await.unwrap().first(), Some(&1));
    command(&folder, Some((workers::POOL, &beginning("{}\n").unwrap()))).await;
    command(&folder, None).await;
    assert_eq!(sorted(&folder).await.unwrap().len(), 20);
}

#[tokio::test(start_paused = true)]
async fn of_a_cluster_that_is_gone_the_last_hold_stays_alone_and_nothing_of_anybody_else() {
    for strange in [None, Some("notes.txt"), Some(workers::POOL)] {
        let (directory, folder) = folder();
        command(&folder, Some(NOTE)).await;
        command(&folder, strange.map(|file| (file, ""))).await;
        command(&folder, Some((upgrade::FILE, &beginning("{}\n").unwrap()))).await;
        let place = directory.path().join("authority");
        std::fs::create_dir(place.join("foreign")).unwrap();
        std::fs::create_dir(place.join("1")).unwrap();
        std::fs::write(place.join("000001.txt"), "somebody else's").unwrap();
        let hold = take(&folder).await;
        // Who is asked to end leaves it to the next one.
        let (_cancel, cancelled) = watch::channel(true);
        clear(&hold, &cancelled).await;
        assert_eq!(sorted(&folder).await.unwrap(), [1, 2, 3, 4], "{strange:?}");
        clear(&hold, &watch::channel(false).1).await;
        // It still has the deployment, and nobody else does.
        hold.confirm().await.unwrap();
        hold.release().await;
        let left: BTreeSet<String> =
            std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        let holds = if strange.is_some() { &["000002", "000003", "000004"][..] } else { &["000004"] };
        let expected = ["foreign", "1", "000001.txt"].iter().chain(holds).map(|name| (*name).to_owned()).collect();
        assert_eq!(left, expected, "{strange:?}");
        assert_eq!(take(&folder).await.number(), 5, "no number comes again");
    }
}

#[test]
fn a_store_that_keeps_something_else_than_files_is_told_what_each_is() {
    for (name, is) in [
        (File::DEPLOYMENT, File::Deployment),
        (&*deployment::file(0), File::Deployment),
        (&deployment::file(7), File::Deployment),
        (File::UPGRADE, File::UpgradeBegun),
        (&upgrade::added(3, 1), File::UpgradeAdded { attempt: 1 }),
        (&upgrade::added(3, 2), File::UpgradeAdded { attempt: 2 }),
        (workers::POOL, File::Workers),
        (&workers::changed(7, "pool"), File::Workers),
        ("holder.json", File::Other),
        ("journal-x.json", File::Other),
    ] {
        assert_eq!(File::of(name), is, "{name}");
    }
}

#[test]
fn each_file_is_of_one_kind_by_the_name_that_it_is_written_under() {
    let machine = workers::journal("w-1");
    let changed = workers::changed(7, "pool");
    for (file, kind) in [
        (upgrade::FILE, Kind::Upgrade),
        (&upgrade::added(1, 1), Kind::Upgrade),
        (&upgrade::added(12, 3), Kind::Upgrade),
        (&deployment::file(0), Kind::Deployment),
        (&deployment::file(1_234_567), Kind::Deployment),
        (workers::POOL, Kind::Workers),
        (workers::ALL, Kind::Workers),
        (&machine, Kind::Workers),
        (&changed, Kind::Workers),
        // Put aside by a person.
        ("pool.jsonl.damaged", Kind::Workers),
        (&format!("{machine}.damaged"), Kind::Workers),
        (&format!("{changed}.damaged"), Kind::Workers),
    ] {
        assert_eq!(Kind::of(file), Some(kind), "{file}");
        assert!(!is_of_hold(file), "{file}");
    }
    for file in ["released", "holder.json", "journal-x.json", "deploy-1", "worker-1.json", "x", "x.damaged", ".damaged"]
    {
        assert_eq!(Kind::of(file), None, "{file}");
    }
}
