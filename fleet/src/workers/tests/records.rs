//! Records that are complete, cut, or left by an earlier lease.

use serde_json::json;

use super::fake::{World, pool, remove};
use crate::lease::{Lease, Store, TakeOver};
use crate::workers::{Goal, Image, PoolRecord, Records, RunOutcome, WorkerRecord, records};

async fn hold(world: &World) -> Lease<'_> {
    Lease::acquire(world, "a test", TakeOver::FromTheDead, &|_| {}).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_last_complete_change_counts() {
    let world = World::new();
    assert_eq!(records::read(&world).await.unwrap(), None);
    let first = hold(&world).await;
    let mut records = Records::begin(&first, PoolRecord { pool: pool(2), machines: Vec::new() }).await.unwrap();
    records.save_pool(pool(3)).await.unwrap();
    records.save_pool(pool(4)).await.unwrap();
    assert_eq!(records::read(&world).await.unwrap().unwrap().pool.count, 4);
    let text = world.read(first.number(), "worker-000002-pool.json").await.unwrap().unwrap();
    world.write(first.number(), "worker-000002-pool.json", &text[..text.len() / 2]).await.unwrap();
    assert_eq!(records::read(&world).await.unwrap().unwrap().pool.count, 3);
    first.release().await;

    // A lease that has begun nothing leaves the record of the one before.
    let second = hold(&world).await;
    assert_eq!(records::read(&world).await.unwrap().unwrap().pool.count, 3);
    world.write(second.number(), "pool.jsonl", "{\"form\":").await.unwrap();
    assert_eq!(records::read(&world).await.unwrap().unwrap().pool.count, 3);
    world.write(second.number(), "worker-000001-pool.json", &text).await.unwrap();
    let damaged = format!("{:#}", records::read(&world).await.unwrap_err());
    assert!(damaged.contains("missing or cut, and changes follow it"), "{damaged}");
}

#[tokio::test(start_paused = true)]
async fn a_damaged_journal_stops_only_its_worker() {
    let world = World::with(3).await;
    // The whole record is in the files that a lease begins with.
    let before = world.kept().await.unwrap();
    world.keep(before.clone()).await;
    let last = world.numbers().await.unwrap().into_iter().max().unwrap();
    for damage in ["{\"form\":4,\"entries\":1}\n{\"record\":\"mach", "", "{\"form\":4,\"entries\":1}\n{}\n"] {
        world.write(last, "machine-t-w2.json", damage).await.unwrap();
        let kept = world.kept().await.unwrap();
        assert_eq!((&kept.machines[0], &kept.machines[2]), (&before.machines[0], &before.machines[2]));
        let (lost, was) = (&kept.machines[1], &before.machines[1]);
        assert_eq!(
            (&lost.name, lost.id, lost.address, lost.bios_uuid),
            (&was.name, was.id, was.address, was.bios_uuid)
        );
        assert_eq!(lost.reason.as_ref().unwrap().code, "workers.journal-damaged");
    }
    // It is not changed, and is named.
    let (arrived, _) = world.give(Goal::Scale(3)).await.arrived();
    assert!(matches!(&arrived, RunOutcome::Stopped(why) if why[0].worker.as_deref() == Some("t-w2")), "{arrived:?}");
    assert_eq!(world.own(), ["t-w1", "t-w2", "t-w3"]);
    // A worker that is created again is drained first.
    world.give(Goal::GoOn).await.done();
    assert_eq!(world.own(), ["t-w1", "t-w3", "t-w4"]);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_complete_change_is_not_ignored() {
    let world = World::with(2).await;
    let before = world.kept().await.unwrap();
    let first = hold(&world).await;
    let mut records = Records::begin(&first, before.clone()).await.unwrap();
    let file = "worker-000001-t-w2.json";
    records.save_machine(before.machines[1].clone()).await.unwrap();
    let text = world.read(first.number(), file).await.unwrap().unwrap();
    let write = async |text: &str| world.write(first.number(), file, text).await.unwrap();
    let damaged = |kept: &PoolRecord| {
        let (lost, was) = (&kept.machines[1], &before.machines[1]);
        assert_eq!(lost.reason.as_ref().unwrap().code, "workers.journal-damaged");
        assert_eq!(
            (&lost.name, lost.id, lost.address, lost.bios_uuid),
            (&was.name, was.id, was.address, was.bios_uuid)
        );
        assert_eq!(kept.machines[0], before.machines[0]);
    };
    // A state of a later version; a file that is no longer JSON; and one without the first line, of an earlier version.
    let later = text.replace("\"Running\"", "\"tomorrow\"");
    assert_ne!(later, text);
    for whole in [later.as_str(), &text.replace("record", "reco\u{0}d")] {
        write(whole).await;
        damaged(&world.kept().await.unwrap());
    }
    write(later.split_once('\n').unwrap().1).await;
    assert!(records::read(&world).await.is_err());
    // A new worker is known by its readable fields: no other one gets its address.
    let new =
        WorkerRecord { name: "t-w3".to_owned(), address: Some([10, 0, 0, 22].into()), ..before.machines[1].clone() };
    write(&text).await;
    records.save_machine(new.clone()).await.unwrap();
    let file = "worker-000002-t-w3.json";
    let text = world.read(first.number(), file).await.unwrap().unwrap();
    world.write(first.number(), file, &text.replace("\"Running\"", "\"tomorrow\"")).await.unwrap();
    let kept = world.kept().await.unwrap();
    assert_eq!((kept.machines[2].id, kept.machines[2].address), (new.id, new.address));
    // Nothing is done if its VM and its address are unknown, or with an unknown format of another version.
    world.write(first.number(), file, &text.replace("record", "reco\u{0}d")).await.unwrap();
    let why = format!("{:#}", records::read(&world).await.unwrap_err());
    assert!(why.contains(file) && why.contains("which address are t-w3's"), "{why}");
    world.write(first.number(), file, &text.replace("\"form\":4", "\"form\":5")).await.unwrap();
    let why = format!("{:#}", records::read(&world).await.unwrap_err());
    assert!(why.contains(file) && why.contains("the format 5"), "{why}");
    first.release().await;
}

#[tokio::test(start_paused = true)]
async fn a_later_change_replaces_a_damaged_one() {
    let world = World::with(2).await;
    let before = world.kept().await.unwrap();
    let first = hold(&world).await;
    let mut records = Records::begin(&first, before.clone()).await.unwrap();
    let new =
        WorkerRecord { name: "t-w3".to_owned(), address: Some([10, 0, 0, 22].into()), ..before.machines[1].clone() };
    for machine in [&new, &new, &before.machines[0]] {
        records.save_machine(machine.clone()).await.unwrap();
    }
    let file = "worker-000001-t-w3.json";
    let text = world.read(first.number(), file).await.unwrap().unwrap();
    world.write(first.number(), file, &text.replace("record", "reco\u{0}d")).await.unwrap();
    assert_eq!(world.kept().await.unwrap().machines, [&before.machines[..], &[new]].concat());
    // Also for a worker that is gone.
    records.forget("t-w3").await.unwrap();
    assert_eq!(world.kept().await.unwrap(), before);
    first.release().await;
}

#[tokio::test(start_paused = true)]
async fn names_of_a_lease_put_aside_stay_used() {
    let world = World::with(2).await;
    let before = world.numbers().await.unwrap();
    world.give(Goal::Add(2)).await.done();
    world.give(remove("t-w4")).await.done();
    let holds: Vec<u64> =
        world.numbers().await.unwrap().into_iter().filter(|number| !before.contains(number)).collect();
    // As documented: its files get another name, and its workers' VMs and nodes are removed.
    for number in holds {
        for file in world.files(number).await.unwrap() {
            let is_journal = file == "pool.jsonl" || file.starts_with("machine-") || file.starts_with("worker-");
            if let Some(text) = world.read(number, &file).await.unwrap().filter(|_| is_journal) {
                world.write(number, &format!("{file}.damaged"), &text).await.unwrap();
                world.lose_file(number, &file);
            }
        }
    }
    let lost = |name: &str| name == "t-w3";
    world.lock().nodes.retain(|node| !lost(&node.name));
    world.lock().machines.retain(|machine| !lost(&machine.vm.name));
    assert_eq!(world.kept().await.unwrap().machines.len(), 2);
    assert_eq!(world.give(Goal::Add(1)).await.done().available, 3);
    assert_eq!(world.own(), ["t-w1", "t-w2", "t-w5"], "somebody has a certificate by the name of another one");
    // That is recorded from then on.
    assert_eq!(world.kept().await.unwrap().pool.last_index, 5);
    // Files that were put aside do not keep old leases for good, and the next name is still a new one without them.
    for _ in 0..30 {
        world.give(Goal::GoOn).await.done();
    }
    let left = world.numbers().await.unwrap();
    assert!(left.len() <= 21, "{left:?}");
    assert_eq!(world.give(Goal::Add(1)).await.done().available, 4);
    assert_eq!(world.own().last().map(String::as_str), Some("t-w6"));
}

#[test]
fn a_digest_of_another_form_is_refused() {
    let read = |digest: &str| serde_json::from_value::<Image>(json!({"digest": digest, "name": "an image"}));
    let digits = "0a".repeat(32);
    assert_eq!(read(&format!("sha256:{digits}")).unwrap().digest, digits);
    for other in ["", "one", &digits, "sha256:", "sha256:0a", &format!("sha256:{}", "xy".repeat(32))] {
        assert!(read(other).is_err(), "{other}");
    }
}
