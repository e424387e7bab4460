//! Waits for changes of an object's properties.

use std::time::{Duration, Instant};

use crate::client::Client;
use crate::error::Result;
use crate::method::{CREATE_FILTER, CREATE_PROPERTY_COLLECTOR, DESTROY_PROPERTY_COLLECTOR, WAIT_FOR_UPDATES};
use crate::reference::MoRef;
use crate::soap::Element;
use crate::treatment::Outcome;

use super::look::filter;
use super::object::Object;

/// An object that is watched with a separate property collector, so that waits do not disturb each other.
pub(crate) struct Watch {
    client: Client,
    paths: Vec<&'static str>,
    seen: Object,
    at: Option<At>,
}

/// The last update that was read from the collector.
struct At {
    collector: MoRef,
    version: String,
}

impl Watch {
    pub(crate) fn new(client: &Client, object: MoRef, paths: &[&'static str]) -> Self {
        Self { client: client.clone(), paths: paths.to_vec(), seen: Object::empty(object), at: None }
    }

    /// Waits for a change, at most `limit`, and returns the object's properties. At first, and after lost updates, it
    /// returns at once. After an error, the next call starts again.
    pub(crate) async fn next(&mut self, limit: Duration) -> Result<&Object> {
        // A lost update is not in a later one. After a wait without updates, and after an error, the properties are
        // read.
        let is_updated = self.updates(limit).await.unwrap_or_else(|error| {
            log::debug!("waiting for {}: {error}", self.seen.reference);
            self.abandon();
            false
        });
        if !is_updated {
            self.seen = self.client.look(&self.seen.reference, &self.paths).await?;
        }
        Ok(&self.seen)
    }

    /// Destroys the collector.
    pub(crate) async fn close(mut self) {
        if let Some(at) = self.at.take() {
            give_back(self.client.clone(), at).await;
        }
    }

    async fn updates(&mut self, limit: Duration) -> Result<bool> {
        if self.at.is_none() {
            self.begin().await?;
        }
        let at = self.at.as_mut().expect("it was begun");
        let limit = limit.min(self.client.settings().wait).as_secs();
        let options = Element::new("options").with([Element::text("maxWaitSeconds", limit)]);
        let arguments = vec![Element::text("version", &at.version), options];
        let response = self.client.call(WAIT_FOR_UPDATES, &at.collector, arguments).await?;
        let Some(set) = response.child("returnval") else { return Ok(false) };
        at.version = set.need_parsed("version")?;
        let updates = set.all("filterSet").flat_map(|filter| filter.all("objectSet"));
        let (watched, mut changed) = (self.seen.reference.clone(), false);
        for update in updates.filter(|update| update.reference_of("obj").as_ref() == Some(&watched)) {
            // An object that has left has no changes. Reading it reports that it is missing.
            if update.text_of("kind") == Some("leave") {
                return Ok(false);
            }
            self.seen.update(update);
            changed = true;
        }
        Ok(changed)
    }

    /// Destroys the collector in the background, if it exists.
    fn abandon(&mut self) {
        if let Some(at) = self.at.take() {
            self.client.give_back(give_back(self.client.clone(), at));
        }
    }

    async fn begin(&mut self) -> Result<()> {
        let main = self.client.service().manager("propertyCollector")?;
        let response = self.client.call(CREATE_PROPERTY_COLLECTOR, &main, Vec::new()).await?;
        let collector = response.need_reference("returnval")?;
        let object = &self.seen.reference;
        let spec = filter(std::iter::once(object.kind.as_str()), &self.paths)
            .with([Element::new("objectSet").with([Element::reference("obj", object)])])
            .named("spec");
        // From here on the collector is always destroyed.
        self.at = Some(At { collector: collector.clone(), version: String::new() });
        self.client.call(CREATE_FILTER, &collector, vec![spec, Element::text("partialUpdates", false)]).await?;
        Ok(())
    }
}

/// Watches whether an object becomes what a change without an answer had to make of it. The watch lasts as long as a
/// look may take, because vCenter may still work on the change. `judge` returns the result, or `None` while it may
/// still change. A missing or unreadable object counts as `false`.
pub(crate) async fn becomes(
    client: &Client,
    object: &MoRef,
    paths: &[&'static str],
    judge: fn(&Object) -> Option<bool>,
) -> bool {
    let mut watch = Watch::new(client, object.clone(), paths);
    let (begin, limit, mut failures) = (Instant::now(), client.settings().look_limit, 0);
    let became = loop {
        let left = limit.saturating_sub(begin.elapsed());
        match watch.next(left).await {
            Ok(seen) => match judge(seen) {
                Some(became) => break became,
                None if left.is_zero() => break false,
                None => {}
            },
            // The cause of the lost answer may last for a while.
            Err(error) if error.outcome() == Outcome::Transient && !left.is_zero() => {
                failures += 1;
                tokio::time::sleep(client.settings().pause_before(failures)).await;
            }
            Err(error) => {
                log::debug!("looking what has become of {object}: {error}");
                break false;
            }
        }
    };
    watch.close().await;
    became
}

/// For a wait that is dropped.
impl Drop for Watch {
    fn drop(&mut self) {
        self.abandon();
    }
}

async fn give_back(client: Client, at: At) {
    if let Err(error) = client.call(DESTROY_PROPERTY_COLLECTOR, &at.collector, Vec::new()).await {
        log::debug!("giving a property collector back, which goes with the session: {error}");
    }
}
