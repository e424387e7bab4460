//! Events of what people look for: each time that a condition of an object has another reason. What was so before this controller led
//! is nobody's news. Of one reason of one object there is one Event in six minutes, which counts (`Recorder`).

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::time::Duration;

use futures_util::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::events::{Event, EventType, Recorder};
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::decisions::{News, Reasons, news, reasons};
use crate::objects::Condition;

/// How long the API server may take for an Event: what is not taken by then is lost, and its condition stands.
const LIMIT: Duration = Duration::from_secs(5);

/// What was known of the objects of a kind, by UID.
#[derive(Default)]
struct Known {
    reasons: HashMap<String, Reasons>,
    /// Those of the list that is being read.
    listed: HashSet<String>,
}

impl Known {
    /// Whatever was seen: the object of which there is something new, and what.
    fn sees<K: ResourceExt>(
        &mut self,
        seen: watcher::Event<K>,
        conditions: fn(&K) -> &[Condition],
    ) -> Option<(K, Vec<News>)> {
        match seen {
            watcher::Event::Init => self.listed.clear(),
            watcher::Event::InitDone => self.reasons.retain(|uid, _| self.listed.contains(uid)),
            watcher::Event::Delete(object) => drop(self.reasons.remove(&object.uid().unwrap_or_default())),
            watcher::Event::InitApply(object) => {
                self.listed.insert(object.uid().unwrap_or_default());
                // Of one that was not known it is not known either what is new.
                let before = self.reasons.insert(object.uid()?, reasons(conditions(&object)));
                let news = news(&before?, conditions(&object));
                return Some((object, news));
            }
            watcher::Event::Apply(object) => {
                let before = self.reasons.insert(object.uid()?, reasons(conditions(&object)));
                let news = news(&before.unwrap_or_default(), conditions(&object));
                return Some((object, news));
            }
        }
        None
    }
}

/// Announces what is new of the objects of a kind, for ever.
pub async fn announces<K>(client: Client, recorder: Recorder, conditions: fn(&K) -> &[Condition])
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut known = Known::default();
    let stream = watcher(Api::<K>::all(client), watcher::Config::default()).default_backoff();
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
        for News { about, reason, note, is_grave } in news {
            let type_ = if is_grave { EventType::Warning } else { EventType::Normal };
            let note = Some(note).filter(|note| !note.is_empty());
            let event = Event { type_, reason, note, action: about, secondary: None };
            let published = timeout(LIMIT, recorder.publish(&event, &object.object_ref(&()))).await;
            if !matches!(published, Ok(Ok(()))) {
                log::debug!("an Event of {} {}: {published:?}", K::kind(&()), object.name_any());
            }
        }
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decisions::fixture::{cluster, now};
    use crate::objects::{TenantCluster, TenantClusterReason, set};

    fn conditions(cluster: &TenantCluster) -> &[Condition] {
        cluster.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default()
    }

    fn because(reason: TenantClusterReason) -> TenantCluster {
        let mut cluster = cluster();
        set(&mut cluster.status.get_or_insert_default().conditions, reason, "", 1, &now());
        cluster
    }

    #[test]
    fn what_was_so_before_is_no_news_and_what_changed_unseen_is() {
        use TenantClusterReason::{Making, NotReady, Serves};
        use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};
        let mut known = Known::default();
        let mut told = |seen| {
            let news = known.sees(seen, conditions).map(|(_, news)| news).unwrap_or_default();
            news.into_iter().map(|news| news.reason).collect::<Vec<_>>()
        };
        let none: Vec<String> = Vec::new();
        assert_eq!(
            (told(Init), told(InitApply(because(Making))), told(InitDone)),
            (none.clone(), none.clone(), none.clone())
        );
        assert_eq!(
            (told(Apply(because(Making))), told(Apply(because(Serves)))),
            (none.clone(), vec!["Serves".to_owned()])
        );
        // The watch has broken off meanwhile.
        assert_eq!((told(Init), told(InitApply(because(NotReady)))), (none.clone(), vec!["NotReady".to_owned()]));
        told(InitDone);
        told(Delete(because(NotReady)));
        assert_eq!(told(Apply(because(Making))), ["Making"], "another one of that name is new");
        told(Init);
        told(InitDone);
        assert!(known.reasons.is_empty(), "what is gone is forgotten");
    }
}
