//! Which journals of several commands are removed, and which never.

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

/// A command that begins with this file, after old leases were removed.
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
async fn cluster_journal_outlives_many_upgrades() {
    let (_directory, folder) = folder();
    command(&folder, Some(NOTE)).await;
    for upgrade in 1..=50_u64 {
        let lines = format!("{{\"upgrade\":{upgrade}}}\n");
        command(&folder, Some((upgrade::FILE, &beginning(&lines).unwrap()))).await;
        let (hold, text) = note(&folder).await;
        assert_eq!(text, NOTE.1, "after {upgrade} upgrades");
        assert!(hold > upgrade.saturating_sub(20), "{upgrade}: it is in lease {hold}");
        assert_eq!(upgrade::last(&folder).await.unwrap().unwrap().1, lines);
        assert!(sorted(&folder).await.unwrap().len() <= 21);
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_command_leaves_clearing_to_the_next() {
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
async fn upgrade_journal_outlives_many_cluster_commands() {
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

/// The command that continues it is killed while it writes the file of its copy again.
#[tokio::test(start_paused = true)]
async fn copied_upgrade_journal_survives_an_interrupted_rewrite() {
    let (_directory, folder) = folder();
    let lines = "{\"a\":1}\n";
    let whole = beginning(lines).unwrap();
    command(&folder, Some((upgrade::FILE, &whole))).await;
    for _ in 2..=20 {
        command(&folder, None).await;
    }
    for hold in 21..=23 {
        command(&folder, Some((upgrade::FILE, &whole[..5]))).await;
        assert_eq!(upgrade::last(&folder).await.unwrap(), Some((1, lines.to_owned())), "lease {hold}");
    }
    // Once it was written whole in a later one, the old one is removed.
    command(&folder, Some((upgrade::FILE, &whole))).await;
    command(&folder, None).await;
    assert_eq!(upgrade::last(&folder).await.unwrap(), Some((24, lines.to_owned())));
    assert_eq!(sorted(&folder).await.unwrap(), (6..=25).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn cut_entry_removes_no_earlier_entry() {
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
async fn unreadable_or_foreign_lease_stays_with_all_above() {
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
async fn workers_journals_stay_until_a_later_lease_copies() {
    let (_directory, folder) = folder();
    command(&folder, Some((workers::POOL, &beginning("{}\n").unwrap()))).await;
    for _ in 1..=30 {
        command(&folder, Some((workers::POOL, "{\"form\":4,\"entr"))).await;
    }
    assert_eq!(sorted(&folder).await.unwrap().first(), Some(&1));
    command(&folder, Some((workers::POOL, &beginning("{}\n").unwrap()))).await;
    command(&folder, None).await;
    assert_eq!(sorted(&folder).await.unwrap().len(), 20);
}

#[tokio::test(start_paused = true)]
async fn removed_cluster_keeps_its_last_lease_only() {
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
        // A command that was asked to end leaves it to the next one.
        let (_cancel, cancelled) = watch::channel(true);
        clear(&hold, &cancelled).await;
        assert_eq!(sorted(&folder).await.unwrap(), [1, 2, 3, 4], "{strange:?}");
        clear(&hold, &watch::channel(false).1).await;
        // It still holds the deployment, and no other command does.
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
fn store_without_files_gets_each_kind() {
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
fn each_file_name_belongs_to_one_kind() {
    let machine = workers::journal("w-1");
    let changed = workers::changed(7, "pool");
    for (file, kind) in [
        (upgrade::FILE, Kind::Upgrade),
        (&upgrade::added(1, 1), Kind::Upgrade),
        (&upgrade::added(12, 3), Kind::Upgrade),
        (&deployment::file(0), Kind::Deployment),
        (&deployment::file(1_234_567), Kind::Deployment),
        (workers::POOL, Kind::Workers),
        (&machine, Kind::Workers),
        (&changed, Kind::Workers),
        // Put aside by an operator.
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
