//! Leases and journals on a datastore.

use std::time::Duration;

use serde_json::json;
use vsphere::Settings;

use super::bed::{Bed, DEPLOYMENT, journal_of};
use super::says;
use crate::hypervisor::ErrorKind;
use crate::lease::{Lease, LeaseState, MARGIN, Store, TakeOver, standing};
use crate::vcenter::{DatastoreStore, VcenterHypervisor};

#[tokio::test]
async fn numbered_directory_has_one_maker_and_keeps_files() {
    let bed = Bed::start(&[]);
    let stores = [bed.store().await, bed.store().await, bed.store().await];
    let store = &stores[0];
    assert_eq!(store.numbers().await.unwrap(), Vec::<u64>::new());
    assert!(!store.exists(1).await.unwrap());
    assert_eq!(store.files(1).await.unwrap(), Vec::<String>::new());
    assert_eq!(store.read(1, "holder.json").await.unwrap(), None);

    let makes = stores.iter().map(|store| store.make(1));
    let made: Vec<bool> = futures(makes).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(made.iter().filter(|made| **made).count(), 1, "{made:?}");
    assert!(store.exists(1).await.unwrap());
    assert!(!store.exists(2).await.unwrap());

    let text = "a text with \u{fc}mlauts, <marks> & more\n";
    store.write(1, "entry-000001", text).await.unwrap();
    assert_eq!(stores[1].read(1, "entry-000001").await.unwrap().as_deref(), Some(text));
    stores[2].write(1, "entry-000001", "").await.unwrap();
    assert_eq!(store.read(1, "entry-000001").await.unwrap().as_deref(), Some(""));
    assert_eq!(store.files(1).await.unwrap(), ["entry-000001"]);
    assert!(store.make(2).await.unwrap());
    std::fs::create_dir(bed.file("[LocalDS_0] kaas/control/7")).unwrap();
    let mut numbers = store.numbers().await.unwrap();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2]);

    store.remove(1).await.unwrap();
    assert!(!store.exists(1).await.unwrap());
    assert_eq!(store.read(1, "entry-000001").await.unwrap(), None);
    assert!(store.remove(1).await.is_err());
}

#[tokio::test]
async fn unknown_answer_is_never_reported_as_missing() {
    let bed = Bed::start(&[]);
    let store = bed.store().await;
    assert!(store.make(1).await.unwrap());
    for (method, what, more) in [
        ("SearchDatastore_Task", "fault", json!({ "fault": "HostCommunication" })),
        ("SearchDatastore_Task", "fault", json!({ "fault": "CannotAccessFile" })),
        ("SearchDatastore_Task", "lose-answer", json!({ "times": 9 })),
    ] {
        bed.spoil(method, what, more).await;
        assert!(store.exists(1).await.is_err(), "{what}");
        bed.spoil_nothing().await;
    }
    for (what, more) in
        [("status", json!({ "code": 503 })), ("status", json!({ "code": 403 })), ("lose-answer", json!({}))]
    {
        bed.spoil("Datastore", what, more).await;
        assert!(store.read(1, "holder.json").await.is_err(), "{what}");
    }
    // A file that is listed exists, even if reading its bytes fails.
    store.write(1, "kept", "a text").await.unwrap();
    bed.spoil("Datastore", "status", json!({ "code": 404 })).await;
    let error = store.read(1, "kept").await.unwrap_err();
    assert!(format!("{error:#}").contains("kept is listed, and cannot be read"), "{error:#}");
    assert_eq!(store.read(1, "kept").await.unwrap().as_deref(), Some("a text"));
    // An interrupted write leaves a part, and the writer gets an error of unknown effect.
    bed.spoil("Datastore", "drop", json!({ "bytes": 4 })).await;
    assert!(store.write(1, "entry", "0123456789").await.is_err());
    let part = store.read(1, "entry").await.unwrap();
    assert!(part.as_deref().is_none_or(|part| "0123456789".starts_with(part) && part.len() < 10), "{part:?}");
    bed.spoil("Datastore", "lose-answer", json!({})).await;
    assert!(store.write(1, "entry", "0123456789").await.is_err());
    assert_eq!(store.read(1, "entry").await.unwrap().as_deref(), Some("0123456789"));
    // The answer is lost, and the directory was created.
    bed.spoil("MakeDirectory", "lose-answer", json!({})).await;
    assert!(store.make(2).await.is_err());
    assert!(!store.make(2).await.unwrap());

    bed.end_sessions().await;
    assert!(store.exists(2).await.unwrap());
    bed.end_sessions().await;
    store.write(2, "entry", "after a new login").await.unwrap();
}

#[tokio::test]
async fn lease_is_acquired_confirmed_and_released() {
    let bed = Bed::start(&[]);
    let (store, other) = (bed.store().await, bed.store().await);
    let hold = Lease::acquire(&store, "a test", TakeOver::FromTheDead, &|_| {}).await.unwrap();
    hold.confirm().await.unwrap();
    assert!(matches!(standing(&other).await.unwrap(), LeaseState::Held(held) if held.number == 1));
    let refused = Lease::acquire(&other, "another", TakeOver::FromTheDead, &|_| {}).await.err().expect("it is held");
    assert!(refused.to_string().contains("holds the lease of this deployment"), "{refused:#}");
    // Another command creates the next number: this lease is lost.
    assert!(other.make(2).await.unwrap());
    assert!(hold.confirm().await.unwrap_err().is::<crate::lease::Lost>());
    other.remove(2).await.unwrap();
    hold.release().await;
    assert_eq!(standing(&store).await.unwrap(), LeaseState::Free);
    let again = Lease::acquire(&other, "another", TakeOver::FromTheDead, &|_| {}).await.unwrap();
    assert_eq!(again.number(), 2);
    again.release().await;
}

/// Runs all of them at once.
async fn futures<T: Send>(all: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut all: Vec<_> = all.map(Box::pin).collect();
    let mut done: Vec<Option<T>> = all.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (at, future) in all.iter_mut().enumerate() {
            if done[at].is_none()
                && let std::task::Poll::Ready(result) = future.as_mut().poll(context)
            {
                done[at] = Some(result);
            }
        }
        if done.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

#[tokio::test]
async fn client_with_too_late_requests_is_refused() {
    let bed = Bed::start(&[]);
    drop(bed.hypervisor().await);
    let most = MARGIN.saturating_sub(vsphere::GONE);
    for (limit, is_taken) in [(most, false), (most.saturating_sub(Duration::from_millis(1)), true)] {
        let client = bed.limited(Settings { change_limit: limit, ..Bed::settings() }).await;
        let made = VcenterHypervisor::new(client.clone(), DEPLOYMENT, &bed.site(), &journal_of(DEPLOYMENT)).await;
        assert_eq!(made.is_ok(), is_taken, "{limit:?}");
        if let Err(error) = made {
            says(&error, ErrorKind::Refused, "less than 20 s are allowed");
        }
        let store = DatastoreStore::new(client, "DC0", journal_of(DEPLOYMENT)).await;
        assert_eq!(store.is_ok(), is_taken, "{limit:?}");
    }
}
