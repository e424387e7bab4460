//! What is kept, what is cut, and what an earlier hold has left.

use super::fake::{World, pool};
use crate::authority::{Hold, Store, TakeOver};
use crate::workers::{Kept, Machine, Pool, Records, records};

async fn hold(world: &World) -> Hold<'_> {
    Hold::take(world, "a test", TakeOver::FromTheDead, &|_| {}).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_last_whole_change_counts_and_one_that_was_cut_noted_nothing() {
    let world = World::new();
    assert_eq!(records::read(&world).await.unwrap(), None);
    let first = hold(&world).await;
    let mut records = Records::begin(&first, Kept { pool: pool(2), machines: Vec::new() }).await.unwrap();
    records.save_pool(pool(3)).await.unwrap();
    records.save_pool(pool(4)).await.unwrap();
    assert_eq!(records::read(&world).await.unwrap().unwrap().pool.count, 4);
    let text = world.read(first.number(), "worker-000002-pool.json").await.unwrap().unwrap();
    world.write(first.number(), "worker-000002-pool.json", &text[..text.len() / 2]).await.unwrap();
    assert_eq!(records::read(&world).await.unwrap().unwrap().pool.count, 3);
    first.release().await;

    // A hold that has begun nothing leaves what the one before it had.
    let second = hold(&world).await;
    assert_eq!(records::read(&world).await.unwrap().unwrap().pool.count, 3);
    world.write(second.number(), "workers.jsonl", "{\"form\":").await.unwrap();
    assert_eq!(records::read(&world).await.unwrap().unwrap().pool.count, 3);
    world.write(second.number(), "worker-000001-pool.json", &text).await.unwrap();
    let damaged = format!("{:#}", records::read(&world).await.unwrap_err());
    assert!(damaged.contains("missing or cut, and changes follow it"), "{damaged}");
}

#[test]
fn what_an_earlier_command_has_not_noted_is_none() {
    fn without<T: serde::Serialize + serde::de::DeserializeOwned>(noted: &T, later: &str) -> T {
        let mut noted = serde_json::to_value(noted).unwrap();
        assert!(noted.as_object_mut().unwrap().remove(later).is_some(), "{later} is not noted");
        serde_json::from_value(noted).unwrap()
    }
    let pool = pool(1);
    assert_eq!(without(&pool, "carries"), Pool { carries: Vec::new(), ..pool.clone() });
    let machine = Machine::new(&pool, uuid::Uuid::from_u128(1), None, 0);
    assert_eq!(without(&machine, "heard"), machine);
}
