//! Publishes an Event each time that a condition of an object gets another reason. Reasons from before this controller led are
//! not published. If a reason of an object comes back within six minutes, its Event is counted (kube's `Recorder`) with its first
//! note. A changed note is a separate Event ([`Announced`]).

mod announced;

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::WatchStreamExt;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout};

use self::announced::Announced;
use super::Guarded;
use crate::decisions::{PendingEvent, Reasons, pending_events, reasons};
use crate::objects::Condition;

/// The limit for publishing an Event. After it the Event is lost; the condition remains.
const LIMIT: Duration = Duration::from_secs(5);

/// The known reasons of the objects of a kind, by UID.
#[derive(Default)]
struct ReasonCache {
    reasons: HashMap<String, Reasons>,
    /// The UIDs in the list that is being read.
    listed: HashSet<String>,
}

impl ReasonCache {
    /// The object of a watch event, and what to publish of it. An object that cannot be read keeps its known reasons.
    fn sees<K: ResourceExt>(
        &mut self,
        seen: watcher::Event<Guarded<K>>,
        conditions: fn(&K) -> &[Condition],
    ) -> Option<(K, Vec<PendingEvent>)> {
        match seen {
            watcher::Event::Init => self.listed.clear(),
            watcher::Event::InitDone => self.reasons.retain(|uid, _| self.listed.contains(uid)),
            watcher::Event::Delete(object) => drop(self.reasons.remove(&object.uid().unwrap_or_default())),
            watcher::Event::InitApply(object) => {
                self.listed.insert(object.uid().unwrap_or_default());
                let object = object.0.ok()?;
                // The former reasons of an unknown object are unknown, so nothing is published.
                let before = self.reasons.insert(object.uid()?, reasons(conditions(&object)));
                let news = pending_events(&before?, conditions(&object));
                return Some((object, news));
            }
            watcher::Event::Apply(object) => {
                let object = object.0.ok()?;
                let before = self.reasons.insert(object.uid()?, reasons(conditions(&object)));
                let news = pending_events(&before.unwrap_or_default(), conditions(&object));
                return Some((object, news));
            }
        }
        None
    }
}

pub struct Announcer {
    client: Client,
    reporter: Reporter,
    told: Announced<Recorder>,
}

impl Announcer {
    pub fn new(client: Client, reporter: Reporter) -> Self {
        let usual = Recorder::new(client.clone(), reporter.clone());
        Self { client, reporter, told: Announced::new(usual) }
    }

    /// Publishes changes of the objects of a kind, forever.
    pub async fn announces<K>(mut self, conditions: fn(&K) -> &[Condition])
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let mut known = ReasonCache::default();
        let stream = watcher(Api::<Guarded<K>>::all(self.client.clone()), watcher::Config::default()).default_backoff();
        let mut stream = std::pin::pin!(stream);
        while let Some(seen) = stream.next().await {
            let seen = match seen {
                Ok(seen) => seen,
                Err(error) => {
                    log::debug!("watching {} for news: {error}", K::plural(&()));
                    continue;
                }
            };
            let Some((object, news)) = known.sees(seen, conditions) else { continue };
            for news in news {
                self.publishes(&object.object_ref(&()), news, Instant::now()).await;
            }
        }
        std::future::pending().await
    }

    async fn publishes(&mut self, object: &ObjectReference, news: PendingEvent, now: Instant) {
        let PendingEvent { about, reason, note, is_grave } = news;
        let uid = object.uid.clone().unwrap_or_default();
        let anew = || Recorder::new(self.client.clone(), self.reporter.clone());
        let recorder = self.told.by([uid, about.clone(), reason.clone()], &note, now, anew);
        let type_ = if is_grave { EventType::Warning } else { EventType::Normal };
        let note = Some(note).filter(|note| !note.is_empty());
        let event = Event { type_, reason, note, action: about, secondary: None };
        let published = timeout(LIMIT, recorder.publish(&event, object)).await;
        if !matches!(published, Ok(Ok(()))) {
            let (kind, name) = (object.kind.as_deref().unwrap_or_default(), object.name.as_deref().unwrap_or_default());
            log::debug!("an Event of {kind} {name}: {published:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use anyhow::Context as _;
    use serde_json::Value;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::decisions::fixture::{cluster, now};
    use crate::objects::{TenantCluster, TenantClusterReason, set};

    fn conditions(cluster: &TenantCluster) -> &[Condition] {
        cluster.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default()
    }

    fn because(reason: TenantClusterReason) -> Guarded<TenantCluster> {
        let mut cluster = cluster();
        set(&mut cluster.status.get_or_insert_default().conditions, reason, "", 1, &now());
        Guarded(Ok(cluster))
    }

    /// The same cluster with a status that cannot be read.
    fn unreadable() -> Guarded<TenantCluster> {
        let mut object = serde_json::to_value(cluster()).unwrap();
        object["status"] = serde_json::json!({"conditions": "none"});
        let guarded: Guarded<TenantCluster> = serde_json::from_value(object).unwrap();
        assert!(guarded.0.is_err());
        guarded
    }

    #[test]
    fn only_changed_reasons_are_published() {
        use TenantClusterReason::{Available, NotReady, Provisioning};
        use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};
        let mut known = ReasonCache::default();
        let mut told = |seen| {
            let news = known.sees(seen, conditions).map(|(_, news)| news).unwrap_or_default();
            news.into_iter().map(|news| news.reason).collect::<Vec<_>>()
        };
        let none: Vec<String> = Vec::new();
        assert_eq!(
            (told(Init), told(InitApply(because(Provisioning))), told(InitDone)),
            (none.clone(), none.clone(), none.clone())
        );
        assert_eq!(
            (told(Apply(because(Provisioning))), told(Apply(because(Available)))),
            (none.clone(), vec!["Available".to_owned()])
        );
        // The watch was interrupted.
        assert_eq!((told(Init), told(InitApply(because(NotReady)))), (none.clone(), vec!["NotReady".to_owned()]));
        told(InitDone);
        assert_eq!((told(Apply(unreadable())), told(Apply(because(NotReady)))), (none.clone(), none.clone()));
        assert_eq!(
            (told(Init), told(InitApply(unreadable())), told(InitDone)),
            (none.clone(), none.clone(), none.clone())
        );
        assert_eq!(told(Apply(because(NotReady))), none, "its reasons stayed known");
        told(Delete(because(NotReady)));
        assert_eq!(told(Apply(because(Provisioning))), ["Provisioning"], "another one of that name is new");
        told(Init);
        told(InitDone);
        assert!(known.reasons.is_empty(), "what is gone is forgotten");
    }

    /// An API server that accepts each object, and returns it.
    async fn takes(mut stream: TcpStream, taken: Taken) -> anyhow::Result<()> {
        let mut read = Vec::new();
        loop {
            let head = loop {
                if let Some(end) = read.windows(4).position(|part| part == b"\r\n\r\n") {
                    break String::from_utf8(read.drain(..end + 4).collect())?.to_lowercase();
                }
                anyhow::ensure!(stream.read_buf(&mut read).await? > 0, "it has gone");
            };
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            let length = length.context("how long it is")?;
            while read.len() < length {
                anyhow::ensure!(stream.read_buf(&mut read).await? > 0, "it has gone");
            }
            let body: Vec<u8> = read.drain(..length).collect();
            let method = head.split(' ').next().unwrap_or_default().to_owned();
            taken.lock().unwrap().push((method, serde_json::from_slice(&body)?));
            let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
            stream.write_all(&[head.as_bytes(), &body].concat()).await?;
        }
    }

    type Taken = Arc<Mutex<Vec<(String, Value)>>>;

    #[tokio::test]
    async fn a_repeated_reason_counts_unless_its_note_changed() {
        let (taken, listener) = (Taken::default(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let server = format!("http://{}", listener.local_addr().unwrap());
        let into = Arc::clone(&taken);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                drop(tokio::spawn(takes(stream, Arc::clone(&into))));
            }
        });
        let client = Client::try_from(kube::Config::new(server.parse().unwrap())).unwrap();
        let mut announcer = Announcer::new(client, Reporter { controller: "x".to_owned(), instance: None });
        let (cluster, begin) = (cluster().object_ref(&()), Instant::now());
        for (minutes, reason, note) in
            [(0, "Blocked", "no room"), (1, "Idle", ""), (2, "Blocked", "no room"), (3, "Blocked", "login refused")]
        {
            let (about, reason, note) = ("Progressing".to_owned(), reason.to_owned(), note.to_owned());
            let news = PendingEvent { about, reason, note, is_grave: true };
            announcer.publishes(&cluster, news, begin + Duration::from_secs(60 * minutes)).await;
        }
        serving.abort();
        let taken = taken.lock().unwrap().clone();
        let told = taken.iter().map(|(method, event)| {
            let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
            (method.as_str(), text("reason"), text("note"), event["series"]["count"].as_i64())
        });
        let expected = [
            ("post", "Blocked", "no room", None),
            ("post", "Idle", "", None),
            ("patch", "Blocked", "no room", Some(2)),
            ("post", "Blocked", "login refused", None),
        ];
        let expected = expected.map(|(how, reason, note, count)| (how, reason.to_owned(), note.to_owned(), count));
        assert_eq!(told.collect::<Vec<_>>(), expected);
    }
}
